"""Top-k: the first k rows of each partition, in an order that leaves nothing to chance.

**Law** the answer is that of sorting each partition by the order, then by all its columns, and taking k places; a row of
weight w takes w places. Its change is -old +new over the partitions that changed.

**State** all rows, keyed by the partition and sorted by the first ordering column, so that only a partition's first rows are
read: about k, more where retracted rows or ties crowd the front. Where no row ever goes (`appends`), only the first k
places and those before the offset.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dbsp.errors import InternalError
from dbsp.horizon import Bound, Horizon, common
from dbsp.operators.groups.part import of_same_keys
from dbsp.operators.operator import Operator, State, StepContext
from dbsp.trace.spine import Spine
from dbsp.zset.arrays import from_values
from dbsp.zset.batch import Batch, arrange, concat, consolidate
from dbsp.zset.kernels import run_starts
from dbsp.zset.order import sort_rows
from dbsp.zset.schema import INT64, Arrangement, Column, OrderBy, Schema

_PARTITION = "__partition"
Positions = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopK(Operator):
    """`k` rows per partition by `order` after the first `offset`; `rank` names an added column that counts places from 1."""

    input: Schema
    partition: tuple[str, ...]
    order: tuple[OrderBy, ...]
    k: int
    rank: str | None
    schema: Schema
    offset: int = 0
    appends: bool = False

    def __str__(self) -> str:
        """How many, by what, per what."""
        offset = f" offset {self.offset}" if self.offset else ""
        return f"top {self.k}{offset} by {', '.join(map(str, self.order))} per ({', '.join(self.partition)})"

    def arrangements(self) -> tuple[Arrangement, ...]:
        """The rows, by partition, then in order."""
        return (Arrangement(schema=self.input, key=self.partition, order=self.order),)

    def horizon(self, inputs: Sequence[Horizon]) -> Horizon:
        """Only partitions whose rows change change."""
        return {name: bound for name, bound in common(inputs).items() if name in self.partition}

    def closing(self, inputs: Sequence[Horizon]) -> tuple[tuple[str, Bound] | None, ...]:
        """Partitions below a bound of a key are closed: their rows are never read again."""
        kept = next(iter(self.horizon(inputs).items()), None)
        return tuple(kept for _ in self.arrangements())

    def step(self, context: StepContext, state: State, inputs: tuple[Batch, ...]) -> Batch:  # noqa: ARG002 (protocol)
        """What left the first k, and what came in."""
        (arrangement,) = self.arrangements()
        delta = arrange(inputs[0], arrangement) if len(inputs[0]) else inputs[0]
        if len(delta) == 0:
            return Batch.empty(self.schema)
        partitions = self._partitions(delta)
        spine = state.spine(0)
        old, new = self._front(spine, partitions), self._front(spine.with_batch(delta), partitions)
        state.append(0, self._moved(old, new) if self.appends else delta)
        return consolidate(concat([self._first(*old).negate(), self._first(*new)], self.schema))

    def _moved(self, old: tuple[Batch, Positions], new: tuple[Batch, Positions]) -> Batch:
        """The change of the rows in the first places, each as often as it takes a place."""
        end = self.k + self.offset
        (was, now) = (
            rows.loose().with_weights(np.minimum(rows.weight, end - before).reshape(-1, 1))
            for rows, before in (old, new)
        )
        (arrangement,) = self.arrangements()
        return arrange(concat([was.negate(), now], self.input), arrangement)

    def _partitions(self, delta: Batch) -> Batch:
        """The partitions that changed, once each."""
        schema = self.input.select(self.partition)
        keys = delta.project(self.partition).with_weights(np.ones(len(delta), np.int64))
        return arrange(keys, Arrangement(schema=schema, key=self.partition))

    def _front(self, spine: Spine, partitions: Batch) -> tuple[Batch, Positions]:
        """The rows that begin in the first places of each partition, and how many places come before each."""
        if partitions.key_hash is None:
            raise InternalError("partitions are arranged")
        query, found = spine.heads(partitions.key_hash, self.k + self.offset, partitions)
        query, found = of_same_keys(partitions, query, found)
        positive = np.flatnonzero(found.weight > 0)
        query, found = query[positive], found.take(positive)
        order = self._sorted(query, found)
        query, found = query[order], found.take(order)
        before = _places_before(query, found.weight)
        taken = np.flatnonzero(before < self.k + self.offset)
        return found.take(taken), before[taken]

    def _first(self, rows: Batch, before: Positions) -> Batch:
        """The places after the offset."""
        first = np.maximum(before, self.offset)
        places = np.minimum(before + rows.weight, self.k + self.offset) - first
        taken = np.flatnonzero(places > 0)
        return self._output(rows.take(taken), first[taken], places[taken])

    def _sorted(self, query: Positions, found: Batch) -> Positions:
        """The exact order within each partition."""
        schema = Schema((Column(_PARTITION, INT64, nullable=False), *self.input.columns))
        numbered = Batch(schema=schema, columns=(from_values(query, INT64), *found.columns), weights=found.weights)
        return sort_rows(numbered, (OrderBy(_PARTITION), *self.order))

    def _output(self, rows: Batch, before: Positions, places: Positions) -> Batch:
        """The rows with as many places as they take; with a rank, one row per place."""
        if self.rank is None:
            return Batch(schema=self.schema, columns=rows.columns, weights=places.reshape(-1, 1))
        source = np.repeat(np.arange(len(rows)), places)
        first = np.repeat(np.cumsum(places) - places, places)
        ranks: pa.Array = from_values(before[source] + np.arange(len(source)) - first + 1, INT64)
        columns = (*rows.take(source).columns, ranks)
        return Batch(schema=self.schema, columns=columns, weights=np.ones((len(source), 1), np.int64))


def _places_before(query: Positions, weight: Positions) -> Positions:
    """How many places of its partition come before each row; rows are sorted by partition."""
    total = np.cumsum(weight) - weight
    starts = run_starts(query.astype(np.uint64))
    lengths = np.diff(np.append(starts, len(query)))
    return np.asarray(total - np.repeat(total[starts], lengths))

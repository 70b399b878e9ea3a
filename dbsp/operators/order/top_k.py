"""Top-k: the first k rows of each partition, in an order that leaves nothing to chance.

**Law** the answer is that of sorting each partition by the order, then by all its columns, and taking k places; a row of
weight w takes w places. Its change is -old +new over the partitions that changed.

**State** all rows, keyed by the partition and sorted by the first ordering column, so that only a partition's first rows are
read: about k, more where ties or rows retracted lately crowd the front. Where no row ever goes (`appends`), only the first k
places and those before the offset.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from dbsp.errors import InternalError
from dbsp.horizon import Bound, Horizon, common
from dbsp.operators.fronts import settled
from dbsp.operators.groups.part import of_same_keys
from dbsp.operators.operator import Integral, Operator, State, StepContext
from dbsp.zset.arrays import from_values
from dbsp.zset.batch import Batch, arrange, concat, keys_once, rearrange
from dbsp.zset.hashing import hash_column
from dbsp.zset.kernels import combine_hashes, run_starts
from dbsp.zset.runs import lengths
from dbsp.zset.schema import INT64, Arrangement, OrderBy, Schema

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

    def integrals(self) -> tuple[Integral | None, ...]:
        """All rows, unless the first are enough."""
        return (None if self.appends else Integral(stream=0),)

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
        partitions = keys_once(delta)
        if partitions.key_hash is None:
            raise InternalError("partitions are arranged")
        heads = state.spine(0).heads_twice(partitions.key_hash, self.k + self.offset, partitions, delta)
        old, new = (self._front(partitions, *side) for side in heads)
        state.append(0, self._moved(old, new) if self.appends else delta)
        return self._change(self._first(*old), self._first(*new))

    def _moved(self, old: tuple[Batch, Positions], new: tuple[Batch, Positions]) -> Batch:
        """The change of the rows in the first places, each as often as it takes a place."""
        end = self.k + self.offset
        was, now = (
            replace(rows, weights=np.minimum(rows.weight, end - before).reshape(-1, 1)) for rows, before in (old, new)
        )
        (arrangement,) = self.arrangements()
        return rearrange(concat([was.negate(), now], self.input, words=True), arrangement)

    def _change(self, old: Batch, new: Batch) -> Batch:
        """What went and what came, arranged; rows that stay where they are cancel by their words: no column is hashed again."""
        arrangement = Arrangement(schema=self.schema, key=self.partition, order=self.order)
        return rearrange(concat([old.negate(), new], self.schema, words=True), arrangement)

    def _front(self, partitions: Batch, query: Positions, found: Batch) -> tuple[Batch, Positions]:
        """The rows that begin in the first places of each partition, and how many places come before each."""
        query, found = of_same_keys(partitions, query, found, words=True)
        order = settled(query, found, self.order, np.flatnonzero(found.weight > 0))
        before = _places_before(query[order], found.weight[order])
        taken = np.flatnonzero(before < self.k + self.offset)
        return found.take(order[taken], words=True), before[taken]

    def _first(self, rows: Batch, before: Positions) -> Batch:
        """The places after the offset."""
        first = np.maximum(before, self.offset)
        places = np.minimum(before + rows.weight, self.k + self.offset) - first
        taken = np.flatnonzero(places > 0)
        if len(taken) < len(rows):
            rows = rows.take(taken, words=True)
        return self._output(rows, first[taken], places[taken])

    def _output(self, rows: Batch, before: Positions, places: Positions) -> Batch:
        """The rows with as many places as they take; with a rank, one row per place. Their words go along."""
        if self.rank is None:
            return replace(rows, schema=self.schema, weights=places.reshape(-1, 1))
        if len(places) and places.max() > 1:
            source = np.repeat(np.arange(len(rows)), places)
            before = before[source] + np.arange(len(source)) - np.repeat(np.cumsum(places) - places, places)
            rows = rows.take(source, words=True)
        ranks = from_values(before + 1, INT64)
        hashed = hash_column(ranks) if rows.row_hash is None else combine_hashes(rows.row_hash, hash_column(ranks))
        weights = np.ones((len(rows), 1), np.int64)
        return replace(rows, schema=self.schema, columns=(*rows.columns, ranks), weights=weights, row_hash=hashed)


def _places_before(query: Positions, weight: Positions) -> Positions:
    """How many places of its partition come before each row; rows are sorted by partition."""
    total = np.cumsum(weight) - weight
    starts = run_starts(query.astype(np.uint64))
    return np.asarray(total - np.repeat(total[starts], lengths(starts, len(query))))

"""Top-k: the first k rows of each partition, in a total order.

**Law** the result sorts each partition by the order, then by all its columns, and takes k places. A row of weight w takes w
places. The change is -old +new over the partitions that changed.

**State** all rows, keyed by the partition and sorted by the first ordering column, so that only a partition's first rows are
read. These are about k rows, more where ties or recently retracted rows are at the front. If no row is ever removed
(`appends`), only the rows of the first k places and of those before the offset are stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from dbsp.errors import InternalError
from dbsp.operators.exact_order import settled
from dbsp.operators.monotone_bounds import Bound, MonotoneBounds, common
from dbsp.operators.operator import Integral, Operator, State, StepContext, Time
from dbsp.stored import stored
from dbsp.trace.first_rows import FirstRows
from dbsp.zset.arrays import from_values
from dbsp.zset.batch import Batch, arrange, concat, keys_once, rearrange
from dbsp.zset.hashing import hash_column, hash_columns
from dbsp.zset.kernels import combine_hashes, run_starts
from dbsp.zset.runs import lengths
from dbsp.zset.schema import INT64, Arrangement, OrderBy, Schema

Positions = npt.NDArray[np.int64]


@stored("TopK", "input partition order k rank schema offset appends")
@dataclass(frozen=True, slots=True, kw_only=True)
class TopKOperator(Operator):
    """Emit `k` rows per partition by `order` after the first `offset`; `rank` names an added column of places from 1."""

    depends_on_time: ClassVar[Time] = Time.NOTHING
    input: Schema
    partition: tuple[str, ...]
    order: tuple[OrderBy, ...]
    k: int
    rank: str | None
    schema: Schema
    offset: int = 0
    appends: bool = False

    def __str__(self) -> str:
        """Return the number of rows, the order and the partition as text."""
        offset = f" offset {self.offset}" if self.offset else ""
        return f"top {self.k}{offset} by {', '.join(map(str, self.order))} per ({', '.join(self.partition)})"

    def arrangements(self) -> tuple[Arrangement, ...]:
        """Return the arrangement of the rows, by partition, then in order."""
        return (Arrangement(schema=self.input, key=self.partition, order=self.order),)

    def integrals(self) -> tuple[Integral | None, ...]:
        """Return the input as the integral of the trace, unless only the first rows are stored."""
        return (None if self.appends else Integral(stream=0),)

    def monotone_bounds(self, inputs: Sequence[MonotoneBounds]) -> MonotoneBounds:
        """Return the bounds of the partition: only partitions whose rows change have other output rows."""
        return {name: bound for name, bound in common(inputs).items() if name in self.partition}

    def closing(self, inputs: Sequence[MonotoneBounds]) -> tuple[tuple[str, Bound] | None, ...]:
        """Return the bound of a key: partitions below it are closed, so their rows are never read again."""
        kept = next(iter(self.monotone_bounds(inputs).items()), None)
        return tuple(kept for _ in self.arrangements())

    def step(self, context: StepContext, state: State, inputs: tuple[Batch, ...]) -> Batch:  # noqa: ARG002 (protocol)
        """Return the rows that left the first k, and the rows that entered them."""
        (arrangement,) = self.arrangements()
        delta = arrange(inputs[0], arrangement) if len(inputs[0]) else inputs[0]
        if len(delta) == 0:
            return Batch.empty(self.schema)
        partitions = keys_once(delta)
        if partitions.key_hash is None:
            raise InternalError("partitions are arranged")
        first_rows = state.spine(0).first_rows_twice(partitions.key_hash, self.k + self.offset, partitions, delta)
        old, new = (self._places(first_rows, weights) for weights in (first_rows.before, first_rows.after))
        state.append(0, first_rows.changed(new.held - old.held) if self.appends else delta)
        if self.rank is None:
            return first_rows.changed(new.shown - old.shown).but(schema=self.schema, arrangement=self._arranged)
        return self._ranked(first_rows, old, new)

    @property
    def _arranged(self) -> Arrangement:
        """Return the arrangement of the output."""
        return Arrangement(schema=self.schema, key=self.partition, order=self.order)

    def _places(self, first_rows: FirstRows, weights: Positions) -> _Places:
        """Return the places that rows take before or after the change, given their weights there."""
        order = settled(first_rows, weights, self.order)
        weight = weights.take(order)
        first = _places_before(first_rows.query.take(order), weight)
        end = self.k + self.offset
        held = np.clip(end - first, 0, weight)
        begin = np.maximum(first, self.offset)
        places = _Places(*np.zeros((3, len(first_rows)), np.int64))
        places.first[order], places.held[order] = begin, held
        places.shown[order] = np.maximum(first + held - begin, 0)
        return places

    def _ranked(self, first_rows: FirstRows, old: _Places, new: _Places) -> Batch:
        """Return the removed and the added rows, one row per place.

        Rows whose places stay are left out, and places that stay cancel out.
        """
        moved = (old.shown != new.shown) | (old.first != new.first)
        sides = (self._with_rank(first_rows, side, np.flatnonzero(moved & (side.shown > 0))) for side in (old, new))
        went, came = sides
        return rearrange(concat([went.negate(), came], self.schema, words=True), self._arranged)

    def _with_rank(self, first_rows: FirstRows, places: _Places, rows: Positions) -> Batch:
        """Return these rows with their rank, one row per place, together with their sort words."""
        shown, first = places.shown.take(rows), places.first.take(rows)
        source = np.repeat(np.arange(len(rows)), shown)
        within = np.arange(len(source)) - np.repeat(np.cumsum(shown) - shown, shown)
        ranks = from_values(first.take(source) + within + 1, INT64)
        taken = first_rows.take(rows.take(source), np.ones(len(source), np.int64))
        if taken.row_hash is None:
            rest = [taken.held_column(name) for name in taken.schema.names if name not in self.partition]
            hashed = hash_columns([*rest, ranks], len(ranks))
        else:
            hashed = combine_hashes(taken.row_hash, hash_column(ranks))
        return taken.but(schema=self.schema, columns=(*taken.held, ranks), row_hash=hashed)


@dataclass(frozen=True, slots=True)
class _Places:
    """The places of each row among the ordered rows of its partition; a row of weight w has w places."""

    first: Positions
    """The row's first place at or after the offset; the partition's first place is 0."""
    held: Positions
    """How many of its places are below offset + k."""
    shown: Positions
    """How many of these are at or after the offset, and so in the output."""


def _places_before(query: Positions, weight: Positions) -> Positions:
    """Return the number of places of the partition before each row; rows are sorted by partition."""
    total = np.cumsum(weight) - weight
    starts = run_starts(query.astype(np.uint64))
    return np.asarray(total - np.repeat(total[starts], lengths(starts, len(query))))

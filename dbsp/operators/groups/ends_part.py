"""Min and max from one trace: the first row of a group in an order, and the first in the reverse order.

**State** per group the rows with their weights, as `FirstPart` stores them, once instead of twice. If no row is ever removed
(`appends`), only the first row and the last one are stored, each with weight 1. A row that is both has weight 2.
**Limit** retracted rows at the far end are read again until a merge removes them. At the near end the live starts let a reader
pass them once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dbsp.operators.exact_order import settled
from dbsp.operators.groups.first_part import FirstPart, first, spread
from dbsp.operators.groups.part import AggregatePart, Positions, Values
from dbsp.operators.groups.row_form import RowForm
from dbsp.operators.operator import State
from dbsp.stored import stored
from dbsp.trace.first_rows import FirstRows
from dbsp.trace.spine import Spine
from dbsp.zset.batch import Batch
from dbsp.zset.runs import begins, ends
from dbsp.zset.schema import Arrangement, OrderBy

_ALL = 1 << 40
"""A number of rows that no group reaches."""


@stored("EndsPart", "near far")
@dataclass(frozen=True, slots=True, kw_only=True)
class EndsPart:
    """Two parts that read the same rows, one in the reverse of the other's order."""

    near: FirstPart
    far: FirstPart

    def __str__(self) -> str:
        """Return both aggregates as text."""
        return f"{self.near}; {self.far}"

    @property
    def leads(self) -> tuple[OrderBy, ...]:
        """Return the orders in which only rows that may be first are needed; empty if all rows are needed."""
        return (*self.near.leads, *self.far.leads)

    def form(self) -> RowForm:
        """Return the form of the rows, which is the same for both parts."""
        return self.near.form()

    def names(self) -> tuple[str, ...]:
        """Return the names of both aggregates."""
        return (*self.near.names(), *self.far.names())

    def arrangements(self) -> tuple[Arrangement, ...]:
        """Return the arrangement of the one trace, in the order of the near part."""
        return self.near.arrangements()

    def step(self, state: State, groups: Batch, delta: Batch) -> tuple[Values, Values]:
        """Return the values of both first rows before and after the change."""
        found = (self._few if self.near.appends else self._both)(state.spine(0), groups, delta)
        if len(delta):
            state.append(0, _moved(found) if self.near.appends else delta)
        columns = [end.columns(len(groups)) for end in found]
        old, new = (Values(columns=side) for side in zip(*columns, strict=True))
        return old, new

    def _both(self, spine: Spine, groups: Batch, delta: Batch) -> list[_End]:
        """Read the trace from both ends, and return both first rows."""
        found = []
        for part, backwards in ((self.near, False), (self.far, True)):
            first_rows = spine.first_rows_twice(groups.words[0], 1, groups, delta, backwards=backwards)
            old, new = (first(first_rows, side, part.order) for side in (first_rows.before, first_rows.after))
            found.append(_End(part, first_rows, old, new))
        return found

    def _few(self, spine: Spine, groups: Batch, delta: Batch) -> list[_End]:
        """Return both first rows from one read of groups that have at most two stored rows."""
        first_rows = spine.first_rows_twice(groups.words[0], _ALL, groups, delta)
        near, far = ([find(first_rows, side, part.order) for side in (first_rows.before, first_rows.after)]
                     for part, find in ((self.near, first), (self.far, _last)))  # fmt: skip
        return [_End(self.near, first_rows, *near), _End(self.far, first_rows, *far)]


@dataclass(frozen=True, slots=True)
class _End:
    """The first rows of a part before and after a change."""

    part: FirstPart
    first_rows: FirstRows
    old: Positions
    new: Positions

    def columns(self, groups: int) -> tuple[pa.Array, pa.Array]:
        """Return the part's value for each group, before and after the change."""
        column = self.first_rows.column(self.part.gives)
        return spread(column, self.first_rows.query, self.old, groups), spread(
            column, self.first_rows.query, self.new, groups
        )


def _last(first_rows: FirstRows, weights: Positions, order: tuple[OrderBy, ...]) -> Positions:
    """Return the first row by `order` of each group that has one, given rows in the reverse order of their codes."""
    sequence = settled(first_rows, weights, order)
    query = first_rows.query.take(sequence)
    starts = np.flatnonzero(begins(query, first_rows.code.take(sequence)))
    return sequence.take(starts[ends(query.take(starts))])


def _moved(found: Sequence[_End]) -> Batch:
    """Return the change of the stored rows at both ends, which are in one read; a row has weight 1 for each end."""
    first_rows = found[0].first_rows
    weights = np.zeros(len(first_rows), np.int64)
    for end in found:
        weights[end.new] += 1
        weights[end.old] -= 1
    return first_rows.changed(weights)


def paired(parts: Sequence[AggregatePart]) -> tuple[AggregatePart, ...]:
    """Return the parts, with each two joined that read the same rows in opposite orders."""
    made: list[AggregatePart] = []
    for part in parts:
        at = next((at for at, other in enumerate(made) if _is_reverse(other, part)), None)
        if at is None:
            made.append(part)
        else:
            made[at] = EndsPart(near=made[at], far=part)  # type: ignore[arg-type]  # both are first parts
    return tuple(made)


def _is_reverse(one: AggregatePart, other: AggregatePart) -> bool:
    """Return whether one trace, in the order of the first part, serves both parts."""
    if not (isinstance(one, FirstPart) and isinstance(other, FirstPart)) or one.values != other.values:
        return False
    mine = one.order[0]
    return mine.reverses(other.order[0], nulls=one.values.values[mine.column].nullable)

"""The first row of a group in an order, and one of its columns: min, max, arg_min, arg_max, first, last.

**State** per group the rows with their weights, sorted by the first ordering column. So after a retraction of the first row,
the next one is found at the front of the group, without reading the whole group. Rows that tie in that column are read
together. If no row is ever removed (`appends`), only the first row of each group is stored.

**Law** the other ordering columns break ties, then all columns, so the first row is always the same. Max is the first row in
descending order; NaN is above every number.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dbsp.errors import InternalError
from dbsp.operators.columns import column_of
from dbsp.operators.exact_order import settled
from dbsp.operators.groups.part import Positions, Values
from dbsp.operators.groups.value_part import ValuePart
from dbsp.operators.operator import State
from dbsp.stored import stored
from dbsp.trace.first_rows import FirstRows
from dbsp.trace.spine import Spine
from dbsp.zset.arrays import is_bytes, is_decimal, is_plain, value_view
from dbsp.zset.batch import Batch
from dbsp.zset.runs import begins
from dbsp.zset.schema import Arrangement, OrderBy


@stored("FirstPart", "name text values order gives appends")
@dataclass(frozen=True, slots=True, kw_only=True)
class FirstPart(ValuePart):
    """The value `gives` of the first row by `order`; null where there is no row."""

    order: tuple[OrderBy, ...]
    gives: str
    appends: bool = False

    @property
    def leads(self) -> tuple[OrderBy, ...]:
        """Return the orders in which only rows that may be first are needed; empty if all rows are needed."""
        return self.order[:1] if self.appends else ()

    def arrangements(self) -> tuple[Arrangement, ...]:
        """Return the arrangement of the rows of each group, in order."""
        return (Arrangement(schema=self.values.schema, key=self.values.keys.names, order=self.order),)

    def step(self, state: State, groups: Batch, delta: Batch) -> tuple[Values, Values]:
        """Return the value of the first row before and after the change."""
        first_rows = _first_rows(state.spine(0), groups, delta)
        old = first(first_rows, first_rows.before, self.order)
        if not len(delta):
            values = Values(columns=(spread(first_rows.column(self.gives), first_rows.query, old, len(groups)),))
            return values, values
        new = first(first_rows, first_rows.after, self.order)
        state.append(0, self._moved(first_rows, old, new) if self.appends else delta)
        column = first_rows.column(self.gives)
        sides = (spread(column, first_rows.query, rows, len(groups)) for rows in (old, new))
        old_values, new_values = (Values(columns=(values,)) for values in sides)
        return old_values, new_values

    def _moved(self, first_rows: FirstRows, old: Positions, new: Positions) -> Batch:
        """Return the change of the stored first rows, each of which has weight 1."""
        weights = np.zeros(len(first_rows), np.int64)
        weights[new] = 1
        weights[old] -= 1
        return first_rows.changed(weights)


def _first_rows(spine: Spine, groups: Batch, delta: Batch) -> FirstRows:
    """Return the first rows of each group without a change and with it."""
    if groups.key_hash is None:
        raise InternalError("groups are arranged")
    return spine.first_rows_twice(groups.key_hash, 1, groups, delta)


def first(first_rows: FirstRows, weights: Positions, order: tuple[OrderBy, ...]) -> Positions:
    """Return the first row of positive weight of each group that has one."""
    sequence = settled(first_rows, weights, order)
    return sequence[begins(first_rows.query.take(sequence))]


def first_rows(spine: Spine, groups: Batch, order: tuple[OrderBy, ...]) -> tuple[Positions, Batch]:
    """Return the groups that have rows of positive weight, and the first such row of each.

    The trace is sorted by `order[0]`.
    """
    first_rows = _first_rows(spine, groups, Batch.empty(spine.arrangement.schema))
    rows = first(first_rows, first_rows.before, order)
    return first_rows.query.take(rows), first_rows.take(rows, first_rows.before.take(rows))


def first_values(spine: Spine, groups: Batch, order: tuple[OrderBy, ...], gives: str) -> pa.Array:
    """Return per group one value of the first row of positive weight, null if none; the trace is sorted by `order[0]`."""
    return value_of(first_rows(spine, groups, order), groups, gives)


def value_of(rows: tuple[Positions, Batch], groups: Batch, gives: str) -> pa.Array:
    """Return per group one value of its row; null if it has none."""
    group, found = rows
    return spread(found.column(gives), group, np.arange(len(group)), len(groups))


def spread(column: pa.Array, group: Positions, rows: Positions, groups: int) -> pa.Array:
    """Return per group the value of its one row among these rows; null if none of them belongs to the group."""
    mine, there = group.take(rows), np.zeros(groups, np.bool_)
    there[mine] = True
    if is_plain(column) and not is_decimal(column):
        values = value_view(column)
        spread = np.zeros(groups, values.dtype)
        spread[mine] = values.take(rows)
        return column_of(spread, there, column.type)
    at = np.zeros(groups, np.int64)
    at[mine] = rows
    return pc.take(column, pa.array(at, mask=~there))


def front(spine: Spine, groups: Batch, k: int) -> tuple[Positions, Batch]:
    """Return the first rows of each group: all rows up to some order code.

    At least `k` of them have positive weight, if the group has so many.
    """
    if groups.key_hash is None:
        raise InternalError("groups are arranged")
    return spine.first_rows(groups.key_hash, k, groups)


def in_code_order(rows: Batch, order: tuple[OrderBy, ...]) -> bool:
    """Return whether the order of codes is the exact order: the whole order is one column of short values without nulls."""
    values = [name for name in rows.schema.names if name.startswith("__value__")]
    array = rows.column(order[0].column)
    return len(order) == len(values) == 1 and array.null_count == 0 and not (is_bytes(array) or is_decimal(array))

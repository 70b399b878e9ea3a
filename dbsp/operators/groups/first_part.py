"""The first row of a group in an order, and one of its columns: min, max, arg_min, arg_max, first, last.

**State** per group the rows with how often they occur, sorted by the first ordering column; so a retraction of the first one
finds the next by reading the front of the group, not the group. Rows that tie in that column are read together. Where no row
ever goes (`appends`), only the first row of each group.

**Law** ties are settled by the other ordering columns, then by all columns, so the first row is always the same; max is the
first in descending order, NaN is above every number.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dbsp.errors import InternalError
from dbsp.operators.fronts import settled
from dbsp.operators.groups.part import Positions, Values, of_same_keys
from dbsp.operators.groups.value_part import ValuePart
from dbsp.operators.operator import State
from dbsp.trace.spine import Spine
from dbsp.zset.arrays import is_bytes, is_decimal
from dbsp.zset.batch import Batch, arrange, concat
from dbsp.zset.runs import begins
from dbsp.zset.schema import Arrangement, OrderBy


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstPart(ValuePart):
    """The value `gives` of the first row by `order`; null where there is no row."""

    order: tuple[OrderBy, ...]
    gives: str
    appends: bool = False

    def arrangements(self) -> tuple[Arrangement, ...]:
        """The rows of each group, in order."""
        return (Arrangement(schema=self.values.schema, key=self.values.keys.names, order=self.order),)

    def step(self, state: State, groups: Batch, delta: Batch) -> tuple[Values, Values]:
        """The first row before and after the change."""
        spine = state.spine(0)
        if not len(delta):
            values = Values(columns=(value_of(first_rows(spine, groups, self.order), groups, self.gives),))
            return values, values
        if groups.key_hash is None:
            raise InternalError("groups are arranged")
        (found, rows), (found_after, rows_after) = spine.heads_twice(groups.key_hash, 1, groups, delta)
        old = _first(*of_same_keys(groups, found, rows, words=True), self.order)
        new = _first(*of_same_keys(groups, found_after, rows_after, words=True), self.order)
        state.append(0, self._moved(old[1], new[1]) if self.appends else delta)
        return (
            Values(columns=(value_of(old, groups, self.gives),)),
            Values(columns=(value_of(new, groups, self.gives),)),
        )

    def _moved(self, old: Batch, new: Batch) -> Batch:
        """The change of the first rows, each kept once."""
        once = [rows.loose().with_weights(np.ones((len(rows), 1), np.int64)) for rows in (old, new)]
        (arrangement,) = self.arrangements()
        return arrange(concat([once[0].negate(), once[1]], arrangement.schema), arrangement)


def first_rows(spine: Spine, groups: Batch, order: tuple[OrderBy, ...]) -> tuple[Positions, Batch]:
    """The groups that have rows of positive weight, and the first such row of each, in a trace sorted by `order[0]`."""
    return _first(*front(spine, groups, 1), order)


def _first(group: Positions, found: Batch, order: tuple[OrderBy, ...]) -> tuple[Positions, Batch]:
    """The first row of positive weight of each group, of rows in order of (group, order code)."""
    sequence = settled(group, found, order, np.flatnonzero(found.weight > 0))
    first = sequence[begins(group[sequence])]
    return group[first], found.take(first)


def first_values(spine: Spine, groups: Batch, order: tuple[OrderBy, ...], gives: str) -> pa.Array:
    """Per group one value of the first row of positive weight in a trace that is sorted by `order[0]`; null if none."""
    return value_of(first_rows(spine, groups, order), groups, gives)


def value_of(rows: tuple[Positions, Batch], groups: Batch, gives: str) -> pa.Array:
    """Per group one value of its row; null if it has none."""
    group, found = rows
    at = np.zeros(len(groups), np.int64)
    absent = np.ones(len(groups), np.bool_)
    at[group], absent[group] = np.arange(len(group)), False
    return pc.take(found.column(gives), pa.array(at, mask=absent))


def front(spine: Spine, groups: Batch, k: int) -> tuple[Positions, Batch]:
    """The first rows of each group, complete up to some order code, at least `k` of positive weight if there are so many."""
    if groups.key_hash is None:
        raise InternalError("groups are arranged")
    return of_same_keys(groups, *spine.heads(groups.key_hash, k, groups), words=True)


def in_code_order(rows: Batch, order: tuple[OrderBy, ...]) -> bool:
    """Whether rows in the order of their codes are in exact order: one short value that is all of the order."""
    values = [name for name in rows.schema.names if name.startswith("__value__")]
    array = rows.column(order[0].column)
    return len(order) == len(values) == 1 and array.null_count == 0 and not (is_bytes(array) or is_decimal(array))

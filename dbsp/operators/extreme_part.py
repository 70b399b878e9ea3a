"""Min and max: the first value of a group in an order, read from the end of a sorted history.

**State** per group the values with how often they occur, sorted; so a retraction of the extreme finds the next one by
reading the front of the group, not the group.

**Law** min(values) is the first of the values in ascending order, max in descending; NaN is above every number.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dbsp.errors import InternalError
from dbsp.operators.operator import State
from dbsp.operators.part import Positions, Values, of_same_keys
from dbsp.operators.value_form import VALUE, ValueForm
from dbsp.trace.spine import Spine
from dbsp.zset.arrays import from_values, is_bytes, is_decimal
from dbsp.zset.batch import Batch
from dbsp.zset.order import sort_rows
from dbsp.zset.schema import INT64, Arrangement, Column, OrderBy, Schema

_GROUP = "__group__"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtremePart:
    """The least value of a group, or with `descending` the greatest; null where there is none."""

    name: str
    values: ValueForm
    descending: bool

    def __str__(self) -> str:
        """The aggregate."""
        return f"{self.name} = {'max' if self.descending else 'min'}({self.values.column.name})"

    def form(self) -> ValueForm:
        """Keys and value."""
        return self.values

    def names(self) -> tuple[str, ...]:
        """The aggregate's name."""
        return (self.name,)

    def arrangements(self) -> tuple[Arrangement, ...]:
        """The values of each group, in order."""
        order = (OrderBy(VALUE, descending=self.descending),)
        return (Arrangement(schema=self.values.schema, key=self.values.keys.names, order=order),)

    def step(self, state: State, groups: Batch, delta: Batch) -> tuple[Values, Values]:
        """The first value before and after the change."""
        spine = state.spine(0)
        old = new = self._first(spine, groups)
        if len(delta):
            new = self._first(spine.with_batch(delta), groups)
            state.append(0, delta)
        return Values(columns=(old,)), Values(columns=(new,))

    def _first(self, spine: Spine, groups: Batch) -> pa.Array:
        """The first value of each group."""
        if groups.key_hash is None:
            raise InternalError("groups are arranged")
        group, found = spine.heads(groups.key_hash, 1, groups)
        group, found = of_same_keys(groups, group, found)
        positive = np.flatnonzero(found.weight > 0)
        group, values = group[positive], found.column(VALUE).take(pa.array(positive))
        order = self._order(group, values)
        group = group[order]
        first = np.flatnonzero(np.concatenate([[True], group[1:] != group[:-1]])) if len(group) else order
        at = np.zeros(len(groups), np.int64)
        absent = np.ones(len(groups), np.bool_)
        at[group[first]], absent[group[first]] = order[first], False
        return pc.take(values, pa.array(at, mask=absent))

    def _order(self, group: Positions, values: pa.Array) -> Positions:
        """The exact order of values within each group; rows come in the order of their codes, which settles short types."""
        if not (is_bytes(values) or is_decimal(values)):
            return np.arange(len(group))
        schema = Schema((Column(_GROUP, INT64, nullable=False), Column(VALUE, values.type)))
        numbered = Batch.of(schema, (from_values(group, INT64), values))
        return sort_rows(numbered, (OrderBy(_GROUP), OrderBy(VALUE, descending=self.descending)))

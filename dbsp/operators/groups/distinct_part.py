"""Count distinct: how many different values a group has.

**Law** count_distinct is the count of distinct: a value enters when its weight becomes positive and leaves when it no
longer is; the number of values is then linear.

**State** per group the different values with their weights, found by (group, value) without reading the group; and per
group the count.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from dbsp.operators.groups.linear_part import as_queries, checked_sum
from dbsp.operators.groups.part import Values, group_of
from dbsp.operators.groups.row_form import RowForm
from dbsp.operators.operator import State
from dbsp.zset.arrays import from_values
from dbsp.zset.batch import Batch
from dbsp.zset.kernels import scatter_add
from dbsp.zset.schema import INT64, Arrangement


@dataclass(frozen=True, slots=True, kw_only=True)
class DistinctPart:
    """The number of different values that are not null."""

    name: str
    values: RowForm

    def __str__(self) -> str:
        """The aggregate."""
        return f"{self.name} = count_distinct({self.values.columns[0].name})"

    def form(self) -> RowForm:
        """Keys and value."""
        return self.values

    def names(self) -> tuple[str, ...]:
        """The aggregate's name."""
        return (self.name,)

    def arrangements(self) -> tuple[Arrangement, ...]:
        """The values of each group; the number of values of each group."""
        keys = self.values.keys
        return self.values.arrangement(), Arrangement(schema=keys, key=keys.names)

    def step(self, state: State, groups: Batch, delta: Batch) -> tuple[Values, Values]:
        """The number before and after the change."""
        old = state.spine(1).sums(as_queries(groups, self.arrangements()[1]))
        change = np.zeros((len(groups), 1), np.int64)
        if len(delta):
            weight = state.spine(0).sums(delta)
            entered = (checked_sum(weight, delta.weights) > 0).astype(np.int64) - (weight > 0)
            scatter_add(change, group_of(groups, delta), entered)
            state.append(0, delta)
            self._append_counts(state, groups, change)
        return self._count(old), self._count(checked_sum(old, change))

    def _append_counts(self, state: State, groups: Batch, change: npt.NDArray[np.int64]) -> None:
        """Keep the new numbers."""
        moved = change[:, 0] != 0
        if moved.any():
            counts = replace(groups, weights=change, row_hash=None, arrangement=self.arrangements()[1])
            state.append(1, counts.filter(moved))

    def _count(self, counts: npt.NDArray[np.int64]) -> Values:
        return Values(columns=(from_values(np.ascontiguousarray(counts[:, 0]), INT64),))

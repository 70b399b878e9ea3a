"""Count distinct: the number of different values in a group, perhaps several times under filters.

**Law** count_distinct is the count of distinct. A value enters when its weight becomes positive and leaves when it ceases to
be; the number of values is then linear.

**State** per group the different values, with their weights under each filter, found by (group, value) without reading the
group; and per group the counts. Counts of one column under several filters share these two traces.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from dbsp.operators.groups.distinct_form import DistinctForm
from dbsp.operators.groups.linear_part import as_queries, checked_sum
from dbsp.operators.groups.part import Values, group_of
from dbsp.operators.groups.row_form import RowForm
from dbsp.operators.operator import State
from dbsp.stored import stored
from dbsp.trace.spine import Spine
from dbsp.zset.arrays import from_values
from dbsp.zset.batch import Batch
from dbsp.zset.kernels import scatter_add
from dbsp.zset.schema import INT64, Arrangement


def entered(values: Spine, delta: Batch) -> npt.NDArray[np.int64]:
    """Return for each row of a change 1 if its weight becomes positive with it, -1 if it ceases to be, else 0."""
    weight = values.sums(delta)
    return (checked_sum(weight, delta.weights) > 0).astype(np.int64) - (weight > 0)


@stored("DistinctPart", "counts values filters")
@dataclass(frozen=True, slots=True, kw_only=True)
class DistinctPart:
    """The number of different values that are not null: one count per name, under the filter at the same index."""

    counts: tuple[str, ...]
    values: RowForm
    filters: tuple[str | None, ...] = (None,)

    def __str__(self) -> str:
        """Return the aggregates as text."""
        column = self.values.columns[0].name
        pairs = zip(self.counts, self.filters, strict=True)
        return ", ".join(f"{name} = count_distinct({column}{f' where {f}' if f else ''})" for name, f in pairs)

    def form(self) -> RowForm | DistinctForm:
        """Return the form of keys and value; a single count shares its form with other parts that read these rows."""
        if len(self.filters) == 1:
            return replace(self.values, where=self.filters[0])
        return DistinctForm(values=self.values, filters=self.filters)

    def names(self) -> tuple[str, ...]:
        """Return the aggregates' names."""
        return self.counts

    def arrangements(self) -> tuple[Arrangement, ...]:
        """Return the arrangements of the values of each group, and of the numbers of values of each group."""
        keys = self.values.keys
        return self.form().arrangement(), Arrangement(schema=keys, key=keys.names, weights=len(self.filters))

    def step(self, state: State, groups: Batch, delta: Batch) -> tuple[Values, Values]:
        """Return the numbers before and after the change."""
        old = state.spine(1).sums(as_queries(groups, self.arrangements()[1]))
        change = np.zeros((len(groups), len(self.filters)), np.int64)
        if len(delta):
            scatter_add(change, group_of(groups, delta), entered(state.spine(0), delta))
            state.append(0, delta)
            self._append_counts(state, groups, change)
        return self._count(old), self._count(checked_sum(old, change))

    def _append_counts(self, state: State, groups: Batch, change: npt.NDArray[np.int64]) -> None:
        """Append the changes of the counts to their trace, for the groups whose counts change."""
        moved: npt.NDArray[np.bool_] = np.logical_or.reduce(change != 0, axis=1)
        if moved.any():
            counts = groups.but(weights=change, row_hash=None, arrangement=self.arrangements()[1])
            state.append(1, counts.filter(moved))

    def _count(self, counts: npt.NDArray[np.int64]) -> Values:
        return Values(columns=tuple(from_values(np.ascontiguousarray(column), INT64) for column in counts.T))

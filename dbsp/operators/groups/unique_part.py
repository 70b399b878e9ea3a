"""A sum or a mean over the different values of a group, in which equal values count once.

**Law** the aggregate over distinct. A value enters when its weight becomes positive and leaves when it ceases to be. The
values that enter and leave are a change of rows like any other, from which another part computes the aggregate.
**State** per group the different values with their weights, and the state of the other part. **Cost** a look-up per changed
value, and the cost of the other part for the values that entered or left.
"""

from __future__ import annotations

from dataclasses import dataclass

from dbsp.operators.groups.distinct_part import entered
from dbsp.operators.groups.part import AggregatePart, PartState, Values
from dbsp.operators.groups.row_form import RowForm
from dbsp.operators.operator import State
from dbsp.stored import stored
from dbsp.zset.batch import Batch, arrange, no_rows_of
from dbsp.zset.schema import Arrangement


@stored("UniquePart", "values of")
@dataclass(frozen=True, slots=True, kw_only=True)
class UniquePart:
    """An aggregate over distinct values, such as `sum(DISTINCT x)`.

    `values` is the form of (group, value) rows. Each of them counts once, whatever its weight. `of` is the aggregate
    that is computed from these distinct rows.
    """

    values: RowForm
    of: AggregatePart

    def __str__(self) -> str:
        """Return the aggregate as text."""
        return f"{self.of} of different {self.values}"

    def form(self) -> RowForm:
        """Return the form of (group, value) rows."""
        return self.values

    def names(self) -> tuple[str, ...]:
        """Return the names of the output columns, which are those of `of`."""
        return self.of.names()

    def arrangements(self) -> tuple[Arrangement, ...]:
        """Return the arrangement of the values by group, then the arrangements of `of`."""
        return self.values.arrangement(), *self.of.arrangements()

    def step(self, state: State, groups: Batch, delta: Batch) -> tuple[Values, Values]:
        """Return the aggregates before and after the change; `of` gets only the values that appeared or disappeared."""
        moved = delta
        if len(delta):
            change = entered(state.spine(0), delta)
            state.append(0, delta)
            moved = delta.loose().with_weights(change).filter(change[:, 0] != 0)
        return self.of.step(PartState(state, 1), groups, self._formed(moved))

    def _formed(self, rows: Batch) -> Batch:
        """Return the rows in the form of `of`, arranged."""
        arrangement = self.of.arrangements()[0]
        if len(rows) == 0:
            return no_rows_of(arrangement)
        return arrange(self.of.form().of(rows), arrangement)

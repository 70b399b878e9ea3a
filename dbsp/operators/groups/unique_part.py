"""An aggregate over the different values of a group: a sum or a mean to which equal values are one.

**Law** the aggregate over distinct: a value enters when its weight becomes positive and leaves when it no longer is; what
entered and left is a change of rows like any other, and another part makes the aggregate of it.

**State** per group the different values with their weights, and what that part keeps. **Cost** a look-up per changed value,
and that part's for the values that entered or left.
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
    """`of` over the rows of `values`, each of them once; it reads these rows and no others."""

    values: RowForm
    of: AggregatePart

    def __str__(self) -> str:
        """The aggregate."""
        return f"{self.of} of different {self.values}"

    def form(self) -> RowForm:
        """Keys and value."""
        return self.values

    def names(self) -> tuple[str, ...]:
        """Those of the other part."""
        return self.of.names()

    def arrangements(self) -> tuple[Arrangement, ...]:
        """The values of each group; then what the other part keeps."""
        return self.values.arrangement(), *self.of.arrangements()

    def step(self, state: State, groups: Batch, delta: Batch) -> tuple[Values, Values]:
        """What the other part gives for the values that entered and left."""
        moved = delta
        if len(delta):
            change = entered(state.spine(0), delta)
            state.append(0, delta)
            moved = delta.loose().with_weights(change).filter(change[:, 0] != 0)
        return self.of.step(PartState(state, 1), groups, self._formed(moved))

    def _formed(self, rows: Batch) -> Batch:
        """The rows as the other part wants them."""
        arrangement = self.of.arrangements()[0]
        if len(rows) == 0:
            return no_rows_of(arrangement)
        return arrange(self.of.form().of(rows), arrangement)

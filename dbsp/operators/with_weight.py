"""With weight: a Z-set as a table, each different row once, its weight in a column.

**Law** a row of weight w becomes (row, w) once; its change is +(row, new) - (row, old), at the changed rows alone.

**State** one weight for every different row, keyed by the whole row.

**Cost** per changed row one look-up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from dbsp.operators.groups.linear_part import checked_sum
from dbsp.operators.monotone_bounds import Bound, MonotoneBounds
from dbsp.operators.operator import Operator, Shows, State, StepContext, Time
from dbsp.stored import stored
from dbsp.zset.arrays import from_values
from dbsp.zset.batch import Batch, arrange, concat
from dbsp.zset.schema import INT64, Arrangement, Schema


@stored("WithWeight", "input schema")
@dataclass(frozen=True, slots=True, kw_only=True)
class WithWeightOperator(Operator):
    """Rows of `input`, and last in `schema` the weight."""

    depends_on_time: ClassVar[Time] = Time.NOTHING
    input: Schema
    schema: Schema

    def __str__(self) -> str:
        """The column."""
        return f"with weight {self.schema.names[-1]}"

    def arrangements(self) -> tuple[Arrangement, ...]:
        """The rows."""
        return (Arrangement(schema=self.input, key=self.input.names),)

    def monotone_bounds(self, inputs: Sequence[MonotoneBounds]) -> MonotoneBounds:
        """Only rows that change change."""
        return inputs[0]

    def closing(self, inputs: Sequence[MonotoneBounds]) -> tuple[tuple[str, Bound] | None, ...]:
        """Rows below a bound of any column are never read again."""
        return (next(iter(inputs[0].items()), None),)

    def step(self, context: StepContext, state: State, inputs: tuple[Batch, ...]) -> Batch:  # noqa: ARG002 (protocol)
        """The changed rows as they were and as they are."""
        (arrangement,) = self.arrangements()
        if len(inputs[0]) == 0:
            return Batch.empty(self.schema)
        delta = arrange(inputs[0], arrangement)
        old = state.spine(0).sums(delta)
        state.append(0, delta)
        new = checked_sum(old, delta.weights)
        return concat([self._with(delta, old.reshape(-1), -1), self._with(delta, new.reshape(-1), 1)], self.schema)

    def shows(self) -> Shows | None:
        """Itself."""
        return self

    def shown(self, kept: Batch, error_policy: str) -> Batch:  # noqa: ARG002 (protocol)
        """Every row with its weight."""
        return self._with(kept, kept.weight, 1)

    def _with(self, rows: Batch, weight: npt.NDArray[np.int64], sign: int) -> Batch:
        """The rows that have a weight, with it."""
        there = np.flatnonzero(weight)
        columns = (*rows.take(there).columns, from_values(weight[there], INT64))
        return Batch(schema=self.schema, columns=columns, weights=np.full((len(there), 1), sign, np.int64))

"""With weight: a Z-set as a table that contains each distinct row once, with its weight in a column.

**Law** A row of weight w becomes (row, w) once. Its change is +(row, new) - (row, old), at the changed rows only.

**State** One weight for every distinct row, keyed by the whole row.

**Cost** One look-up per changed row.
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
    """Append the weight of each distinct row of `input` as the last column of `schema`."""

    depends_on_time: ClassVar[Time] = Time.NOTHING
    input: Schema
    schema: Schema

    def __str__(self) -> str:
        """Return the operator's name with the weight column."""
        return f"with weight {self.schema.names[-1]}"

    def arrangements(self) -> tuple[Arrangement, ...]:
        """Return the arrangement by row."""
        return (Arrangement(schema=self.input, key=self.input.names),)

    def monotone_bounds(self, inputs: Sequence[MonotoneBounds]) -> MonotoneBounds:
        """Return the input's bounds: an output row changes only with its input row."""
        return inputs[0]

    def closing(self, inputs: Sequence[MonotoneBounds]) -> tuple[tuple[str, Bound] | None, ...]:
        """Return a bounded column with its bound, below which stored rows are never read again."""
        return (next(iter(inputs[0].items()), None),)

    def step(self, context: StepContext, state: State, inputs: tuple[Batch, ...]) -> Batch:  # noqa: ARG002 (protocol)
        """Return the changed rows with their old weights, negated, and with their new weights."""
        (arrangement,) = self.arrangements()
        if len(inputs[0]) == 0:
            return Batch.empty(self.schema)
        delta = arrange(inputs[0], arrangement)
        old = state.spine(0).sums(delta)
        state.append(0, delta)
        new = checked_sum(old, delta.weights)
        return concat([self._with(delta, old.reshape(-1), -1), self._with(delta, new.reshape(-1), 1)], self.schema)

    def shows(self) -> Shows | None:
        """Return the operator itself: its trace determines its output."""
        return self

    def shown(self, kept: Batch, error_policy: str) -> Batch:  # noqa: ARG002 (protocol)
        """Return every stored row with its weight."""
        return self._with(kept, kept.weight, 1)

    def _with(self, rows: Batch, weight: npt.NDArray[np.int64], sign: int) -> Batch:
        """Return the rows with nonzero weight, with the weight as a column, each `sign` times."""
        there = np.flatnonzero(weight)
        columns = (*rows.take(there).columns, from_values(weight[there], INT64))
        return Batch(schema=self.schema, columns=columns, weights=np.full((len(there), 1), sign, np.int64))

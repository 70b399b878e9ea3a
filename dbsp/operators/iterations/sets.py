"""Distinct and difference inside a recursion: set membership as a function of the iteration.

**Law** Let w(s, r) be the weights of a row, integrated over the steps up to s and the iterations up to r.
Let m be the membership function of the operation into {0, 1}. The change at (s, r) is
    [m w(s, r) - m w(s - 1, r)] - [m w(s, r - 1) - m w(s - 1, r - 1)].
The change is zero except at iterations that occur in the row's history or in its new changes.

**State** One weight per side, for each row and each iteration in which the row changed.

**Cost** Per changed row the iterations of its history.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from dbsp.errors import InternalError
from dbsp.operators.iterations.histories import ITERATION, differentiated, histories, integrated
from dbsp.operators.operator import Operator, State, StepContext, Time
from dbsp.operators.set_operation import on_side
from dbsp.stored import stored
from dbsp.zset.batch import Batch, arrange, concat
from dbsp.zset.schema import Arrangement, Schema

Weights = npt.NDArray[np.int64]
_SIDES = {"distinct": 1, "difference": 2}


@stored("RoundSet", "kind schema")
@dataclass(frozen=True, slots=True, kw_only=True)
class SetOverIterations(Operator):
    """Compute `distinct` of one input or `difference` of two; the last column of `schema` is the iteration."""

    depends_on_time: ClassVar[Time] = Time.NOTHING
    kind: str
    schema: Schema

    def __str__(self) -> str:
        """Return the operation as text."""
        return f"{self.kind} by round"

    @property
    def row(self) -> tuple[str, ...]:
        """Return the columns of the row without the iteration."""
        return tuple(name for name in self.schema.names if name != ITERATION)

    def arrangements(self) -> tuple[Arrangement, ...]:
        """Return the arrangement by row, with one weight per side."""
        return (Arrangement(schema=self.schema, key=self.row, weights=_SIDES[self.kind]),)

    def step(self, context: StepContext, state: State, inputs: tuple[Batch, ...]) -> Batch:  # noqa: ARG002 (protocol)
        """Return the rows that enter or leave the output, dated with the iteration."""
        (arrangement,) = self.arrangements()
        sides = [on_side(batch, self.schema, side, len(inputs)) for side, batch in enumerate(inputs) if len(batch)]
        delta = arrange(concat(sides, self.schema), arrangement) if sides else Batch.empty(self.schema)
        if len(delta) == 0:
            return Batch.empty(self.schema)
        found = histories(state.spine(0), delta, self.row)
        state.append(0, delta)
        old = self._member(integrated(found, found.before))
        new = self._member(integrated(found, found.before + found.change))
        change = differentiated(new - old, found.begins)
        moved = np.flatnonzero(change)
        rows = found.rows.take(found.last_rows[moved])
        return Batch(schema=self.schema, columns=rows.columns, weights=change[moved].reshape(-1, 1))

    def _member(self, weights: Weights) -> Weights:
        """Return 1 for each row that is in the output, given its weights per side, and 0 for the others."""
        match self.kind:
            case "distinct":
                return (weights[:, 0] > 0).astype(np.int64)
            case "difference":
                return ((weights[:, 0] > 0) & (weights[:, 1] <= 0)).astype(np.int64)
            case _:
                raise InternalError(f"no such set operation: kind={self.kind}")

"""Distinct and difference inside a recursion: the answer, as a function of the round, changes at the rounds of its history.

**Law** with w(s, r) the weights of a row integrated over the steps up to s and the rounds up to r, and m the membership
function of the operation into {0, 1}, the change at (s, r) is
    [m w(s, r) - m w(s - 1, r)] - [m w(s, r - 1) - m w(s - 1, r - 1)],
which is zero except at rounds where the row's history, or its change, has something.

**State** per row and round in which it changed one weight per side.

**Cost** per changed row the rounds of its history.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from dbsp.errors import InternalError
from dbsp.operators.iterations.histories import ITERATION, differentiated, histories, integrated
from dbsp.operators.operator import Operator, State, StepContext, Time
from dbsp.stored import stored
from dbsp.zset.batch import Batch, arrange, concat
from dbsp.zset.schema import Arrangement, Schema

Weights = npt.NDArray[np.int64]
_SIDES = {"distinct": 1, "difference": 2}


@stored("RoundSet", "kind schema")
@dataclass(frozen=True, slots=True, kw_only=True)
class SetOverIterations(Operator):
    """`distinct` of one side, or `difference` of two; `schema` ends with the round."""

    depends_on_time: ClassVar[Time] = Time.NOTHING
    kind: str
    schema: Schema

    def __str__(self) -> str:
        """Which one."""
        return f"{self.kind} by round"

    @property
    def row(self) -> tuple[str, ...]:
        """The columns of the row itself."""
        return tuple(name for name in self.schema.names if name != ITERATION)

    def arrangements(self) -> tuple[Arrangement, ...]:
        """The rows with their rounds, found by the row."""
        return (Arrangement(schema=self.schema, key=self.row, weights=_SIDES[self.kind]),)

    def step(self, context: StepContext, state: State, inputs: tuple[Batch, ...]) -> Batch:  # noqa: ARG002 (protocol)
        """The rows that entered the answer at a round and those that left it."""
        (arrangement,) = self.arrangements()
        sides = [_on_side(batch, self.schema, side, len(inputs)) for side, batch in enumerate(inputs) if len(batch)]
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
        """1 for what is in the answer, 0 for the rest."""
        match self.kind:
            case "distinct":
                return (weights[:, 0] > 0).astype(np.int64)
            case "difference":
                return ((weights[:, 0] > 0) & (weights[:, 1] <= 0)).astype(np.int64)
            case _:
                raise InternalError(f"no such set operation: kind={self.kind}")


def _on_side(batch: Batch, schema: Schema, side: int, sides: int) -> Batch:
    """The rows with their weight in the place of one side."""
    weights = np.zeros((len(batch), sides), np.int64)
    weights[:, side] = batch.weight
    return Batch(schema=schema, columns=batch.columns, weights=weights)

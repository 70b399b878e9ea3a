"""Operations on sets: what is in the answer depends, row by row, on how often the row is on each side.

**Law** with the weights (a, b, …) of a row on all sides and a pointwise function f into the whole numbers from 0, the answer
holds the row f(a, b, …) times; its change is f(new) - f(old), at the changed rows alone.

**State** one weight per side for every different row, keyed by the whole row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from dbsp.errors import InternalError
from dbsp.operators.groups.linear_part import checked_sum
from dbsp.operators.monotone_bounds import Bound, MonotoneBounds, common
from dbsp.operators.operator import Operator, Shows, State, StepContext, Time
from dbsp.stored import stored
from dbsp.zset.batch import Batch, arrange, concat
from dbsp.zset.schema import Arrangement, Schema

Weights = npt.NDArray[np.int64]


@stored("SetOperation", "kind schema")
@dataclass(frozen=True, slots=True, kw_only=True)
class SetOperation(Operator):
    """`distinct` of one side; of two sides `difference` (SQL's EXCEPT), `intersect`, and `difference all`, `intersect all`."""

    depends_on_time: ClassVar[Time] = Time.NOTHING
    kind: str
    schema: Schema

    def __str__(self) -> str:
        """Which one."""
        return self.kind

    @property
    def sides(self) -> int:
        """How many inputs there are."""
        return 1 if self.kind == "distinct" else 2

    def arrangements(self) -> tuple[Arrangement, ...]:
        """The rows with their weight on each side."""
        return (Arrangement(schema=self.schema, key=self.schema.names, weights=self.sides),)

    def monotone_bounds(self, inputs: Sequence[MonotoneBounds]) -> MonotoneBounds:
        """Only rows that some side changes change."""
        return common(inputs)

    def closing(self, inputs: Sequence[MonotoneBounds]) -> tuple[tuple[str, Bound] | None, ...]:
        """Rows below a bound of any column are never read again."""
        return (next(iter(common(inputs).items()), None),)

    def step(self, context: StepContext, state: State, inputs: tuple[Batch, ...]) -> Batch:  # noqa: ARG002 (protocol)
        """The rows that entered the answer and those that left it."""
        (arrangement,) = self.arrangements()
        sides = [_on_side(batch, self.schema, side, self.sides) for side, batch in enumerate(inputs) if len(batch)]
        if not sides:
            return Batch.empty(self.schema)
        delta = arrange(concat(sides, self.schema), arrangement)
        if len(delta) == 0:
            return Batch.empty(self.schema)
        old = state.spine(0).sums(delta)
        state.append(0, delta)
        change = self._member(checked_sum(old, delta.weights)) - self._member(old)
        moved = np.flatnonzero(change)
        return Batch(schema=self.schema, columns=delta.take(moved).columns, weights=change[moved].reshape(-1, 1))

    def shows(self) -> Shows | None:
        """Itself."""
        return self

    def shown(self, kept: Batch, error_policy: str) -> Batch:  # noqa: ARG002 (protocol)
        """The rows in the answer."""
        member = self._member(kept.weights)
        rows = np.flatnonzero(member)
        return Batch(schema=self.schema, columns=kept.take(rows).columns, weights=member[rows].reshape(-1, 1))

    def _member(self, weights: Weights) -> Weights:
        """How often each row is in the answer."""
        match self.kind:
            case "distinct":
                return (weights[:, 0] > 0).astype(np.int64)
            case "difference":
                return ((weights[:, 0] > 0) & (weights[:, 1] <= 0)).astype(np.int64)
            case "intersect":
                return np.asarray(weights.min(axis=1) > 0).astype(np.int64)
            case "intersect all":
                return np.asarray(np.maximum(weights.min(axis=1), 0))
            case "difference all":
                there = np.maximum(weights, 0)
                return np.asarray(np.maximum(there[:, 0] - there[:, 1], 0))
            case _:
                raise InternalError(f"no such set operation: kind={self.kind}")


def _on_side(batch: Batch, schema: Schema, side: int, sides: int) -> Batch:
    """The rows with their weight in the place of one side."""
    weights = np.zeros((len(batch), sides), np.int64)
    weights[:, side] = batch.weight
    return Batch(schema=schema, columns=batch.columns, weights=weights)

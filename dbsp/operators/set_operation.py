"""Set operations: how often a row is in the output depends on the row's weight on each side.

**Law** Let a, b, … be the weights of a row on all sides, and f a function into the non-negative integers.
The output contains the row f(a, b, …) times. Its change is f(new) - f(old), at the changed rows only.

**State** One weight per side for every distinct row, keyed by the whole row.
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
    """Compute `distinct` of one input, or a set operation of two.

    The operations of two inputs are `difference` (SQL's EXCEPT), `intersect`, `difference all` and `intersect all`.
    """

    depends_on_time: ClassVar[Time] = Time.NOTHING
    kind: str
    schema: Schema

    def __str__(self) -> str:
        """Return the operation as text."""
        return self.kind

    @property
    def sides(self) -> int:
        """Return the number of inputs."""
        return 1 if self.kind == "distinct" else 2

    def arrangements(self) -> tuple[Arrangement, ...]:
        """Return the arrangement by row, with one weight per side."""
        return (Arrangement(schema=self.schema, key=self.schema.names, weights=self.sides),)

    def monotone_bounds(self, inputs: Sequence[MonotoneBounds]) -> MonotoneBounds:
        """Return the least common bounds of the inputs: an output row changes only with an equal input row."""
        return common(inputs)

    def closing(self, inputs: Sequence[MonotoneBounds]) -> tuple[tuple[str, Bound] | None, ...]:
        """Return a bounded column with its bound, below which stored rows are never read again."""
        return (next(iter(common(inputs).items()), None),)

    def step(self, context: StepContext, state: State, inputs: tuple[Batch, ...]) -> Batch:  # noqa: ARG002 (protocol)
        """Return the rows that enter or leave the output."""
        (arrangement,) = self.arrangements()
        sides = [on_side(batch, self.schema, side, self.sides) for side, batch in enumerate(inputs) if len(batch)]
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
        """Return the operator itself: its trace determines its output."""
        return self

    def shown(self, kept: Batch, error_policy: str) -> Batch:  # noqa: ARG002 (protocol)
        """Return the output rows, computed from the stored weights."""
        member = self._member(kept.weights)
        rows = np.flatnonzero(member)
        return Batch(schema=self.schema, columns=kept.take(rows).columns, weights=member[rows].reshape(-1, 1))

    def _member(self, weights: Weights) -> Weights:
        """Return how often each row is in the output, given its weights per side."""
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


def on_side(batch: Batch, schema: Schema, side: int, sides: int) -> Batch:
    """Return the rows with `sides` weights each: the row's weight at index `side`, zero elsewhere."""
    weights = np.zeros((len(batch), sides), np.int64)
    weights[:, side] = batch.weight
    return Batch(schema=schema, columns=batch.columns, weights=weights)

"""Union: the sum of Z-sets, which is SQL's UNION ALL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from dbsp.operators.monotone_bounds import MonotoneBounds, common
from dbsp.operators.operator import Operator, State, StepContext, Time
from dbsp.stored import stored
from dbsp.zset.batch import Batch, concat
from dbsp.zset.schema import Schema


@stored("Union", "schema")
@dataclass(frozen=True, slots=True, kw_only=True)
class UnionOperator(Operator):
    """Add the inputs.

    **Law** D(a + b) = Da + Db: linear, so the change of the sum is the sum of the changes.
    """

    depends_on_time: ClassVar[Time] = Time.NOTHING
    schema: Schema

    def __str__(self) -> str:
        """Return the operator's name."""
        return "union"

    def monotone_bounds(self, inputs: Sequence[MonotoneBounds]) -> MonotoneBounds:
        """Return the lowest of the inputs' bounds, for columns that have a bound on every input."""
        return common(inputs)

    def step(self, context: StepContext, state: State, inputs: tuple[Batch, ...]) -> Batch:  # noqa: ARG002 (protocol)
        """Return all changed rows of all inputs."""
        whole = concat(inputs, self.schema)
        return Batch(schema=self.schema, columns=whole.held, weights=whole.weights)

"""Union: the sum of Z-sets, SQL's UNION ALL."""

from __future__ import annotations

from dataclasses import dataclass

from dbsp.operators.operator import State, StepContext
from dbsp.zset.batch import Batch, concat
from dbsp.zset.schema import Arrangement, Schema


@dataclass(frozen=True, slots=True, kw_only=True)
class Union:
    """Adds its inputs.

    **Law** D(a + b) = Da + Db: linear, so the change of the sum is the sum of the changes.
    """

    schema: Schema

    def arrangements(self) -> tuple[Arrangement, ...]:
        """None."""
        return ()

    def step(self, context: StepContext, state: State, inputs: tuple[Batch, ...]) -> Batch:  # noqa: ARG002 (protocol)
        """All rows of all inputs."""
        whole = concat(inputs, self.schema)
        return Batch(schema=self.schema, columns=whole.columns, weights=whole.weights)

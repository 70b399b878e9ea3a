"""Nothing: no row and no column, in every step."""

from __future__ import annotations

from dataclasses import dataclass

from dbsp.operators.operator import Operator, State, StepContext
from dbsp.stored import stored
from dbsp.zset.batch import Batch
from dbsp.zset.schema import NO_COLUMNS


@stored("Nothing")
@dataclass(frozen=True, slots=True)
class Nothing(Operator):
    """Gives no rows."""

    def __str__(self) -> str:
        """As it is."""
        return "nothing"

    def step(self, context: StepContext, state: State, inputs: tuple[Batch, ...]) -> Batch:  # noqa: ARG002 (protocol)
        """None."""
        return Batch.empty(NO_COLUMNS)

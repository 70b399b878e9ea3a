"""The operator without rows and columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dbsp.operators.operator import Operator, State, StepContext, Time
from dbsp.stored import stored
from dbsp.zset.batch import Batch
from dbsp.zset.schema import NO_COLUMNS


@stored("Nothing")
@dataclass(frozen=True, slots=True)
class NothingOperator(Operator):
    """Emit no rows in any step."""

    depends_on_time: ClassVar[Time] = Time.NOTHING

    def __str__(self) -> str:
        """Return the operator's name."""
        return "nothing"

    def step(self, context: StepContext, state: State, inputs: tuple[Batch, ...]) -> Batch:  # noqa: ARG002 (protocol)
        """Return an empty batch."""
        return self.whole_past()

    def whole_past(self) -> Batch:
        """Return an empty batch: the operator never emits a row."""
        return Batch.empty(NO_COLUMNS)

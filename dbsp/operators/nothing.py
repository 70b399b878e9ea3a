"""Nothing: no row and no column, in every step."""

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
    """Gives no rows."""

    depends_on_time: ClassVar[Time] = Time.NOTHING

    def __str__(self) -> str:
        """As it is."""
        return "nothing"

    def step(self, context: StepContext, state: State, inputs: tuple[Batch, ...]) -> Batch:  # noqa: ARG002 (protocol)
        """None."""
        return self.whole_past()

    def whole_past(self) -> Batch:
        """Return no row."""
        return Batch.empty(NO_COLUMNS)

"""The receiving end of an exchange: the executor gives it what arrived, ordered by sender."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dbsp.operators.operator import Operator, SignatureParts, State, StepContext, Time
from dbsp.stored import stored
from dbsp.zset.batch import Batch


@stored("Receive")
@dataclass(frozen=True, slots=True)
class Receive(Operator):
    """Hands on the rows that this worker owns."""

    depends_on_time: ClassVar[Time] = Time.NOTHING

    def __str__(self) -> str:
        """As it is."""
        return "receive"

    def step(self, context: StepContext, state: State, inputs: tuple[Batch, ...]) -> Batch:  # noqa: ARG002 (protocol)
        """What arrived."""
        return inputs[0]

    def hands_on_rows(self) -> bool:
        """Return True: the rows are those that were sent."""
        return True

    def signature(self, given: SignatureParts) -> str:
        """Return the signature of the rows that were sent."""
        return given.received()

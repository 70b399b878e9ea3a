"""Receiving end of an exchange: the executor passes the received rows, ordered by sender."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dbsp.operators.operator import Operator, SignatureParts, State, StepContext, Time
from dbsp.stored import stored
from dbsp.zset.batch import Batch


@stored("Receive")
@dataclass(frozen=True, slots=True)
class Receive(Operator):
    """Forward the received rows, which this worker owns."""

    depends_on_time: ClassVar[Time] = Time.NOTHING

    def __str__(self) -> str:
        """Return the operator's name."""
        return "receive"

    def step(self, context: StepContext, state: State, inputs: tuple[Batch, ...]) -> Batch:  # noqa: ARG002 (protocol)
        """Return the rows received in this step."""
        return inputs[0]

    def hands_on_rows(self) -> bool:
        """Return True: the output rows are the sent rows."""
        return True

    def signature(self, given: SignatureParts) -> str:
        """Return the signature of the rows that were sent."""
        return given.received()

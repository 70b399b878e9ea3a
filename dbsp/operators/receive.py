"""The receiving end of an exchange: the executor gives it what arrived, ordered by sender."""

from __future__ import annotations

from dataclasses import dataclass

from dbsp.operators.operator import Operator, State, StepContext
from dbsp.stored import stored
from dbsp.zset.batch import Batch


@stored("Receive")
@dataclass(frozen=True, slots=True)
class Receive(Operator):
    """Hands on the rows that this worker owns."""

    def __str__(self) -> str:
        """As it is."""
        return "receive"

    def step(self, context: StepContext, state: State, inputs: tuple[Batch, ...]) -> Batch:  # noqa: ARG002 (protocol)
        """What arrived."""
        return inputs[0]

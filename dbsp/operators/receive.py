"""The receiving end of an exchange: the executor gives it what arrived, ordered by sender."""

from __future__ import annotations

from dataclasses import dataclass

from dbsp.operators.operator import State, StepContext
from dbsp.zset.batch import Batch
from dbsp.zset.schema import Arrangement


@dataclass(frozen=True, slots=True)
class Receive:
    """Hands on the rows that this worker owns."""

    def arrangements(self) -> tuple[Arrangement, ...]:
        """None."""
        return ()

    def step(self, context: StepContext, state: State, inputs: tuple[Batch, ...]) -> Batch:  # noqa: ARG002 (protocol)
        """What arrived."""
        return inputs[0]

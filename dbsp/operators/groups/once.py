"""Once: a row without columns, in the first step of all; so that the one group of an aggregate without keys exists.

Every worker gives one, the exchange brings them to the owner of the empty key, and however many arrive they mean the same. A
worker that joins later gives none: the group is there already, in the trace that was moved to its owner.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dbsp.operators.operator import Operator, State, StepContext
from dbsp.stored import stored
from dbsp.zset.batch import Batch
from dbsp.zset.schema import NO_COLUMNS


@stored("Once")
@dataclass(frozen=True, slots=True)
class Once(Operator):
    """One row without columns in step 0, none later."""

    def __str__(self) -> str:
        """As it is."""
        return "once"

    def step(self, context: StepContext, state: State, inputs: tuple[Batch, ...]) -> Batch:  # noqa: ARG002 (protocol)
        """The row."""
        rows = 1 if context.step == 0 else 0
        return Batch(schema=NO_COLUMNS, columns=(), weights=np.ones((rows, 1), np.int64))

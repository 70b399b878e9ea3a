"""Once: a row without columns, in the first step of all; so that the one group of an aggregate without keys exists.

Every worker gives one, the exchange brings them to the owner of the empty key, and however many arrive they mean the same. A
worker that joins later gives none: the group is there already, in the trace that was moved to its owner.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dbsp.operators.operator import Operator, State, StepContext, Time
from dbsp.stored import stored
from dbsp.zset.batch import Batch
from dbsp.zset.schema import NO_COLUMNS


@stored("Once")
@dataclass(frozen=True, slots=True)
class Once(Operator):
    """One row without columns in step 0, none later."""

    depends_on_time: ClassVar[Time] = Time.STEPS

    def __str__(self) -> str:
        """As it is."""
        return "once"

    def step(self, context: StepContext, state: State, inputs: tuple[Batch, ...]) -> Batch:  # noqa: ARG002 (protocol)
        """The row."""
        return self.whole_past() if context.step == 0 else Batch.empty(NO_COLUMNS)

    def whole_past(self) -> Batch:
        """Return the row."""
        return Batch(schema=NO_COLUMNS, columns=(), weights=np.ones((1, 1), np.int64))

"""Once: a row without columns in step 0, so that the one group of an aggregate without keys exists.

Every worker emits such a row, and the exchange sends the rows to the owner of the empty key. One row or several have the same
effect. A worker that joins later emits no row, because the group already exists in the trace that was moved to its owner.
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
    """Emit one row without columns in step 0, and none later."""

    depends_on_time: ClassVar[Time] = Time.STEPS

    def __str__(self) -> str:
        """Return the operator's name."""
        return "once"

    def step(self, context: StepContext, state: State, inputs: tuple[Batch, ...]) -> Batch:  # noqa: ARG002 (protocol)
        """Return the row in step 0, and an empty batch in later steps."""
        return self.whole_past() if context.step == 0 else Batch.empty(NO_COLUMNS)

    def whole_past(self) -> Batch:
        """Return the row of step 0."""
        return Batch(schema=NO_COLUMNS, columns=(), weights=np.ones((1, 1), np.int64))

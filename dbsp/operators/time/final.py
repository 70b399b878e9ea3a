"""Final: hold rows back until no later change can affect them.

**Law** A row is emitted in the step whose waterline puts it below the bound of its column. Its weight is the sum of all changes
up to then. No emitted row is ever retracted. A row whose column is null is never emitted.

**State** The rows held back, sorted by the column; emitted rows are dropped gradually.

**Cost** One look-up of a time range; rows outside the range are not read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dbsp.operators.monotone_bounds import Bound, code_of
from dbsp.operators.operator import Operator, State, StepContext, Time
from dbsp.operators.slots import SLOT, slot_hashes
from dbsp.stored import stored
from dbsp.trace.retention import RetentionBound
from dbsp.zset.batch import Batch, arrange, concat, consolidate
from dbsp.zset.order import order_codes
from dbsp.zset.schema import Arrangement, OrderBy, Schema


@stored("Final", "input column bound schema")
@dataclass(frozen=True, slots=True, kw_only=True)
class FinalOperator(Operator):
    """Emit the rows whose `column` is below the `bound` of the waterlines."""

    depends_on_time: ClassVar[Time] = Time.WATERLINES
    input: Schema
    column: str
    bound: Bound
    schema: Schema

    def __str__(self) -> str:
        """Return the operator's name with the column."""
        return f"final by {self.column}"

    def arrangements(self) -> tuple[Arrangement, ...]:
        """Return the arrangement of the held rows by slot and column."""
        return (Arrangement(schema=self.input, key=(SLOT,), order=(OrderBy(self.column),)),)

    def step(self, context: StepContext, state: State, inputs: tuple[Batch, ...]) -> Batch:
        """Return the rows that became final in this step."""
        (arrangement,) = self.arrangements()
        delta = arrange(inputs[0], arrangement)
        now = code_of(self.bound, {line.node: line.now_us for line in context.waterlines})
        if now is None:
            if len(delta):
                state.append(0, delta)
            return Batch.empty(self.schema)
        passed = order_codes(delta.column(self.column), OrderBy(self.column)) < np.uint64(now)
        spine = state.spine(0)
        made = [delta.filter(passed).loose()]
        if spine.rows:
            before = {line.node: line.before_us for line in context.waterlines if line.before_us is not None}
            hashes = slot_hashes()
            first = np.full(len(hashes), code_of(self.bound, before) or 0, np.uint64)
            made.append(spine.ranges(hashes, first, np.full(len(hashes), max(now - 1, 0), np.uint64))[1].loose())
        if spine.rows or len(delta):
            state.append(0, delta.filter(~passed), RetentionBound(column=self.column, code=now))
        return consolidate(concat(made, self.input).project(self.schema.names))

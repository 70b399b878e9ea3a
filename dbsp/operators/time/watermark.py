"""Watermark: drop rows that are later than allowed, and bound how late the rows of later steps may be.

**Law** A row passes if its time is not below the waterline of the step. The waterline is a latest time minus the lateness.
For a table, the waterline follows the latest time of each input partition, read at the source (`EventTime`).
For any other stream, the latest time is the latest that any worker saw at this node up to the previous step.
A row with a null time is never late. A late row is a dead letter under every error policy. The late retraction of a row that
arrived in time is a dead letter too.

**State** None: the waterline is in the step's record.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import pyarrow.compute as pc

from dbsp.expr.type_names import schema_name
from dbsp.operators.failures import payload_of
from dbsp.operators.monotone_bounds import MonotoneBounds, watermark_bound
from dbsp.operators.operator import Operator, SignatureParts, State, StepContext, Time, WatermarkFacts
from dbsp.operators.time.event_time import EventTime
from dbsp.steps.timing import LATE, WATERLINE
from dbsp.stored import stored
from dbsp.zset.batch import Batch, consolidate
from dbsp.zset.schema import INT64, Schema


@stored("Watermark", "schema column lateness_us node pushed")
@dataclass(frozen=True, slots=True, kw_only=True)
class WatermarkOperator(Operator):
    """Drop late rows, so that the waterline bounds `column` from below; `node` is the operator's own number.

    Rows are consolidated first, unless they are `pushed`. `event_time` reads the time at the source of a table; it is None on any
    other stream. It follows from the input, and is not stored.
    """

    depends_on_time: ClassVar[Time] = Time.WATERLINES
    schema: Schema
    column: str
    lateness_us: int
    node: int
    pushed: bool
    event_time: EventTime | None = field(default=None, compare=False)

    def __str__(self) -> str:
        """Return the column, the lateness and, for a table, the table's name."""
        followed = "" if self.event_time is None else f" per partition of {self.event_time.table}"
        return f"watermark {self.column} lateness={self.lateness_us}us{followed}"

    def watermark(self) -> WatermarkFacts:
        """Return the column and the event time, if there is one."""
        return WatermarkFacts(column=self.column, time=self.event_time)

    def monotone_bounds(self, inputs: Sequence[MonotoneBounds]) -> MonotoneBounds:
        """Return the input's bounds, with the waterline as the bound of the column."""
        return {**inputs[0], self.column: watermark_bound(self.node, self.schema[self.column].type)}

    def signature(self, given: SignatureParts) -> str:
        """Return a signature without the number of the node, which depends on the rest of the circuit."""
        return given.whole(self, f"watermark {self.column} {self.lateness_us} {self.pushed} {schema_name(self.schema)}")

    def step(self, context: StepContext, state: State, inputs: tuple[Batch, ...]) -> Batch:  # noqa: ARG002 (protocol)
        """Return the rows that are not late, and report the others; signal a new waterline unless `event_time` does."""
        batch = inputs[0] if self.pushed else consolidate(inputs[0])
        if len(batch) == 0:
            return batch
        times = batch.column(self.column)
        at = np.asarray(times.cast(INT64).fill_null(0))
        valid = np.asarray(pc.is_valid(times))
        line = context.waterline(self.node)
        late = valid & (at < line.now_us) if line is not None else np.zeros(len(batch), np.bool_)
        if line is not None and late.any():
            self._report(context, batch.take(np.flatnonzero(late)), line.now_us)
        seen = at[valid & ~late & (batch.weight > 0)]
        if self.event_time is None and len(seen):
            context.signal(self.node, WATERLINE, int(seen.max()) - self.lateness_us)
        return batch.filter(~late) if late.any() else batch

    def _report(self, context: StepContext, late: Batch, line_us: int) -> None:
        """Report the late rows as dead letters."""
        line = np.datetime64(line_us, "us")
        reason = f"{LATE}{self.column} is below the waterline {line}"
        names = late.schema.names
        rows = zip(*(column.to_pylist() for column in late.columns), strict=True)
        for values, weight in zip(rows, late.weight.tolist(), strict=True):
            context.late(payload_of(dict(zip(names, values, strict=True))), reason, weight)

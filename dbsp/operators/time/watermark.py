"""Watermark: rows later than allowed leave the stream, and the rest bound how late a row may be in the steps to come.

**Law** a row passes if its time is not below the waterline of the step. That of a table follows the latest time of each input
partition, which is taken at the source (`EventTime`); that of any other stream the latest time that any worker saw here up to the
step before; both minus the lateness. A row whose time is null is never late. A late row is a dead letter under every error
policy, and so is the retraction of a row that came in time, if it comes late.

**State** none: the waterline is in the step's record.
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
from dbsp.operators.operator import Operator, SignatureParts, State, StepContext, Time
from dbsp.operators.time.event_time import EventTime
from dbsp.steps.timing import LATE, WATERLINE
from dbsp.stored import stored
from dbsp.zset.batch import Batch, consolidate
from dbsp.zset.schema import INT64, Schema


@stored("Watermark", "schema column lateness_us node pushed")
@dataclass(frozen=True, slots=True, kw_only=True)
class WatermarkOperator(Operator):
    """Bounds `column` from below; `node` is its own number. Rows are added up first, unless they come as they were pushed.

    `event_time` reads the time at the source of a table; None on any other stream. It follows from the input, and is not stored.
    """

    depends_on_time: ClassVar[Time] = Time.WATERLINES
    schema: Schema
    column: str
    lateness_us: int
    node: int
    pushed: bool
    event_time: EventTime | None = field(default=None, compare=False)

    def __str__(self) -> str:
        """The column and the lateness."""
        followed = "" if self.event_time is None else f" per partition of {self.event_time.table}"
        return f"watermark {self.column} lateness={self.lateness_us}us{followed}"

    def monotone_bounds(self, inputs: Sequence[MonotoneBounds]) -> MonotoneBounds:
        """The waterline bounds the column, beside what the input has."""
        return {**inputs[0], self.column: watermark_bound(self.node, self.schema[self.column].type)}

    def signature(self, given: SignatureParts) -> str:
        """Return a signature without the number of the node, which depends on the rest of the circuit."""
        return given.whole(self, f"watermark {self.column} {self.lateness_us} {self.pushed} {schema_name(self.schema)}")

    def step(self, context: StepContext, state: State, inputs: tuple[Batch, ...]) -> Batch:  # noqa: ARG002 (protocol)
        """The rows that are in time."""
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
        """Note the late rows."""
        line = np.datetime64(line_us, "us")
        reason = f"{LATE}{self.column} is below the waterline {line}"
        names = late.schema.names
        rows = zip(*(column.to_pylist() for column in late.columns), strict=True)
        for values, weight in zip(rows, late.weight.tolist(), strict=True):
            context.late(payload_of(dict(zip(names, values, strict=True))), reason, weight)

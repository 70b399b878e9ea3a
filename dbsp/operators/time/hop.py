"""Hopping windows: emit each changed row once for every window that contains its time.

**Law** Linear. A window [start, start + size) begins at the offset plus a whole number of slides.
A row with a null time is in one window, whose bounds are null. If size < slide, a row may be in no window.

**Cost** size / slide output rows per input row.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dbsp.expr.arithmetic import ADD, SUBTRACT
from dbsp.expr.dates import BUCKET
from dbsp.expr.expression import Call, ColumnRef, Literal
from dbsp.operators.monotone_bounds import MonotoneBounds, bound_of
from dbsp.operators.operator import Operator, State, StepContext, Time
from dbsp.operators.time.far import windowed
from dbsp.stored import stored
from dbsp.zset.batch import Batch
from dbsp.zset.schema import DURATION, INT64, Schema


@stored("Hop", "time size_us slide_us offset_us start end schema")
@dataclass(frozen=True, slots=True, kw_only=True)
class HopOperator(Operator):
    """Repeat each row for its windows, and add the window bounds as columns `start` and `end`."""

    depends_on_time: ClassVar[Time] = Time.NOTHING
    time: str
    size_us: int
    slide_us: int
    offset_us: int
    start: str
    end: str
    schema: Schema

    def __str__(self) -> str:
        """Return the size, slide and offset of the windows."""
        return f"hop {self.time} size={self.size_us}us slide={self.slide_us}us offset={self.offset_us}us"

    def monotone_bounds(self, inputs: Sequence[MonotoneBounds]) -> MonotoneBounds:
        """Return the input's bounds, and those of the window columns.

        The bound of `start` is the first window start after the bound of the time minus the size; `end` is one size later.
        """
        bounds = inputs[0].get(self.time)
        if bounds is None:
            return inputs[0]
        slide, size = (datetime.timedelta(microseconds=span) for span in (self.slide_us, self.size_us))
        offset = datetime.timedelta(microseconds=self.offset_us)
        before = Call(SUBTRACT, (ColumnRef(self.time), Literal(size, DURATION)))
        start = Call(ADD, (Call(BUCKET, (before,), (slide, offset)), Literal(slide, DURATION)))
        end = Call(ADD, (start, Literal(size, DURATION)))
        made = {self.start: bound_of(start, inputs[0]), self.end: bound_of(end, inputs[0])}
        return {**inputs[0], **{name: bound for name, bound in made.items() if bound is not None}}

    def step(self, context: StepContext, state: State, inputs: tuple[Batch, ...]) -> Batch:  # noqa: ARG002 (protocol)
        """Return each row once per window; report rows whose windows exceed the calendar."""
        (batch,) = inputs
        if len(batch) == 0:
            return Batch.empty(self.schema)
        before, last = self._numbers(batch)
        valid = np.asarray(pc.is_valid(batch.column(self.time)))
        ends = (before + 1) * self.slide_us + self.offset_us, last * self.slide_us + self.offset_us + self.size_us
        rows, valid = windowed(context, batch, valid, *ends, nulls=self.schema[self.end].nullable)
        if rows is not batch:  # some rows have left the stream, so the numbers no longer match
            before, last = self._numbers(rows)
        count = np.where(valid, last - before, 1)
        row = np.repeat(np.arange(len(rows)), count)
        back = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
        start = (last[row] - back) * self.slide_us + self.offset_us
        taken = rows.take(row)
        kept = (self._times(column, start, valid[row]) for column in (self.start, self.end))
        return Batch(schema=self.schema, columns=(*taken.columns, *kept), weights=taken.weights)

    def _numbers(self, batch: Batch) -> tuple[np.ndarray, np.ndarray]:
        """Return for each row the number of the window before its first, and of its last window, counted from the offset."""
        at = np.asarray(batch.column(self.time).cast(INT64).fill_null(0)) - self.offset_us
        return (at - self.size_us) // self.slide_us, at // self.slide_us

    def _times(self, name: str, start: np.ndarray, valid: np.ndarray) -> pa.Array:
        """Return the column of window starts or ends, with nulls for rows without a valid time."""
        values = start + self.size_us if name == self.end else start
        return pa.array(values, INT64, mask=None if valid.all() else ~valid).cast(self.schema[name].type)

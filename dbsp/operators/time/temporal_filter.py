"""Temporal filter: rows enter and leave the output as the logged clock advances.

**Law** After a step with clock c the output is {row : enters <= c < leaves}. The change contains the changed rows that are
in the output now. It also contains the stored rows that enter or leave between the previous clock and c.

**State** The rows that have not entered yet, by the time of entry. The rows that have not left yet, by the time of leaving. Rows
that the clock has passed are dropped gradually.

**Cost** Two look-ups of a time range; rows outside it are not read. The next step is due when the next row enters or leaves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from dbsp.operators.operator import Operator, State, StepContext, Time
from dbsp.operators.slots import SLOT, code, slot_hashes, value_of, whole
from dbsp.steps.timing import DUE
from dbsp.stored import stored
from dbsp.trace.retention import RetentionBound
from dbsp.trace.spine import Spine
from dbsp.zset.batch import Batch, arrange, concat
from dbsp.zset.schema import Arrangement, OrderBy, Schema

Times = npt.NDArray[np.int64]
_EVER = np.iinfo(np.int64)


@stored("InTime", "input enters leaves schema")
@dataclass(frozen=True, slots=True, kw_only=True)
class TemporalFilterOperator(Operator):
    """Keep the rows for which `enters <= clock < leaves`; a column of None means no bound on that side."""

    depends_on_time: ClassVar[Time] = Time.CLOCK
    input: Schema
    enters: str | None
    leaves: str | None
    schema: Schema

    def __str__(self) -> str:
        """Return the operator's name with the two columns."""
        return f"rows in time [{self.enters or 'always'}, {self.leaves or 'for ever'})"

    def arrangements(self) -> tuple[Arrangement, ...]:
        """Return the arrangements of the rows by slot and time of entry, and by slot and time of leaving."""
        bounds = (name for name in (self.enters, self.leaves) if name is not None)
        return tuple(Arrangement(schema=self.input, key=(SLOT,), order=(OrderBy(name),)) for name in bounds)

    def step(self, context: StepContext, state: State, inputs: tuple[Batch, ...]) -> Batch:
        """Return the changed rows that are in the output now, and the stored rows that entered or left since the last step."""
        now, before = context.clock_us, context.clock_before_us
        (delta,) = inputs
        enters, leaves = self._span(delta)
        parts = [delta.filter((enters <= now) & (now < leaves)).loose()]
        index = 0
        if self.enters is not None:
            parts.append(self._entered(state.spine(index), now, before))
            self._keep(context, state, index, delta.filter((now < enters) & (enters < leaves)))
            index += 1
        if self.leaves is not None:
            parts.append(self._left(state.spine(index), now, before))
            self._keep(context, state, index, delta.filter((now < leaves) & (enters < leaves)))
        return concat(parts, self.input).project(self.schema.names)

    def _span(self, rows: Batch) -> tuple[Times, Times]:
        """Return the times at which each row enters and leaves the output."""
        enters = np.full(len(rows), _EVER.min) if self.enters is None else whole(rows, self.enters)
        leaves = np.full(len(rows), _EVER.max) if self.leaves is None else whole(rows, self.leaves)
        return enters, leaves

    def _entered(self, spine: Spine, now: int, before: int | None) -> Batch:
        """Return the stored rows that entered the output since the previous clock and are still in it."""
        rows = _between(spine, before, now)
        return rows.filter(self._span(rows)[1] > now).loose()

    def _left(self, spine: Spine, now: int, before: int | None) -> Batch:
        """Return the negated stored rows that were in the output at the previous clock and have left it."""
        rows = _between(spine, before, now)
        was = np.zeros(len(rows), np.bool_) if before is None else self._span(rows)[0] <= before
        return rows.filter(was).loose().negate()

    def _keep(self, context: StepContext, state: State, index: int, rows: Batch) -> None:
        """Store rows with a future time, drop rows that the clock has passed, and signal when the next row is due."""
        arrangement = self.arrangements()[index]
        spine = state.spine(index)
        if not len(rows) and not spine.rows:
            return
        kept = arrange(rows.loose(), arrangement)
        ahead = code(context.clock_us + 1)
        state.append(index, kept, RetentionBound(column=arrangement.order[0].column, code=ahead))
        due = spine.with_batch(kept).first_code(slot_hashes(), ahead)
        if due is not None:
            context.signal(-1, DUE, value_of(due))


def _between(spine: Spine, before: int | None, now: int) -> Batch:
    """Return the stored rows whose time is after `before` and not after `now`."""
    hashes = slot_hashes() if spine.rows else np.empty(0, np.uint64)
    first = code(_EVER.min if before is None else before + 1)
    _, rows = spine.ranges(hashes, np.full(len(hashes), first, np.uint64), np.full(len(hashes), code(now), np.uint64))
    return rows

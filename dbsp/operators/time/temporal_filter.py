"""In time: rows enter and leave the answer as the logged clock moves.

**Law** after a step with clock c the answer is {row : enters <= c < leaves}. Its change is the changed rows that are in it now,
plus the stored rows whose entering or leaving lies between the clock before and c.

**State** rows that have not entered yet, by the time they do; rows that have not left yet, by the time they do. What the
clock has passed is dropped piece by piece.

**Cost** two look-ups of a range of time; rows outside it are not read. The next step is due when the next row enters or leaves.
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
    """Keeps the rows whose span `enters <= clock < leaves` lies ahead; None stands for always and for ever."""

    depends_on_time: ClassVar[Time] = Time.CLOCK
    input: Schema
    enters: str | None
    leaves: str | None
    schema: Schema

    def __str__(self) -> str:
        """The span."""
        return f"rows in time [{self.enters or 'always'}, {self.leaves or 'for ever'})"

    def arrangements(self) -> tuple[Arrangement, ...]:
        """The rows by slot and by the time at which they enter; the same for leaving."""
        bounds = (name for name in (self.enters, self.leaves) if name is not None)
        return tuple(Arrangement(schema=self.input, key=(SLOT,), order=(OrderBy(name),)) for name in bounds)

    def step(self, context: StepContext, state: State, inputs: tuple[Batch, ...]) -> Batch:
        """What came in time, entered, left."""
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
        """From when, until when each row is in the answer."""
        enters = np.full(len(rows), _EVER.min) if self.enters is None else whole(rows, self.enters)
        leaves = np.full(len(rows), _EVER.max) if self.leaves is None else whole(rows, self.leaves)
        return enters, leaves

    def _entered(self, spine: Spine, now: int, before: int | None) -> Batch:
        """Stored rows that were ahead, and are in time now."""
        rows = _between(spine, before, now)
        return rows.filter(self._span(rows)[1] > now).loose()

    def _left(self, spine: Spine, now: int, before: int | None) -> Batch:
        """Stored rows that were in time, and are no more."""
        rows = _between(spine, before, now)
        was = np.zeros(len(rows), np.bool_) if before is None else self._span(rows)[0] <= before
        return rows.filter(was).loose().negate()

    def _keep(self, context: StepContext, state: State, index: int, rows: Batch) -> None:
        """Store rows that lie ahead, let go of what the clock has passed, say when the next one is due."""
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
    """Stored rows whose time is after `before` and not after `now`."""
    hashes = slot_hashes() if spine.rows else np.empty(0, np.uint64)
    first = code(_EVER.min if before is None else before + 1)
    _, rows = spine.ranges(hashes, np.full(len(hashes), first, np.uint64), np.full(len(hashes), code(now), np.uint64))
    return rows

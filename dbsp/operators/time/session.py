"""Session windows: rows of a partition that follow each other within a gap share a window.

**Law** Rows with a positive weight are ordered by time within their partition. A new session begins where the time since the
previous row is more than the gap. Every row gets its session's first time, and its last time plus the gap.
The change is -old +new over the rows whose session changed. Insertions merge sessions, and deletions split them.

**State** The output rows by partition, in order of time; rows of negative weight are stored without a window.

**Cost** The rows of the sessions around the changed rows. The search doubles its time ranges until a gap ends them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dbsp.operators.monotone_bounds import Bound, MonotoneBounds
from dbsp.operators.operator import Operator, State, StepContext, Time
from dbsp.operators.slots import code, value_of, whole
from dbsp.operators.time.far import windowed
from dbsp.stored import stored
from dbsp.trace.retention import retained
from dbsp.trace.spine import Spine
from dbsp.zset.batch import Batch, arrange, concat, keys_of
from dbsp.zset.equality import equal_columns
from dbsp.zset.order import sort_columns
from dbsp.zset.runs import begins, lengths
from dbsp.zset.schema import INT64, Arrangement, OrderBy, Schema

Times = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
_SIGN = np.uint64(1 << 63)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretches:
    """Disjoint time ranges per key hash, sorted.

    `first` and `last` are the earliest and latest known times of a stretch.
    `low` and `high` are the limits of the search around them.
    """

    key_hash: Words
    first: Times
    last: Times
    low: Times
    high: Times

    def searched(self) -> tuple[Words, Words, Words]:
        """Return the searched ranges in the form that `Spine.ranges` takes."""
        return self.key_hash, _codes(self.low), _codes(self.high)

    def known(self) -> tuple[Words, Words, Words]:
        """Return the ranges from the first to the last known time in the form that `Spine.ranges` takes."""
        return self.key_hash, _codes(self.first), _codes(self.last)


def _codes(times: Times) -> Words:
    return times.view(np.uint64) ^ _SIGN


@stored("Session", "input partition time gap_us start end schema")
@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOperator(Operator):
    """Add the bounds of each row's session as columns `start` and `end`; `input` is the schema without them."""

    depends_on_time: ClassVar[Time] = Time.NOTHING
    input: Schema
    partition: tuple[str, ...]
    time: str
    gap_us: int
    start: str
    end: str
    schema: Schema

    def __str__(self) -> str:
        """Return the time column, the gap and the partition."""
        return f"session {self.time} gap={self.gap_us}us per ({', '.join(self.partition)})"

    def arrangements(self) -> tuple[Arrangement, ...]:
        """Return the arrangement of the output rows by partition and time."""
        return (Arrangement(schema=self.schema, key=self.partition, order=(OrderBy(self.time),)),)

    def monotone_bounds(self, inputs: Sequence[MonotoneBounds]) -> MonotoneBounds:
        """Return the bound of the time as the bound of `end`.

        A row that is not late can join a session only up to the session's end.
        """
        return {self.end: inputs[0][self.time]} if self.time in inputs[0] else {}

    def closing(self, inputs: Sequence[MonotoneBounds]) -> tuple[tuple[str, Bound] | None, ...]:
        """Return the `end` column and its bound: sessions that ended below the bound never change again."""
        return (next(iter(self.monotone_bounds(inputs).items()), None),)

    def step(self, context: StepContext, state: State, inputs: tuple[Batch, ...]) -> Batch:
        """Return the rows whose session changed, before and after; report rows whose own window exceeds the calendar.

        A row is stored with its session's end. A session that grew leaves stored rows with ends below the waterline, and their
        retractions. These are skipped, because merges may drop one without the other.
        """
        (batch,) = inputs
        at = whole(batch, self.time)
        batch, timed = windowed(context, batch, np.asarray(pc.is_valid(batch.column(self.time))), at, at + self.gap_us)
        delta = batch.filter(timed).loose()
        parts = [self._windowed(batch.filter(~timed).loose(), None)]
        if len(delta):
            (arrangement,) = self.arrangements()
            spine = state.spine(0)
            stored = spine.ranges(*self._stretches(spine, delta).known())[1].loose()
            old = retained(arrange(stored, arrangement), state.retention_bound(0))
            new = self._sessions(concat([old.project(self.input.names), delta], self.input))
            change = arrange(concat([old.loose().negate(), new], self.schema), arrangement)
            if len(change):
                state.append(0, change)
            parts.append(change.filter(np.asarray(pc.is_valid(change.column(self.end)))).loose())
        return concat(parts, self.schema)

    def _stretches(self, spine: Spine, delta: Batch) -> Stretches:
        """Return the time ranges that may share a session, before or after the change, with a changed row."""
        key_hash, times = keys_of(delta, self.partition), whole(delta, self.time)
        order = np.lexsort((times, key_hash))
        key_hash, times = key_hash[order], times[order]
        begins = np.flatnonzero(_breaks(key_hash, times, self.gap_us))
        ends = np.append(begins[1:], len(times)) - 1
        first, last = times[begins], times[ends]
        found = Stretches(key_hash=key_hash[begins], first=first, last=last, low=first, high=last)
        width = self.gap_us
        open_ = np.ones(len(begins), np.bool_)
        while open_.any():
            found = _joined(_searched(found, width, self.gap_us))
            found = self._known(spine, found, key_hash, times)
            open_ = (found.first - self.gap_us < found.low) | (found.last + self.gap_us > found.high)
            width *= 2
        return found

    def _known(self, spine: Spine, found: Stretches, key_hash: Words, times: Times) -> Stretches:
        """Return the stretches, extended to the sessions' ends as far as the search has seen them."""
        if spine.rows == 0:
            return found
        query, rows = spine.ranges(*found.searched())
        stored = np.empty(0, np.int64) if rows.order_code is None else (rows.order_code ^ _SIGN).view(np.int64)
        changed = _stretch_of(found, key_hash, times)
        number, at = np.concatenate([query, changed]), np.concatenate([stored, times])
        order = np.lexsort((at, number))
        number, at = number[order], at[order]
        starts = np.flatnonzero(_breaks(number, at, self.gap_us))
        run_number, run_first = number[starts], at[starts]
        run_last = at[starts + lengths(starts, len(at)) - 1]
        first, last = found.first.copy(), found.last.copy()
        holds_first = (run_first <= found.first[run_number]) & (found.first[run_number] <= run_last)
        holds_last = (run_first <= found.last[run_number]) & (found.last[run_number] <= run_last)
        first[run_number[holds_first]] = run_first[holds_first]
        last[run_number[holds_last]] = run_last[holds_last]
        return Stretches(key_hash=found.key_hash, first=first, last=last, low=found.low, high=found.high)

    def _sessions(self, rows: Batch) -> Batch:
        """Return the consolidated rows with their sessions; rows of negative weight get no session."""
        rows = arrange(rows, Arrangement(schema=self.input, key=self.partition, order=(OrderBy(self.time),))).loose()
        waits = self._windowed(rows.filter(rows.weight < 0), None)
        rows = rows.filter(rows.weight > 0)
        keys, times = [rows.column(name) for name in self.partition], whole(rows, self.time)
        order = sort_columns([*keys, rows.column(self.time)], np.zeros(len(rows), np.int8))
        rows, times = rows.take(order), times[order]
        fresh = np.ones(len(rows), np.bool_)
        if len(rows) > 1:
            keys = [rows.column(name) for name in self.partition]
            same = equal_columns(keys, np.arange(1, len(rows)), keys, np.arange(len(rows) - 1))
            fresh[1:] = ~same | (times[1:] - times[:-1] > self.gap_us)
        starts = np.flatnonzero(fresh)
        size = lengths(starts, len(rows))
        bounds = np.repeat(times[starts], size), np.repeat(times[starts + size - 1] + self.gap_us, size)
        return concat([self._windowed(rows, bounds), waits], self.schema)

    def _windowed(self, rows: Batch, bounds: tuple[Times, Times] | None) -> Batch:
        """Return the rows with the two window columns, which are null without `bounds`."""
        type_ = self.schema[self.start].type
        nothing = [pa.nulls(len(rows), type_)] * 2
        added = nothing if bounds is None else [pa.array(values, INT64).cast(type_) for values in bounds]
        return Batch(schema=self.schema, columns=(*rows.columns, *added), weights=rows.weights)


def _breaks(key: Words | Times, times: Times, gap: int) -> npt.NDArray[np.bool_]:
    """Return the mask of the rows, sorted by key and time, that begin a new stretch."""
    breaks = begins(key)
    breaks[1:] |= times[1:] - times[:-1] > gap
    return breaks


def _searched(found: Stretches, width: int, gap: int) -> Stretches:
    """Return the stretches with a wider search range wherever a session may extend beyond the searched range."""
    low = np.where(found.first - gap < found.low, _least(found.first, width), found.low)
    high = np.where(found.last + gap > found.high, _most(found.last, width), found.high)
    return Stretches(key_hash=found.key_hash, first=found.first, last=found.last, low=low, high=high)


def _least(times: Times, width: int) -> Times:
    """Return the times minus `width`, clamped to the earliest possible time."""
    floor = value_of(code(-(1 << 63)))
    return np.where(times < floor + width, floor, times - width) if width < _SPAN else np.full(len(times), floor)


def _most(times: Times, width: int) -> Times:
    """Return the times plus `width`, clamped to the latest possible time."""
    ceiling = value_of(code((1 << 63) - 1))
    return np.where(times > ceiling - width, ceiling, times + width) if width < _SPAN else np.full(len(times), ceiling)


_SPAN = 1 << 62


def _joined(found: Stretches) -> Stretches:
    """Return the stretches after merging those of one key whose searched ranges overlap."""
    count = len(found.key_hash)
    order = np.lexsort((found.low, found.key_hash))
    key_hash, low, high = found.key_hash[order], found.low[order], found.high[order]
    key = np.cumsum(begins(key_hash)) - 1
    rank = np.empty(count, np.int64)
    by_high = np.argsort(high, kind="stable")
    rank[by_high] = np.arange(count)
    reached = np.maximum.accumulate(key * count + rank)
    fresh = begins(key_hash)
    fresh[1:] |= low[1:] > high[by_high[reached[:-1] % count]]
    at = np.flatnonzero(fresh)
    return Stretches(
        key_hash=key_hash[at],
        first=np.minimum.reduceat(found.first[order], at),
        last=np.maximum.reduceat(found.last[order], at),
        low=low[at],
        high=np.maximum.reduceat(high, at),
    )


def _stretch_of(found: Stretches, key_hash: Words, times: Times) -> Times:
    """Return the index of the stretch that contains each changed row."""
    number = np.lexsort((np.concatenate([found.low, times]), np.concatenate([found.key_hash, key_hash])))
    of = np.cumsum(number < len(found.low)) - 1
    out = np.empty(len(number), np.int64)
    out[number] = of
    return out[len(found.low) :]

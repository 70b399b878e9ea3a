"""The history of a service: its figures over the last hour in points of five seconds, and its last notable events.

The console draws the figures, also those from before the page was opened. The history is in memory alone: a restart
begins a new one. A step that took long counts in every point that it ran in, in proportion to the time. So a rate does
not drop to 0 while a long step runs, once that step has ended.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from dbsp.coordinator.running.clock import Clock
from dbsp.coordinator.running.notices import (
    AlarmOver,
    AlarmRaised,
    Autoscaled,
    AutoscaleFailed,
    BackupFailed,
    BackupMade,
    BugFound,
    CheckpointPublished,
    CommandFailed,
    CopyFailed,
    CopyWorks,
    DecisionLogged,
    DeltaFailed,
    DeltaWritten,
    InputRefused,
    MigrationBegun,
    Notice,
    RescaleMoved,
    RolledBack,
    StateChanged,
    StepDied,
    Upgraded,
    WorkersRestored,
)
from dbsp.coordinator.running.status import NewSteps
from dbsp.coordinator.running.status_json import at
from dbsp.logs import StepRecord
from dbsp.runtime.runtime import StepReport

POINT_S: Final = 5
POINTS_MAX: Final = 720
EVENTS_MAX: Final = 200
ERRORS = (CommandFailed, RolledBack, BackupFailed, AutoscaleFailed, CopyFailed, DeltaFailed, BugFound, StepDied)
"""The notices that the history counts as errors."""
NOTABLE = (
    *ERRORS, AlarmRaised, AlarmOver, Autoscaled, BackupMade, CopyWorks, DecisionLogged, DeltaWritten, InputRefused,
    MigrationBegun, RescaleMoved, Upgraded, WorkersRestored,
)  # fmt: skip
"""The notices in the list of events; checkpoints are so many that they have a list of their own."""
SUMS = ("steps", "rows_in", "rows_out", "dead_letters", "errors")
LEVELS = ("lag_rows", "state_bytes", "state")


@dataclass(slots=True)
class _Mean:
    """The mean and the maximum of some durations."""

    count: int = 0
    total: float = 0.0
    most: float = 0.0

    def add(self, seconds: float) -> None:
        """Add a duration."""
        self.count, self.total, self.most = self.count + 1, self.total + seconds, max(self.most, seconds)


class _Point:
    """The figures of five seconds; levels are those at its end, None if nothing was known yet."""

    def __init__(self, number: int, before: _Point | None) -> None:
        self.number = number
        self.sums = dict.fromkeys(SUMS, 0.0)
        self.steps, self.latency = _Mean(), _Mean()
        self.levels: dict[str, Any] = dict(before.levels) if before is not None else dict.fromkeys(LEVELS)


class History:
    """The observer that keeps the history; safe to call from any thread."""

    def __init__(self, clock: Clock) -> None:
        """Begin empty."""
        self._clock = clock
        self._lock = threading.Lock()
        self._points: deque[_Point] = deque(maxlen=POINTS_MAX)
        self._checkpoints: deque[dict[str, Any]] = deque(maxlen=EVENTS_MAX)
        self._events: deque[dict[str, Any]] = deque(maxlen=EVENTS_MAX)
        self._new_steps = NewSteps()

    def _until(self, number: int) -> _Point:
        """Return the newest point, after adding those up to a number."""
        first = self._points[-1].number + 1 if self._points else number
        for each in range(max(first, number - POINTS_MAX + 1), number + 1):
            self._points.append(_Point(each, self._points[-1] if self._points else None))
        return self._points[-1]

    def _now(self) -> _Point:
        return self._until(int(self._clock.monotonic_s() // POINT_S))

    # --- what happens ------------------------------------------------------------------------------------------------

    def stepped(self, record: StepRecord, report: StepReport, *, replay: bool, lag_rows: int) -> None:
        """Count a finished step; a replayed one changes the levels alone."""
        with self._lock:
            end_s, point = self._clock.monotonic_s(), self._now()
            workers = report.workers
            point.levels |= {"lag_rows": lag_rows, "state_bytes": sum(worker.state_bytes for worker in workers)}
            if replay or not self._new_steps.takes(record.step):
                return
            point.steps.add(report.seconds)
            point.sums["steps"] += 1
            counts = {
                "rows_in": report.rows_in, "rows_out": sum(worker.rows_out for worker in workers),
                "dead_letters": sum(worker.dead for worker in workers),
            }  # fmt: skip
            for each, share in self._shares(end_s - report.seconds, end_s):
                for name, count in counts.items():
                    each.sums[name] += share * count

    def _shares(self, begin_s: float, end_s: float) -> Iterator[tuple[_Point, float]]:
        """Yield the kept points that a step ran in, each with its share of the step; the shares add up to 1."""
        last = self._points[-1].number
        first = max(int(begin_s // POINT_S), self._points[0].number)
        begin_s, whole = max(begin_s, first * POINT_S), 0.0
        span = end_s - begin_s
        if first < last and span > 0:
            for number in range(first, last):
                share = (min(end_s, (number + 1) * POINT_S) - max(begin_s, number * POINT_S)) / span
                whole += share
                yield self._points[number - last - 1], share
        yield self._points[-1], 1.0 - whole

    def arrived(self, seconds: float) -> None:
        """Count the time from the arrival of rows until their results are in the outputs."""
        with self._lock:
            self._now().latency.add(seconds)

    def noted(self, notice: Notice) -> None:
        """Store a notable event, and count an error."""
        with self._lock:
            point = self._now()
            match notice:
                case StateChanged(state=state, step=step):
                    point.levels["state"] = state
                    if state in ("Running", "Paused", "Halted", "Filling"):
                        self._new_steps.begin(step)
                case CheckpointPublished():
                    self._checkpoints.append(self._as_json(notice))
                case _ if isinstance(notice, NOTABLE):
                    self._events.append(self._as_json(notice))
            if isinstance(notice, ERRORS):
                point.sums["errors"] += 1

    def _as_json(self, notice: Notice) -> dict[str, Any]:
        """Return a notice as a JSON object; `at` is when this process noted it."""
        return {**notice.fields(), "at": at(self._clock.wall_us() / 1e6), "event": notice.EVENT}

    # --- what is asked -----------------------------------------------------------------------------------------------

    def as_json(self, first: int = 0) -> dict[str, Any]:
        """Return the points from number `first` on, column by column, with the checkpoints and events, the newest first.

        The last point is not over yet: `next` is its number, so that a client that goes on there gets it whole.
        """
        with self._lock:
            newest = self._now()
            kept = [point for point in self._points if point.number >= first]
            now_s = self._clock.wall_us() / 1e6 - self._clock.monotonic_s()
            columns: dict[str, list[Any]] = {
                "number": [point.number for point in kept],
                "unix_s": [round(now_s + point.number * POINT_S, 1) for point in kept],
            }
            for name in SUMS:
                columns[name] = [round(point.sums[name], 3) for point in kept]
            for name in LEVELS:
                columns[name] = [point.levels[name] for point in kept]
            for name, means in (("step_seconds", "steps"), ("latency_seconds", "latency")):
                found: list[_Mean] = [getattr(point, means) for point in kept]
                columns[name] = [round(mean.total / mean.count, 6) if mean.count else None for mean in found]
                columns[f"{name}_max"] = [round(mean.most, 6) if mean.count else None for mean in found]
            return {
                "point_seconds": POINT_S, "points_max": POINTS_MAX, "next": newest.number, "points": columns,
                "checkpoints": [*reversed(self._checkpoints)], "events": [*reversed(self._events)],
            }  # fmt: skip

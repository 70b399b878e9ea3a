"""The status of the service: one frozen snapshot, replaced after every event, which any thread may read.

`StepIndex` also remembers which step read an offset, so that a producer can ask whether its rows are processed.
"""

from __future__ import annotations

import bisect
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dbsp.coordinator.decisions import commands
from dbsp.coordinator.decisions.alarms import Doing
from dbsp.coordinator.decisions.cutting import Positions
from dbsp.coordinator.decisions.moved_workers import MovedWorker
from dbsp.coordinator.decisions.rescaling import awaited_hosts, is_moving
from dbsp.coordinator.decisions.states import Facts, Halt
from dbsp.coordinator.decisions.strategies import WARMUP
from dbsp.coordinator.running.clock import Clock
from dbsp.coordinator.running.progress import MovingProgress, RescaleProgress, WaitingRescale
from dbsp.distribute.migration_plan import MigrationPlan
from dbsp.io.pushed import Position
from dbsp.layout import Layout
from dbsp.logs import StepRecord, Waiting
from dbsp.logs.step_commands import is_decided
from dbsp.runtime.runtime import StepReport

STEPS_REMEMBERED_MAX = 100_000


def waiting_rescale(facts: Facts) -> WaitingRescale | None:
    """Return the rescale that waits; None if there is none."""
    requested, warming = facts.requested, facts.warming
    if requested.rescale is not None:
        waits_for = "the rescale under way" if is_moving(facts) else "the step under way"
        if hosts := awaited_hosts(facts):
            waits_for = f"executors on {', '.join(hosts)}"
        return WaitingRescale(
            workers=requested.rescale, strategy=requested.strategy, waits_for=waits_for,
            hosts_excluded=requested.excluded or (),
        )  # fmt: skip
    if warming is not None and warming.strategy != WARMUP:
        return WaitingRescale(
            workers=warming.workers, strategy=warming.strategy, waits_for="checkpoints beside the steps",
            hosts_excluded=warming.excluded or (),
        )  # fmt: skip
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class PastError:
    """The last error from which the service has recovered, and when it recovered (seconds since 1970)."""

    message: str
    over_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The service as of the last event.

    - `step` is the next step; `lag_rows` is the rows that waited at the end of the last step.
    - `state_bytes` is the size of the state after the last step; None before the first step in a layout.
    - `away` is the external system that all of the pipeline waits for.
    - `halt` says which rows of the next step fail, when only a user's decision lets the pipeline go on.
    - `rescale` is the progress of a warm-up, or of the migration by the plan `migration_plan`; `waiting` is the next rescale.
    """

    state: str = "Starting"
    epoch: int = 0
    step: int = 0
    version: int = 0
    checkpoint_step: int = 0
    layout: Layout | None = None
    moved: tuple[MovedWorker, ...] = ()
    processed: Positions = field(default_factory=dict)
    rows_in: int = 0
    rows_out: int = 0
    dead: int = 0
    lag_rows: int = 0
    state_bytes: int | None = None
    checkpoints: int = 0
    checkpoint_seconds: float = 0.0
    rollbacks: int = 0
    replaying: bool = False
    last_error: str | None = None
    past_error: PastError | None = None
    away: Waiting | None = None
    halt: Halt | None = None
    last_report: StepReport | None = field(default=None, compare=False)
    ended: bool = False
    rescale: RescaleProgress | MovingProgress | None = None
    waiting: WaitingRescale | None = None
    migration_plan: MigrationPlan | None = None

    def recovered(self, now_s: float) -> Snapshot:
        """Return the snapshot with its error moved to `past_error`."""
        if self.last_error is None:
            return self if self.away is None else replace(self, away=None)
        return replace(self, last_error=None, away=None, past_error=PastError(message=self.last_error, over_s=now_s))

    def stepped(self, report: StepReport, lag_rows: int, *, new: bool) -> Snapshot:
        """Return the snapshot after a step; the rows of a step count once, however often it runs."""
        counted = report.workers if new else ()
        return replace(
            self, step=report.step + 1, last_report=report, lag_rows=lag_rows,
            rows_in=self.rows_in + sum(worker.rows_in for worker in counted),
            rows_out=self.rows_out + sum(worker.rows_out for worker in counted),
            dead=self.dead + sum(worker.dead for worker in counted),
            state_bytes=sum(worker.state_bytes for worker in report.workers),
        )  # fmt: skip

    def in_layout(self, layout: Layout | None) -> Snapshot:
        """Return the snapshot in a layout; of another one than before, no step has measured the state yet."""
        before = None if self.layout is None else self.layout.version
        is_same = layout is not None and layout.version == before
        return replace(self, layout=layout, state_bytes=self.state_bytes if is_same else None)

    @property
    def knows_positions(self) -> bool:
        """Return True if the input positions in `processed` are known; a start does not know them before its recovery ends."""
        return self.state not in ("Starting", "Recovering") or self.step > 0

    def has_processed(self, position: Position) -> bool:
        """Return True if the results of these rows are durable and visible."""
        return self.processed.get((position.table, position.partition), 0) >= position.last

    def has_finished(self, steps: Sequence[int]) -> bool:
        """Return True if all of these logged steps have run."""
        return self.step > max(steps, default=-1)

    @property
    def settled(self) -> bool:
        """Return True if `step` follows the newest record: no replay and no change of the layout is under way."""
        return self.state in ("Running", "Paused", "Halted")


class LiveStatus:
    """The holder of the newest snapshot; wakes threads that wait for a condition on it."""

    def __init__(self) -> None:
        """Begin with the empty snapshot."""
        self._changed = threading.Condition()
        self._snapshot = Snapshot()
        self._listeners: tuple[Callable[[Snapshot], None], ...] = ()

    def listen(self, listener: Callable[[Snapshot], None]) -> None:
        """Add a listener that is called with every snapshot, on the thread that posts it."""
        with self._changed:
            self._listeners = (*self._listeners, listener)

    @property
    def now(self) -> Snapshot:
        """Return the newest snapshot."""
        return self._snapshot

    def post(self, snapshot: Snapshot) -> None:
        """Replace the snapshot, wake all waiting threads, and call the listeners."""
        with self._changed:
            self._snapshot = snapshot
            self._changed.notify_all()
            listeners = self._listeners
        for listener in listeners:
            listener(snapshot)

    def wait_for(self, condition: Callable[[Snapshot], bool], timeout_s: float | None) -> bool:
        """Wait until the condition holds, the service has ended or the time is over; return whether it holds."""
        with self._changed:
            self._changed.wait_for(lambda: condition(self._snapshot) or self._snapshot.ended, timeout_s)
            return condition(self._snapshot)


def begun(command: commands.Command, clock: Clock) -> Doing:
    """Return the description of a command that begins now."""
    step = command.record.step if isinstance(command, commands.RunStep) else None
    return Doing(
        command=type(command).__name__, step=step, since_s=clock.monotonic_s(), since_unix_s=clock.wall_us() / 1e6
    )


class NewSteps:
    """A filter for counting: it accepts each step once, beginning after the recovery that this process started with."""

    def __init__(self) -> None:
        """Accept no step before `begin`."""
        self._next: int | None = None

    def begin(self, step: int) -> None:
        """Accept steps from this one on; only the first call has an effect."""
        if self._next is None:
            self._next = step

    def takes(self, step: int) -> bool:
        """Return True if a finished step counts; a replayed step does not."""
        if self._next is None or step < self._next:
            return False
        self._next = step + 1
        return True


class StepIndex:
    """The step that read each offset, for the last `STEPS_REMEMBERED_MAX` ranges of each partition, and steps with decisions."""

    def __init__(self) -> None:
        """Begin empty."""
        self._lock = threading.Lock()
        self._decided: set[int] = set()
        self._lasts: Mapping[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)

    def add(self, record: StepRecord) -> None:
        """Note a finished step; a replayed one changes nothing."""
        with self._lock:
            if is_decided(record.commands):
                self._decided.add(record.step)
            for range_ in record.ranges:
                known = self._lasts[range_.table, range_.partition]
                if not known or range_.last > known[-1][0]:
                    known.append((range_.last, record.step))
                    del known[:-STEPS_REMEMBERED_MAX]

    def has_decision(self, step: int) -> bool:
        """Return True if a finished step ran with a logged decision.

        The index begins with the oldest checkpoint from which this process replayed.
        """
        with self._lock:
            return step in self._decided

    def step_of(self, table: str, partition: int, offset: int) -> int | None:
        """Return the step that read the offset; None if it is not remembered."""
        with self._lock:
            known = self._lasts[table, partition]
            at = bisect.bisect_right(known, (offset, 1 << 62))
            return known[at][1] if at < len(known) else None

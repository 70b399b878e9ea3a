"""Carry out the commands of the machine with the runtime, the logs and the ledger; each command results in an event.

Invariants: the record of a step is durable before the runtime gets the step (invariant 4). The input positions at a checkpoint
are in the ledger before the first worker pins it. Logs are trimmed only below the oldest version that a worker can
still open (invariant 12). Every error becomes a `Failed` event, so that the machine alone decides what it means. The simulator
uses this class unchanged, with logs and runtimes in memory; waiting, requests and threads are in `event_loop`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace

from dbsp.coordinator.decisions import commands, events
from dbsp.coordinator.decisions.alarms import Doing
from dbsp.coordinator.decisions.cutting import (
    NOWHERE,
    Backlog,
    Positions,
    advance,
    backlog,
    begin,
    unread,
)
from dbsp.coordinator.decisions.fills import is_filling
from dbsp.coordinator.decisions.limits import StepLimits
from dbsp.coordinator.exits import refused
from dbsp.coordinator.running import control as ledgers
from dbsp.coordinator.running.attempts import Attempts, Marker, NoMarker, Trials
from dbsp.coordinator.running.blame import Locate, unlocated
from dbsp.coordinator.running.checkpoints import Checkpoints, InputCut, Logs
from dbsp.coordinator.running.clock import Clock
from dbsp.coordinator.running.control import Control, Ledger
from dbsp.coordinator.running.copies_behind import CopyingBehind
from dbsp.coordinator.running.failing import Failing
from dbsp.coordinator.running.far_standbys import Beside, FarStandbys, in_thread
from dbsp.coordinator.running.fencing import Fencing
from dbsp.coordinator.running.intake import readable, taken
from dbsp.coordinator.running.letters import KeepsLetters, NoLetters
from dbsp.coordinator.running.loop_settings import LoopSettings
from dbsp.coordinator.running.lost_hosts import SilentHosts
from dbsp.coordinator.running.moves import Moves, moved_notice
from dbsp.coordinator.running.notices import (
    CloseFailed,
    CommandFailed,
    DecisionLogged,
    EngineAccepted,
    EpochClaimed,
    MigrationBegun,
    Observer,
    PartitionsIdle,
    StepCut,
    WarmupEnded,
    WorkersNotReached,
    WorkersReturned,
)
from dbsp.coordinator.running.progress import MovingProgress, RescaleProgress
from dbsp.coordinator.running.published_copies import PublishedCopies
from dbsp.coordinator.running.recent_rows import RecentRows
from dbsp.coordinator.running.replays import WaitingReplay, WaitingReplays
from dbsp.coordinator.running.returning import return_to_copies
from dbsp.coordinator.running.status import LiveStatus, NewSteps, StepIndex, begun
from dbsp.coordinator.running.warmups import WarmUps
from dbsp.coordinator.running.waterlines import Waterlines
from dbsp.disk import NO_ROOM
from dbsp.errors import DataError, DbspError, InternalError
from dbsp.layout import Layout
from dbsp.logs import InputLog, StepLog, StepRecord
from dbsp.runtime.runtime import MoveReport, Runtime, StepReport
from dbsp.steps.timing import Timing
from dbsp.stored.levels import NEWEST, READERS_SINCE
from dbsp.version import VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The parts that the service works on; `runtime` is called on the event loop's own thread, and all logs are open.

    `locate` finds the input positions of failed rows (see `blame`). `awaited` are the circuit's watermarks: with any, a
    step is logged only after the step before is done. `waterlines` tells when one rises, which is a reason for a step
    without input. `engine` is the version under which steps are logged; `marker` and `trials` are passed to `Attempts`.
    `letters` keeps the dead letters of finished steps. `published` has the checkpoints among the copies.
    `beside` runs what goes on while steps run. `level` is the level at which formats are written (`dbsp.stored.levels`).
    """

    runtime: Callable[[], Runtime]
    inputs: InputLog
    steps: StepLog
    control: Control
    clock: Clock
    locate: Locate = unlocated
    awaited: tuple[int, ...] = ()
    waterlines: Waterlines = field(default_factory=Waterlines)
    engine: str = VERSION
    marker: Marker = field(default_factory=NoMarker)
    trials: Trials | None = None
    letters: KeepsLetters = field(default_factory=NoLetters)
    published: PublishedCopies = field(default_factory=PublishedCopies)
    beside: Beside = in_thread
    level: int = NEWEST


class CommandRunner:
    """Carries out commands, one at a time."""

    def __init__(
        self,
        parts: Parts,
        settings: LoopSettings,
        live_status: LiveStatus,
        observer: Observer,
        helper: Executor | None = None,
    ) -> None:
        """Store the parts; open nothing before the first command. `helper` logs the next step while one runs."""
        self.index = StepIndex()
        self.moved: MoveReport | None = None
        self.doing: Doing | None = None
        self.new_steps = NewSteps()
        self.done: Positions = NOWHERE
        self.woken: Callable[[], None] = lambda: None
        self._parts, self._settings, self._live_status, self._observer = parts, settings, live_status, observer
        self._runtime: Runtime | None = None
        self._helper = helper or ThreadPoolExecutor(1, thread_name_prefix="cut-ahead")
        self._cut: Positions = NOWHERE
        self._places: frozenset[tuple[str, int]] = frozenset()
        self._recent = RecentRows()
        self._timing = Timing()
        self._waiting_since: float | None = None
        self._first_rows: int | None = None
        self.epoch = 0
        """The newest claimed epoch, set before the ledger has it, so never older than the ledger's; any thread may read it."""
        self.warming, self.moves = WarmUps(parts.clock), Moves(parts.clock)
        self.replays = WaitingReplays()
        self.failing = Failing(parts.inputs, parts.steps, parts.locate, observer.noted)
        self.silent_hosts = SilentHosts(parts.clock, settings.host_loss)
        self.standbys = FarStandbys(
            settings.standbys, parts.control, self.silent_hosts, observer.noted, parts.clock, parts.beside
        )  # fmt: skip
        self._fencing = Fencing(
            parts.control, parts.clock, self.silent_hosts, self.standbys, self._change, observer.noted
        )  # fmt: skip
        self.published = parts.published
        self.behind = CopyingBehind(parts.published, parts.clock)
        self.checkpoints = Checkpoints(
            parts.clock, Logs(inputs=parts.inputs, steps=parts.steps, letters=parts.letters), self._change, live_status, observer,
            settings, self.behind, standbys=self.standbys,
        )  # fmt: skip
        self._attempts = Attempts(parts.marker, parts.trials, self._change, observer.noted)

    @property
    def rescale(self) -> RescaleProgress | MovingProgress | None:
        """Return the progress of a warm-up or a migration; None if there is neither."""
        return self.warming.progress or self.moves.progress

    @property
    def runtime(self) -> Runtime:
        """Return the runtime, created at the first use, on the thread that carries out commands."""
        if self._runtime is None:
            self._runtime = self._parts.runtime()
        return self._runtime

    @property
    def running(self) -> Runtime | None:
        """Return the runtime if there is one now; may be called from any thread."""
        return self._runtime

    def check_owner(self) -> None:
        """Raise `FencedError` if another coordinator has raised the epoch; write nothing."""
        self._change(lambda ledger: ledger)

    def renew_runtime(self) -> None:
        """Close the runtime, ignoring errors; the next command creates another."""
        runtime, self._runtime = self._runtime, None
        if runtime is None:
            return
        try:
            runtime.close()
        except Exception as error:  # noqa: BLE001 - the runtime is replaced because it fails
            self._observer.noted(CloseFailed(error=f"{type(error).__name__}: {error}"))

    def close(self, *, keep_runtime: bool = False) -> None:
        """End background work, and close the runtime unless it is kept; the caller closes the logs."""
        self.checkpoints.forget()
        self._helper.shutdown(wait=True)
        if self._runtime is not None and not keep_runtime:
            self._runtime.close()
            self._runtime = None
        self.behind.close()

    def perform(self, command: commands.Command) -> events.Event:
        """Carry out one command and return its event; an error becomes `Failed`."""
        self.doing = begun(command, self._parts.clock)
        try:
            return self._perform(command)
        except Exception as error:  # noqa: BLE001 - whatever a runtime or a driver raises is judged by the machine
            failed = self.failed(type(command).__name__, error)
            if self.failing.deferred(command, error):
                return replace(failed, deferred=True)
            return replace(failed, halt=self.failing.halt(command, error))
        finally:
            self.doing = None

    def failed(self, command: str, error: Exception) -> events.Failed:
        """Report an error of any kind to the observers, and return its `Failed` event."""
        if isinstance(error, OSError) and error.errno in NO_ROOM:
            error = refused(error)
        code, text = "internal", f"{type(error).__name__}: {error}"
        if isinstance(error, DbspError):
            code, text = error.code, str(error)
        self._observer.noted(CommandFailed(command=command, code=code, error=text))
        return events.Failed(code=code, message=text)

    def _perform(self, command: commands.Command) -> events.Event:  # noqa: PLR0911 - one line per command
        match command:
            case (
                commands.ClaimEpoch()
                | commands.CreateWorkers()
                | commands.FenceWorkers()
                | commands.MoveWorkers()
                | commands.ReadVersions()
                | commands.ReturnToCopies()
                | commands.OpenVersion()
            ):
                return self._recovery(command)
            case commands.DiscardWorkers():
                return self._discard(command)
            case commands.ReadSteps(first=first):
                return self._read_steps(first)
            case commands.CutStep():
                return events.Recorded(record=self._cut_step(command, full=False))
            case commands.RunStep():
                return self._run_step(command)
            case commands.PinVersion() | commands.AwaitCopy() | commands.Publish():
                return self._checkpoint(command)
            case commands.LogLayout(layout=layout, members=members, forming=forming):
                migration_plan = command.migration_plan
                self._change(lambda ledger: ledgers.log_layout(ledger, layout, members, forming, migration_plan))
                return events.LayoutLogged(layout=layout)
            case commands.RedistributeShards():
                return self._redistribute(command)
            case commands.HoldMerges() | commands.WarmUp() | commands.EndWarmUp():
                return self._warm(command)
            case commands.LogDecision() | commands.AcceptEngines():
                return self._note_decision(command)
            case commands.ForgetRescale():
                self._change(lambda ledger: ledgers.request_rescale(ledger, None))
                return events.Forgotten()
        raise InternalError(f"not a command for the command runner: {command}")

    # --- recovery -----------------------------------------------------------------------------------------------

    def _recovery(
        self,
        command: commands.ClaimEpoch
        | commands.CreateWorkers
        | commands.FenceWorkers
        | commands.MoveWorkers
        | commands.ReadVersions
        | commands.ReturnToCopies
        | commands.OpenVersion,
    ) -> events.Event:
        match command:
            case commands.ClaimEpoch():
                return self._claim()
            case commands.CreateWorkers():
                return self._fencing.create(self.runtime, command)
            case commands.FenceWorkers():
                return self._fencing.fence(self.runtime, command)
            case commands.MoveWorkers():
                return self._fencing.move(command)
            case commands.ReadVersions(epoch=epoch, workers=workers, hosts=hosts):
                held = dict(self.runtime.versions(workers, hosts))
                if (ledger := self._parts.control.load()) is not None:
                    ledgers.refuse_older(ledger, epoch)  # a newer owner may have changed the ledger since it was read
                return events.VersionsRead(held=held)
            case commands.ReturnToCopies():
                return self._return(command)
            case commands.OpenVersion():
                return self._open(command)

    def _return(self, command: commands.ReturnToCopies) -> events.ReturnedToCopies | events.NothingCopied:
        event = return_to_copies(self.published.parts, self.published.ledger(), command, self._change)
        if isinstance(event, events.ReturnedToCopies):
            self._observer.noted(WorkersReturned(version=event.version, step=event.step, lost=list(command.lost)))
        return event

    def _open(self, command: commands.OpenVersion) -> events.Event:
        loss = self.silent_hosts.loss
        if loss.movable and not loss.only_standbys:  # once opened, a lost worker has this version alone, in the copies
            self._change(lambda ledger: ledgers.acknowledged(ledger, command.version))
        found = self.runtime.open(command.version, command.epoch, command.layout)
        if found != command.checkpoint:
            raise DataError(f"the workers opened another checkpoint: opened={found} chosen={command.checkpoint}")
        ledger = self._change(lambda ledger: ledgers.opened(ledger, command.version, command.layout))
        self.published.opened(ledger, command.epoch)
        ledger = self.behind.begin(self.runtime, ledger, command.epoch, self._change)
        self.checkpoints.note_window(ledger)
        self.standbys.opened(self.runtime, command.version, command.epoch, command.layout)
        moved = self._fencing.discard_strays(self.runtime, command.epoch, ledger)
        self.done, self._timing = ledger.positions(found)
        return events.VersionOpened(version=command.version, checkpoint=found, layout=command.layout, moved=moved)

    def _discard(self, command: commands.DiscardWorkers) -> events.Event:
        left: tuple[int, ...] = ()
        if command.workers:
            self._change(lambda ledger: ledgers.doubt_members(ledger, command.workers))
            left = self.runtime.discard(command.workers, command.hosts, must=command.must)
        if left:
            self._observer.noted(WorkersNotReached(workers=list(left)))
        members, forming = {*command.members, *left}, {*command.forming, *left}
        self._change(lambda ledger: ledgers.settle_members(ledger, members, forming))
        return events.Discarded(left=left)

    def _read_steps(self, first: int) -> events.Event:
        records = tuple(self._parts.steps.read(first))
        self._parts.letters.drop_from(first + len(records))
        floors = self._parts.inputs.floors()
        self._places |= floors.keys()
        self.done = begin(self.done, records, floors)
        self._cut = advance(self.done, records)
        return events.StepsRead(records=records, partitions=self.partitions)

    @property
    def partitions(self) -> Mapping[str, tuple[int, ...]]:
        """Return per table the recent rows of each partition that was ever seen; any thread may read.

        The result is empty if layouts must not have their readers yet.
        """
        if self._parts.level < READERS_SINCE:
            return {}
        return self._recent.of(self._places, self._parts.clock.monotonic_s())

    def _note_decision(self, command: commands.LogDecision | commands.AcceptEngines) -> events.Event:
        """Log a user's decision about logged steps."""
        match command:
            case commands.LogDecision(epoch=epoch, step=number, command=decision):
                record = self._parts.steps.decide(epoch, number, decision)
                self._observer.noted(DecisionLogged(step=number, command=decision))
                return events.Decided(record=record)
            case commands.AcceptEngines(acceptances=acceptances):
                ledger = self._change(lambda found: ledgers.accept_engines(found, acceptances))
                for acceptance in acceptances:
                    self._observer.noted(EngineAccepted(**asdict(acceptance)))
                return events.EnginesAccepted(accepted=ledger.accepted)

    # --- steps --------------------------------------------------------------------------------------------------

    @property
    def clock_ahead_s(self) -> float:
        """Return how far `now()` is ahead of the wall clock, in seconds."""
        return self._timing.ahead_s(self._parts.clock.wall_us())

    def step_is_due(self) -> bool:
        """Return True if a step is due: enough rows wait, the first has waited long enough, or a timer is due."""
        ends, found = self._look()
        return (
            bool(self.replays)
            or self._is_due(found)
            or self._agreed(ends).due(self._parts.clock.wall_us(), self._parts.awaited)
        )

    def lag_rows(self) -> int:
        """Return how many rows no finished step has read."""
        return sum(each.last - each.first for each in unread(self._parts.inputs.ends(), self.done))

    def _agreed(self, ends: Positions) -> Timing:
        parts = self._parts
        return parts.waterlines.agreed(self._timing, parts.inputs, ends, self._cut, parts.clock)

    def _look(self) -> tuple[Positions, Backlog]:
        """Return the ends of the inputs that do not wait, and the backlog below them."""
        inputs = self._parts.inputs
        ends, begins = readable(inputs, self._cut)
        self._places |= ends.keys()
        self.done, self._cut = {**begins, **self.done}, {**begins, **self._cut}
        return ends, backlog(ends, self._cut, inputs.sizes(unread(ends, self._cut)), self._limits)

    @property
    def _limits(self) -> StepLimits:
        """Return the step limits; the first step after a layout change takes at most as many rows as the step before it.

        So the oldest rows need not wait until the many rows that arrived during the change are processed with them.
        """
        limits, most = self._settings.limits, self._first_rows
        if most is None:
            return limits
        return replace(limits, max_rows_per_step=min(limits.max_rows_per_step, most))

    def _is_due(self, found: Backlog) -> bool:
        if not found.rows:
            self._waiting_since = None
            return False
        now = self._parts.clock.monotonic_s()
        if self._waiting_since is None:
            self._waiting_since = now
        return found.full or (now - self._waiting_since) * 1000 >= self._settings.limits.max_step_delay_ms

    def _cut_step(self, command: commands.CutStep, *, full: bool) -> StepRecord | None:
        """Cut and log a step if one is due or has a command (`full`: only if it is a full one); else return None."""
        began_s = self._parts.clock.monotonic_s()
        ends, found = self._look()
        waits = self._is_due(found)
        if full and (self.replays or not found.full or self._parts.awaited):
            return None
        wall, timing = self._parts.clock.wall_us(), self._agreed(ends)
        replay = None if full or command.commands else self.replays.take(self._parts.letters.replayed)
        if not (waits or command.commands or replay or timing.due(wall, self._parts.awaited)):
            return None
        fills = is_filling(command.commands)
        moment = self._timing.still() if fills else timing.moment(wall)
        is_alone = fills or replay is not None
        ranges = () if is_alone else taken(self._parts.inputs, found, self._cut, self._limits, command.step)
        issued = command.commands if replay is None else (replay.command,)
        record = StepRecord(
            epoch=command.epoch, step=command.step, layout_version=command.layout_version, ranges=ranges,
            commands=(*issued, *self.failing.step_commands(ranges)), engine=self._parts.engine,
            clock_us=moment.clock_us, clock_before_us=moment.clock_before_us, waterlines=moment.waterlines,
            idle=moment.idle,
        )  # fmt: skip
        after = advance(self._cut, [record])
        self._append(record, replay)
        self.failing.logged(record)
        self._observer.noted(StepCut(step=record.step, seconds=self._parts.clock.monotonic_s() - began_s))
        if record.idle != self._timing.idle:
            self._observer.noted(PartitionsIdle(step=record.step, partitions=[list(place) for place in record.idle]))
        self._cut, self._timing, self._waiting_since = after, self._after(record), None
        self._first_rows = None
        return record

    def _append(self, record: StepRecord, replay: WaitingReplay | None) -> None:
        """Log a step, and report to whoever waits for its replay that it is logged, or that nobody knows."""
        try:
            self._parts.steps.append(record)
        except BaseException as error:
            if replay is not None:
                replay.logged.set_exception(error)
            raise
        if replay is not None:
            replay.logged.set_result(record.step)

    def _cut_ahead(self, command: commands.RunStep) -> StepRecord | None:
        """Cut and log the step after the running one, if it is full, and let the runtime read its input ahead."""
        following = commands.CutStep(
            epoch=command.epoch, step=command.record.step + 1, layout_version=command.layout.version
        )
        record = self._cut_step(following, full=True)
        if record is not None:
            self.runtime.read_ahead(record, command.layout)
        return record

    def _run_step(self, command: commands.RunStep) -> events.Event:
        record, ahead = command.record, None
        self._timing = self._after(record)
        if command.following is not None:
            self.runtime.read_ahead(command.following, command.layout)
        if command.may_cut_ahead:
            ahead = self._helper.submit(self._cut_ahead, command)
        try:
            with self._attempts.of(command):
                report = self.runtime.run_step(record, command.layout, command.coming)
        finally:
            following = ahead.result() if ahead is not None else None
        report = self._parts.letters.keep(record, report)
        self.failing.done(record.step)
        if not command.replay:  # a step that runs again was counted before
            self._recent.read(record.ranges, self._parts.clock.monotonic_s())
        self.done = advance(self.done, [record])
        if not is_filling(record.commands):
            self._timing = self._timing.finished(report.signals)
        self.index.add(record)
        lag = self._look()[1].rows if not command.replay else 0
        status = self._live_status.now.stepped(report, lag, new=self.new_steps.takes(record.step))
        self._live_status.post(replace(status, processed=self.done, rescale=self.rescale))
        self._observer.stepped(record, report, replay=command.replay, lag_rows=lag)
        return events.StepDone(step=record.step, ahead=following, over=self._migrated(command, report))

    def _after(self, record: StepRecord) -> Timing:
        """Return the timing after a step is logged; no time passes in a backfill step."""
        return self._timing if is_filling(record.commands) else self._timing.recorded(record.moment)

    def _migrated(self, command: commands.RunStep, report: StepReport) -> bool:
        """Return True if the step has ended a migration, and report what the migration has moved."""
        moved = self.moves.stepped(command, report)
        if moved is not None and command.coming is not None:
            self._note_moved(command.layout, command.coming, moved)
        return moved is not None

    def _checkpoint(self, command: commands.PinVersion | commands.AwaitCopy | commands.Publish) -> events.Event:
        match command:
            case commands.PinVersion():
                return self.checkpoints.pin(self.runtime, command, self._cut_of_done(), self.woken)
            case commands.AwaitCopy() | commands.Publish():
                return self.checkpoints.end(self.runtime, command)

    def _cut_of_done(self) -> InputCut:
        """Return the cut after the last finished step."""
        return InputCut(positions=dict(self.done), timing=self._timing)

    def copy_news(self, version: int) -> events.CopyEnded | None:
        """Return how the copy of a version has ended; None while it goes on."""
        if not self.checkpoints.is_copied(version):
            return None
        try:
            self.checkpoints.reports(version)
        except Exception as error:  # noqa: BLE001 - whatever a runtime or a driver raises is judged by the machine
            failed = self.failed("Copy", error)
            return events.CopyEnded(version=version, code=failed.code, message=failed.message)
        return events.CopyEnded(version=version)

    # --- rescales -----------------------------------------------------------------------------------------------

    def _warm(self, command: commands.HoldMerges | commands.WarmUp | commands.EndWarmUp) -> events.Event:
        """Hold merges, begin a round of a warm-up, or end a warm-up."""
        match command:
            case commands.HoldMerges(old=old, new=new):
                self.runtime.hold_merges(old, new)
                return events.MergesHeld()
            case commands.WarmUp():
                report = self.warming.begin(command)
                future = self.runtime.warm(
                    command.version, command.old, command.new, report, self._settings.max_warmup_replicas
                )
                self.warming.going(future)
                future.add_done_callback(lambda _: self.woken())
                return events.WarmBegun(round=command.round)
            case commands.EndWarmUp(workers=workers, layout_version=layout_version, hosts=hosts):
                self.runtime.cool(workers, layout_version, hosts)
                self._observer.noted(WarmupEnded(copied_bytes=self.warming.copied_bytes))
                self.warming.forget()
                return events.Cooled()

    def warm_news(self, number: int) -> events.WarmEnded | None:
        """Return how a round of a warm-up has ended; None while it goes on."""
        news = self.warming.news(number)
        if news is not None and news.code is None:
            self._observer.noted(self.warming.round_notice(news))
        return news

    def _redistribute(self, command: commands.RedistributeShards) -> events.Event:
        self.checkpoints.intend(command.version, command.checkpoint, self._cut_of_done())
        ahead = self.warming.copied_bytes
        moved = self.runtime.redistribute(command.version, command.checkpoint, command.old, command.new, command.cut)
        self.warming.forget()
        last = self._live_status.now.last_report
        self._first_rows = max(1, last.rows_in) if last is not None else None
        if command.migration_plan is None:
            whole = replace(moved, bytes_moved=moved.bytes_moved + ahead, bytes_ahead=ahead)
            self._note_moved(command.old, command.new, whole)
        else:
            plan = command.migration_plan
            self._observer.noted(MigrationBegun(strategy=plan.strategy, workers=len(plan.new.workers)))
        return events.Redistributed(version=command.version)

    def _note_moved(self, old: Layout, new: Layout, moved: MoveReport) -> None:
        """Report that a rescale has moved all state."""
        self.moved = moved
        self._observer.noted(moved_notice(old, new, moved))

    def _claim(self) -> events.Claimed:
        """Claim the pipeline under a new epoch, and return the contents of its ledger."""
        self._waiting_since = None
        self.checkpoints.forget()
        self._parts.waterlines.forget()
        self.warming.forget()
        self.moves.forget()
        if self.epoch:  # a rollback: a coordinator that was replaced is fenced here, before it claims again
            self._change(lambda ledger: ledger)
        self.epoch = epoch = self._parts.steps.claim()

        def raised(ledger: Ledger) -> Ledger:
            # noted inside the transaction, so that notices of epochs are in the order of the epochs
            self._observer.noted(EpochClaimed(epoch=epoch))
            return ledgers.raise_epoch(ledger, epoch, self._settings.hosts)

        ledger = self._change(raised)
        self._attempts.claimed(ledger)
        return events.Claimed(epoch=epoch, standing=ledgers.standing(ledger))

    def _change(self, action: Callable[[Ledger], Ledger]) -> Ledger:
        return self._parts.control.change(self.epoch, action)

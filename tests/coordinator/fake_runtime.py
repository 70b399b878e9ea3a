"""A runtime on the world of `fakes`: steps, checkpoints, slicing, warm-ups and migrations of workers that hold sets of rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from dbsp.coordinator.running.command_runner import CommandRunner, Parts
from dbsp.coordinator.running.loop_settings import LoopSettings
from dbsp.coordinator.running.status import LiveStatus
from dbsp.distribute.commands import migration_of
from dbsp.distribute.strategies import joint
from dbsp.errors import DataError, DbspError, FencedError, InternalError, RowsError, UnavailableError
from dbsp.layout import Layout, moved_shards
from dbsp.logs import StepRecord
from dbsp.logs.step_commands import skipped_nodes
from dbsp.plan.plan import ViewSpec
from dbsp.runtime.leases import NO_OLD_VIEWS
from dbsp.runtime.runtime import NOTHING, MoveReport, StepReport, Stray, WarmProgress, WorkerReport
from dbsp.store import CheckpointId, CommitReport, VersionInfo
from tests.coordinator.fake_beside import Beside
from tests.coordinator.fake_moves import FakeMove
from tests.coordinator.fake_standbys import FakeStandbys, Followings
from tests.coordinator.fakes import (
    BAD_NODE,
    Closed,
    FakeClock,
    FakeControl,
    FakeDatabase,
    FakeInputs,
    FakeSteps,
    Inline,
    Row,
    Silent,
    World,
    must,
    rows_at,
    rows_of,
)
from tests.coordinator.held_views import HeldViews


def at(workers: Sequence[int], hosts: Sequence[str]) -> list[tuple[int, str]]:
    """Each worker with its host."""
    return list(zip(workers, hosts or [""] * len(workers), strict=True))


def home(layout: Layout, worker: int) -> str:
    """Where a layout says that a worker lives."""
    return layout.hosts[layout.workers.index(worker)]


class FakeCopy(Beside):
    """A checkpoint on its way to the workers' disks, one worker after the other."""

    def __init__(self, world: World, version: int, checkpoint: CheckpointId, waiting: list[tuple[int, str]]) -> None:
        super().__init__(waiting, {})
        self.world, self.version, self.checkpoint = world, version, checkpoint

    def take(self, each: tuple[int, str]) -> None:
        self.world.point(f"before copy {each[0]}")
        self._land(*each)
        self.world.point(f"after copy {each[0]}")

    def _land(self, worker: int, host: str) -> None:
        if not self.world.bring(worker, host):
            raise DataError(f"no database: worker={worker} host={host}")
        database = self.world.databases[worker]
        database.check(self.checkpoint.epoch)
        if database.pins.get(self.version, (None,))[0] != self.checkpoint:
            raise UnavailableError(f"no cut is pinned: worker={worker}")
        must(database.opened == self.version - 1, "a copy lands beside the version before it")
        kept = database.versions[self.version - 1]
        database.versions = {self.version - 1: kept, self.version: database.pins.pop(self.version)}
        database.opened = self.version
        self.world.copy_off(worker, self.checkpoint.epoch)
        self.reports[worker] = CommitReport(version=self.version, chunks_written=1, bytes_written=1, state_bytes=1)


class FakeWarm(Beside):
    """A round of a warm-up: the rows that new owners lack of a version, one source worker and one target worker
    after the other."""

    def __init__(self, world: World, version: int, epoch: int, old: Layout, new: Layout) -> None:
        nothing = WarmProgress(copied_bytes=0, missing_bytes=0, slices_bytes=0)
        pairs = [(source_worker, target_worker) for target_worker in new.workers for source_worker in old.workers]
        super().__init__(pairs, dict.fromkeys(new.workers, nothing))
        self.world, self.version, self.epoch, self.old, self.new = world, version, epoch, old, new

    def take(self, each: tuple[int, int]) -> None:
        source_worker, target_worker = each
        self.world.point(f"before warm {target_worker}")
        self._take(source_worker, target_worker)
        self.world.point(f"after warm {target_worker}")

    def _take(self, source_worker: int, target_worker: int) -> None:
        databases = self.world.databases
        for worker, layout in ((source_worker, self.old), (target_worker, self.new)):
            if not self.world.bring(worker, home(layout, worker)):
                raise DataError(f"no database: worker={worker}")
        databases[target_worker].check(self.epoch)
        if databases[source_worker].epoch > self.epoch:
            raise FencedError(f"fenced: epoch={self.epoch}")
        must(self.version in databases[source_worker].versions, "12: the version that a round reads is openable")
        rows = databases[source_worker].versions[self.version][1]
        lacked = rows_at(self.new, target_worker, rows) - databases[target_worker].warm
        databases[target_worker].warm |= lacked
        done = self.reports[target_worker]
        self.reports[target_worker] = replace(done, copied_bytes=done.copied_bytes + len(lacked))


@dataclass(frozen=True, slots=True)
class FakeDisk:
    """The disk of a host."""

    world: World
    host: str

    def has_database(self, worker: int) -> bool:
        return self.host not in self.world.broken and self.world.has_database(worker, self.host)

    def is_writable(self) -> bool:
        return self.host not in self.world.broken


@dataclass(slots=True)
class FakeRuntime(Closed):
    """Runs steps on the world's databases."""

    world: World
    epoch: int = 0

    def create(self, workers: Sequence[int], checkpoint: CheckpointId, hosts: Sequence[str] = ()) -> None:
        for worker, host in at(workers, hosts):
            self.world.point(f"create {worker}")
            if not self.world.bring(worker, host):
                self.world.put(worker, FakeDatabase(versions={0: (checkpoint, frozenset())}, host=host))

    def fence(
        self, epoch: int, workers: Sequence[int], hosts: Sequence[str] = (), since: Mapping[int, int] = NOTHING
    ) -> tuple[int, ...]:
        restored = []
        for worker, host in at(workers, hosts):
            self.world.point(f"fence {worker}")
            if self.world.remake(worker, host, since.get(worker, 0)):
                restored.append(worker)
            self._fence(epoch, worker, host)
        self.epoch = epoch
        return tuple(restored)

    def _fence(self, epoch: int, worker: int, host: str) -> None:
        database = self._database(worker, host)
        database.check(epoch)
        database.epoch = epoch

    def fence_others(self, epoch: int, workers: Sequence[int], hosts: Sequence[str] = ()) -> tuple[int, ...]:
        reached = []
        for worker, host in at(workers, hosts):
            try:
                self.world.point(f"fence {worker}")
                self._fence(epoch, worker, host)
            except (DataError, UnavailableError):
                continue
            reached.append(worker)
        return tuple(reached)

    def versions(self, workers: Sequence[int], hosts: Sequence[str] = ()) -> Mapping[int, tuple[VersionInfo, ...]]:
        self.world.point("versions")
        return {
            worker: tuple(
                VersionInfo(version=version, checkpoint=checkpoint)
                for version, (checkpoint, _) in sorted(self._database(worker, host).versions.items())
            )
            for worker, host in at(workers, hosts)
        }

    def open(self, version: int, epoch: int, layout: Layout) -> CheckpointId:
        found = set()
        for worker, host in at(layout.workers, layout.hosts):
            self.world.point(f"open {worker}")
            database = self._database(worker, host)
            database.check(epoch)
            checkpoint, state = database.versions[version]
            database.versions = {version: (checkpoint, state)}
            self.world.copy_off(worker, epoch)
            database.opened, database.state, database.next_step = version, state, checkpoint.step
            database.pins, database.warm = {}, frozenset()
            found.add(checkpoint)
        (only,) = found
        return only

    def run_step(self, record: StepRecord, layout: Layout, coming: Layout | None = None) -> StepReport:
        must(self._is_logged(record), "4: the record is durable before the step runs")
        moving = self._moving(record, layout, coming)
        reports = []
        both = layout if coming is None else joint(layout, coming)
        for worker, host in at(both.workers, both.hosts):
            try:
                self.world.point(f"step at {worker}")
                reports.append(self._run(worker, host, record, layout, moving))
            except DbspError:
                if self.world.straggle():
                    task = partial(replace(self)._run, worker, host, record, layout, moving)
                    self.world.stragglers.append(task)
                raise
        self.world.point("step done")
        told = moving.report() if moving is not None else None
        return StepReport(step=record.step, seconds=0.001, workers=tuple(reports), migration=told)

    def _moving(self, record: StepRecord, old: Layout, new: Layout | None) -> FakeMove | None:
        """What the step's command moves, from the states of all workers before it."""
        command = migration_of(record.commands)
        if command is None and new is None:
            return None
        if command is None or new is None:
            raise InternalError(f"keys move in a step that was given one layout alone: step={record.step}")
        states = {}
        for worker in joint(old, new).workers:
            database = self._database(worker, home(joint(old, new), worker))
            database.check(self.epoch)
            if database.opened is None or database.next_step != record.step:
                raise DataError(f"worker stands elsewhere: worker={worker} at={database.next_step} step={record.step}")
            states[worker] = database.state
        return FakeMove.of(command, old, new, states)

    def read_ahead(self, record: StepRecord, layout: Layout) -> None:
        must(self._is_logged(record), "4: the record is durable before its input is read")

    def _is_logged(self, record: StepRecord) -> bool:
        """Whether the log holds the record; a later owner may have added decisions to it."""
        steps = self.world.steps
        return record.step < len(steps) and replace(steps[record.step], commands=record.commands) == record

    def _run(self, worker: int, host: str, record: StepRecord, layout: Layout, moving: FakeMove | None) -> WorkerReport:
        database = self._database(worker, host)
        database.check(self.epoch)
        if database.opened is None or database.next_step != record.step:
            raise DataError(f"worker stands elsewhere: worker={worker} at={database.next_step} step={record.step}")
        rows = rows_of(record)
        mine = moving.arriving(worker, rows) if moving is not None else rows_at(layout, worker, rows)
        bad = frozenset(filter(self.world.bad, mine))
        if bad and BAD_NODE not in skipped_nodes(record.commands):
            failed = tuple((repr(row), "bad", 1) for row in sorted(bad))
            raise RowsError("a row failed", None, BAD_NODE, "bad#3", len(bad), failed)
        mine -= bad
        before = self.world.outputs.get((worker, record.step))
        if before is not None and before != mine:
            raise DataError(f"a replayed step gave another output: worker={worker} step={record.step}")
        must(not mine & database.state, f"a row is processed twice: worker={worker} step={record.step}")
        self.world.outputs[worker, record.step] = mine
        self.world.dead[worker, record.step] = bad
        self.world.point(f"output written at {worker}")
        database.check(self.epoch)
        if database.next_step != record.step:
            raise DataError(f"worker stands elsewhere: worker={worker} at={database.next_step} step={record.step}")
        database.state = moving.after(worker, database.state, mine) if moving is not None else database.state | mine
        database.next_step = record.step + 1
        return WorkerReport(worker=worker, rows_in=len(mine), rows_out=len(mine), dead=0, seconds=0.0, state_bytes=0)

    def pin(self, version: int, checkpoint: CheckpointId, layout: Layout) -> None:
        written = self.world.written()
        for record in self.world.steps[: checkpoint.step]:
            covered = frozenset().union(*written.get(record.step, ()))
            must(covered == rows_of(record), "11: outputs below a checkpoint are durable")
        for worker, host in at(layout.workers, layout.hosts):
            self.world.point(f"pin {worker}")
            database = self._database(worker, host)
            database.check(checkpoint.epoch)
            if database.opened is None:
                raise UnavailableError(f"the database was not opened in this epoch: worker={worker}")
            must(database.opened == version - 1, "only the next version is pinned")
            must(database.next_step == checkpoint.step, "a cut is where all workers stand")
            must(not database.pins, "at most one checkpoint in flight")
            database.pins = {version: (checkpoint, database.state)}

    def copy(self, version: int, checkpoint: CheckpointId, layout: Layout) -> Future[Mapping[int, CommitReport]]:
        waiting = at(layout.workers, layout.hosts)
        copy = FakeCopy(world=self.world, version=version, checkpoint=checkpoint, waiting=waiting)
        self.world.copies.append(copy)
        return copy.future

    def commit(self, version: int, checkpoint: CheckpointId, layout: Layout) -> Mapping[int, CommitReport]:
        self.pin(version, checkpoint, layout)
        return self.copy(version, checkpoint, layout).result()

    def redistribute(
        self, version: int, checkpoint: CheckpointId, old: Layout, new: Layout, cut: CheckpointId | None = None
    ) -> MoveReport:
        if cut is None:
            parts = [self._database(*each).versions[version - 1][1] for each in at(old.workers, old.hosts)]
        else:
            must(len({*old.hosts, *new.hosts}) == 1, "a cut is seen on its own host alone")
            must((cut.step, cut.epoch) == (checkpoint.step, checkpoint.epoch), "3: the version is that of the cut")
            self.pin(version, cut, old)
            parts = [self._database(*each).pins[version][1] for each in at(old.workers, old.hosts)]
        rows = frozenset().union(*parts)
        for worker, host in at(new.workers, new.hosts):
            mine = rows_at(new, worker, rows)
            task = partial(self._adopt, worker, host, version, checkpoint, mine)
            try:
                self.world.point(f"before redistribute {worker}")
                task()
                self.world.point(f"after redistribute {worker}")
            except DbspError:
                if self.world.straggle():
                    self.world.stragglers.append(task)
                raise
        moved = moved_shards(old, new)
        return MoveReport.between(old, new, bytes_moved=moved, bytes_total=new.shards)

    def _adopt(self, worker: int, host: str, version: int, checkpoint: CheckpointId, mine: frozenset[Row]) -> None:
        database = self._database(worker, host)
        database.check(checkpoint.epoch)
        must(database.warm <= mine, "3: what was copied ahead is part of what cold slicing gives")
        database.warm = frozenset()
        kept = {v: found for v, found in database.versions.items() if v == version - 1}
        database.versions = {**kept, version: (checkpoint, mine)}
        self.world.copy_off(worker, checkpoint.epoch)

    def hold_merges(self, old: Layout, new: Layout) -> None:
        for worker, host in at(old.workers, old.hosts):
            self.world.point(f"hold merges {worker}")
            self._database(worker, host).check(self.epoch)

    def warm(
        self, version: int, old: Layout, new: Layout, told: Callable[[WarmProgress], None], at_once: int
    ) -> Future[Mapping[int, WarmProgress]]:
        round_ = FakeWarm(self.world, version, self.epoch, old, new)
        self.world.copies.append(round_)
        return round_.future

    def cool(self, workers: Sequence[int], layout_version: int, hosts: Sequence[str] = ()) -> None:
        self.world.copies = [copy for copy in self.world.copies if not isinstance(copy, FakeWarm)]
        for worker, host in at(workers, hosts):
            self.world.point(f"cool {worker}")
            database = self._database(worker, host)
            database.check(self.epoch)
            database.warm = frozenset()

    def read_view(self, view: str, layout: Layout) -> pa.Table:
        rows = sorted(frozenset().union(*(self._database(*each).state for each in at(layout.workers, layout.hosts))))
        columns = {"place": [f"{t}/{p}" for t, p, _ in rows], "offset": [o for _, _, o in rows]}
        return pa.table({**columns, "weight": pa.array([1] * len(rows), pa.int64())})

    def lease_views(
        self,
        views: Sequence[str],
        step: int,
        layout: Layout,
        old: Mapping[str, ViewSpec] = NO_OLD_VIEWS,
    ) -> HeldViews:
        return HeldViews(step, {view: self.read_view(view, layout) for view in views})

    def discard(self, workers: Sequence[int], hosts: Sequence[str] = (), *, must: bool = True) -> tuple[int, ...]:
        left = []
        for worker, host in at(workers, hosts):
            try:
                self._discard(worker, host)
            except UnavailableError:
                if must:
                    raise
                left.append(worker)
        return tuple(left)

    def _discard(self, worker: int, host: str) -> None:
        self.world.point(f"discard {worker}")
        if self.world.bring(worker, host):
            self._database(worker, host).check(self.epoch)
            del self.world.databases[worker]
            if self.world.off is not None:
                self.world.off.pop(worker, None)

    def on_hosts(
        self, what: str, workers: Sequence[int], hosts: Sequence[str], function: Callable[..., Any], *arguments: Any
    ) -> Mapping[int, Any]:
        self.world.point(what)
        if away := self.world.silent.intersection(hosts):
            raise UnavailableError(f"hosts do not answer: hosts={sorted(away)}")
        return {
            worker: function(SimpleNamespace(resources=FakeDisk(self.world, host)), worker, *arguments)
            for worker, host in at(workers, hosts)
        }

    @property
    def standbys(self) -> FakeStandbys:
        return FakeStandbys(self.world)

    @property
    def first_answer_s(self) -> float:
        return 0.0

    def silent(self, hosts: Sequence[str]) -> Sequence[str]:
        return [host for host in hosts if host in self.world.silent]

    def cancel(self) -> None:
        """Nothing hangs here: who asks a silent host hears so at once."""

    def discard_strays(self, epoch: int, strays: Sequence[Stray]) -> Sequence[Stray]:
        return [stray for stray in strays if self.world.discard_stray(stray.worker, stray.host, stray.since)]

    def _database(self, worker: int, host: str | None = None) -> FakeDatabase:
        """That of a worker at a host (None: the one that was asked for last)."""
        if (host is not None and not self.world.bring(worker, host)) or worker not in self.world.databases:
            raise DataError(f"no database: worker={worker} host={host}")
        return self.world.databases[worker]


def parts(world: World, clock: FakeClock) -> Parts:
    """A coordinator's parts on this world."""
    return Parts(
        runtime=lambda: FakeRuntime(world), inputs=FakeInputs(world), steps=FakeSteps(world),
        control=FakeControl(world, world.control), clock=clock, beside=Followings(world),
    )  # fmt: skip


def command_runner(world: World, clock: FakeClock, settings: LoopSettings | None = None) -> CommandRunner:
    """Return a command runner on this world."""
    return CommandRunner(parts(world, clock), settings or LoopSettings(), LiveStatus(), Silent(), Inline())

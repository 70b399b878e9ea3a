"""Run all workers on Spark. A step is one job, or one of many steps of a resident job.

Every other operation is one or a few small jobs, or runs in the driver process.

This module implements `dbsp.runtime.runtime.Runtime` with the functions that `dbsp.runtime.inprocess` calls, so that both give
the same bytes. The driver process holds no durable state, only the epoch. Any Python worker may run the task of any worker.

Source: docs/concepts/steps.md. Faults 5 to 8 of the fault tests concern this module.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self, TypeVar

import pyarrow as pa
from py4j.protocol import Py4JError

from dbsp.distribute.keys import Keys
from dbsp.distribute.strategies import joint
from dbsp.errors import DataError, DbspError, UnavailableError
from dbsp.layout import Layout
from dbsp.logs import StepRecord
from dbsp.processes import find_process
from dbsp.runtime import ahead, migrating, tasks, transfers
from dbsp.runtime.background import BackgroundThread
from dbsp.runtime.copying import Copier, MissingBytes, WarmRound
from dbsp.runtime.inprocess import COPY_WAIT_S
from dbsp.runtime.leases import NO_OLD_VIEWS, Leased, LeasedViews, OldViews
from dbsp.runtime.migrating import Decision
from dbsp.runtime.runtime import NOTHING, BehindOrder, MoveReport, StepReport, Stray, WarmProgress, WorkerReport
from dbsp.runtime.spark import control_job, diagnosis, moving_steps, session
from dbsp.runtime.spark.applications import Application
from dbsp.runtime.spark.beside import beside_workers
from dbsp.runtime.spark.failures import successes
from dbsp.runtime.spark.far_reads import FarReads
from dbsp.runtime.spark.jobs import JobThread
from dbsp.runtime.spark.moving_steps import MovingSteps
from dbsp.runtime.spark.parcel_files import ParcelFiles
from dbsp.runtime.spark.placement import await_executors, ground_rdd, live_hosts
from dbsp.runtime.spark.resident_tasks import ResidentTasks, meet
from dbsp.runtime.spark.shared import PackedWork, pack
from dbsp.runtime.spark.shipping_job import Shipping, ship_rdd
from dbsp.runtime.spark.standby_job import SparkStandbys
from dbsp.runtime.spark.step_job import ORDER, StepTask, as_property, step_rdd
from dbsp.runtime.spark.steps_ahead import StepsAhead, warm_exchange
from dbsp.runtime.spark.task_server import TaskServer
from dbsp.runtime.transfers import Route, TransferProgress
from dbsp.runtime.work import Work
from dbsp.store import CheckpointId, CommitReport, VersionInfo
from dbsp.trace.redistribute import WarmReport
from dbsp.zset.batch import concat, consolidate

if TYPE_CHECKING:
    from pyspark import Broadcast, SparkContext
    from pyspark.core.rdd import RDD

_Outcome = TypeVar("_Outcome")
_GROUNDS_KEPT, _IDLE_S, _LOOK_S = 16, 25.0, 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stage:
    """The objects that all steps in one layout share: the broadcast layout and the runner of the steps."""

    layout: Layout
    broadcast: Broadcast[Layout]
    steps: StepsAhead | ResidentTasks


class SparkRuntime:
    """A runtime that runs all workers as Spark tasks; implements `dbsp.runtime.runtime.Runtime`.

    **State** the epoch; for each layout a ground RDD, a broadcast and the next step's job. A restart needs none of them.
    **Cost** a step is one Spark job of `plan.segments` stages. If `local[N]` has a core for each worker, resident tasks run many
    steps in one job.
    **Errors** a task's `DbspError` is raised unchanged; a lost JVM, executor or worker raises an `UnavailableError`.
    """

    def __init__(
        self,
        work: Work,
        settings: session.SparkSettings | None = None,
        *,
        spark: session.SparkHandle | None = None,
    ) -> None:
        """Start Spark with `settings`, or use the running `spark`, which `close` does not stop."""
        self.work, self.epoch, self.first_answer_s = work, 0, diagnosis.REGISTERED_S
        self.settings = settings or session.SparkSettings()
        self._owned = spark is None
        self._spark = spark if spark is not None else session.start(self.settings)
        self._grounds: dict[tuple[str, ...], RDD[int]] = {}
        self._stage: _Stage | None = None
        self._ran_in: Layout | None = None
        self._packed: Broadcast[PackedWork] = self._context.broadcast(pack(work))
        self._task_server = TaskServer(self._spark.jvm_dir, self._spark.turn)
        self._jobs = self._job_thread("steps", idle_s=_IDLE_S, idle=self._keep_warm, heard=self._task_server.heard)
        self._jobs.silent = self._silent
        self._copy_jobs, self._ahead_jobs = self._job_thread("copies"), self._job_thread("ahead")
        self._warm_jobs, self._behind_jobs = self._job_thread("warm-ups"), self._job_thread("copies behind")
        runs = self._control_at, self._ground, self._job_thread, self.silent, self._await_hosts
        self.standbys = SparkStandbys(self._packed, *runs)
        self.far_reads = FarReads(self, self._context, self._control_at, self._control_rdd, self._job_thread)
        self._near, self._toucher = self._near_background(), BackgroundThread(0)
        self._copier, self._warmer, self._behind = Copier(), Copier(), Copier()
        self._beside_steps: list[Future[Any]] = []
        self._closing, self._moving = threading.Event(), MovingSteps(self._context)
        self.application, self._one_host = Application(self._context), session.is_local(str(self._context.master))
        self._here = beside_workers(work) if self._one_host else None
        least = self.settings.parcel_file_bytes_min
        self._parcels = ParcelFiles.make(self._spark.work_dir, least) if self._one_host else None

    @property
    def _context(self) -> SparkContext:
        return self._spark.context

    def __enter__(self) -> Self:
        """Return the runtime itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the runtime."""
        self.close()

    def create(self, workers: Sequence[int], checkpoint: CheckpointId, hosts: Sequence[str] = ()) -> None:
        """Make version 0 of each worker that has none."""
        self.on_hosts("create", workers, hosts, tasks.create, checkpoint)

    def fence(
        self, epoch: int, workers: Sequence[int], hosts: Sequence[str] = (), since: Mapping[int, int] = NOTHING
    ) -> tuple[int, ...]:
        """Raise the epoch of every worker and end a running copy; return the workers restored from a standby."""
        self._end_copy_jobs()
        if self._here is not None:
            found = self._here.fence(epoch, workers, since=since)
        else:
            restored = self.on_hosts("fence", workers, hosts, tasks.fence, epoch, dict(since))
            found = tuple(worker for worker in workers if restored[worker])
        self.epoch = epoch
        return found

    def fence_others(self, epoch: int, workers: Sequence[int], hosts: Sequence[str] = ()) -> tuple[int, ...]:
        """Fence the workers whose hosts have an executor now and return them; if the job fails, return none."""
        near, at = self._reachable(workers, hosts)
        try:
            reached = self._control_at("fence others", near, at, tasks.fence_other, (epoch,))
        except UnavailableError:
            return ()
        return tuple(worker for worker in near if reached[worker])

    def _reachable(self, workers: Sequence[int], hosts: Sequence[str]) -> tuple[tuple[int, ...], tuple[str, ...]]:
        """Return the workers whose hosts have an executor now, with these hosts; a worker without a host is reachable."""
        places = tuple(hosts) or ("",) * len(workers)
        alive = self._jobs.run("look for executors", lambda: live_hosts(self._context)) if any(places) else set()
        found = [(worker, host) for worker, host in zip(workers, places, strict=True) if not host or host in alive]
        return tuple(worker for worker, _ in found), tuple(host for _, host in found)

    def versions(self, workers: Sequence[int], hosts: Sequence[str] = ()) -> Mapping[int, tuple[VersionInfo, ...]]:
        """Return the versions that every worker can open."""
        return self.on_hosts("versions", workers, hosts, tasks.versions)

    def open(self, version: int, epoch: int, layout: Layout) -> CheckpointId:
        """Open all workers of the layout and return their checkpoint. **Errors** `DataError` if workers hold different ones."""
        self._await_hosts(layout.workers, layout.hosts)
        found = set(self._control_in("open", layout, control_job.open_version, version, epoch, layout).values())
        if len(found) != 1:
            raise DataError(f"workers hold different checkpoints under one version: version={version} found={found}")
        self.epoch = epoch
        checkpoint: CheckpointId = found.pop()
        return checkpoint

    def run_step(self, record: StepRecord, layout: Layout, coming: Layout | None = None) -> StepReport:
        """Run a step and return its report; in a migration, first run a job that asks the workers what moves.

        Without resident tasks a recursion adds jobs for each iteration.
        """
        began_s, started = time.time(), time.perf_counter()
        moving = None if coming is None else self._decide(record, layout, coming)
        layout = layout if moving is None else moving.layout
        try:
            results = self._run(
                self._jobs, f"step {record.step}", layout.workers, layout.hosts,
                lambda: self._step(record, layout, moving),
            )  # fmt: skip
        finally:
            if self._parcels is not None:
                self._parcels.clear()
        reports = sorted(successes(results, WorkerReport), key=lambda report: report.worker)
        if [report.worker for report in reports] != list(layout.workers):
            raise UnavailableError(f"a step ended without all reports: step={record.step} reports={len(reports)}")
        return StepReport(
            step=record.step, began_s=began_s, seconds=time.perf_counter() - started, workers=tuple(reports),
            migration=None if moving is None else moving.report,
        )  # fmt: skip

    def _decide(self, record: StepRecord, old: Layout, new: Layout) -> Decision:
        """Ask the workers of both layouts in one job, and decide in the driver what moves in this step."""
        both, epoch = joint(old, new), self.epoch
        packed = self._control_in("ask", both, moving_steps.ask, record, epoch, old, new)
        answers = {worker: packed[worker].unpacked(self.work.plan) for worker in both.workers}

        def fetch() -> dict[int, Keys]:
            return self._control_in("read keys", both, migrating.keys_of_worker, epoch, record.step - 1)

        return migrating.decide(self._moving.driver, record, epoch, old, new, answers, fetch)

    def read_ahead(self, record: StepRecord, layout: Layout) -> None:
        """Start to read the input of a coming step while another step runs.

        Background workers read the input. This process asks those on its own host; a small job asks those on other hosts. Without
        readers, the input is cheaper to read than to pass between processes. A thread of this process then touches the input,
        and idle resident tasks read it.
        """
        if self.work.readers is None:
            ahead.begin_touching(self._toucher, self.work.resources, record, self.epoch)
            stage = self._stage
            if stage is not None and stage.layout == layout and isinstance(stage.steps, ResidentTasks):
                stage.steps.coming(record, self.epoch)
        elif self._near is not None:
            for worker in layout.workers:
                tasks.read_ahead(self._near, worker, record, self.epoch, layout)
        else:
            task = (layout.workers, layout.hosts, tasks.read_ahead, (record, self.epoch, layout))
            self._ahead_jobs.post(lambda: self._control_rdd(*task).collect())

    def _near_background(self) -> Work | None:
        """Return the work for this process to reach the background workers, which are children of the local JVM.

        None without background workers, or if they may be on other hosts.
        """
        if self.work.background is None or not str(self._context.master).startswith("local["):
            return None
        owner = find_process(self._spark.process.pid)
        return replace(self.work, background=self.work.background.below(owner))

    def _step(self, record: StepRecord, layout: Layout, decided: Decision | None) -> list[Any]:
        """Run the step's tasks and return their results; call on the jobs' thread, whose local properties name the step."""
        self._ran_in = layout
        if decided is None:
            return self._stage_of(layout).steps.run(record, self.epoch)
        self._context.setLocalProperty(ORDER, as_property(record, self.epoch))
        moving = self._moving.moving(decided)
        try:
            at = self._moving.layout(layout)
            task = StepTask(work=self._packed, layout=at, moving=moving, parcels=self._parcels)
            job = step_rdd(self._ground(layout.hosts), task, len(layout.workers), self.work.plan, record.step)
            found: list[Any] = job.collect()
        finally:
            moving_steps.let_go(moving.step)
        if decided.report.over:
            self._moving.close()
        return found

    def pin(self, version: int, checkpoint: CheckpointId, layout: Layout) -> None:
        """Pin the state of every worker."""
        if self._here is not None:
            self._here.pin(version, checkpoint, layout)
        else:
            self._control_in("pin", layout, tasks.pin, version, checkpoint, layout)

    def copy(self, version: int, checkpoint: CheckpointId, layout: Layout) -> Future[Mapping[int, CommitReport]]:
        """Copy every worker piece by piece while steps run, in this process or in small jobs of a separate pool."""
        if self._here is not None:
            return self._here.copy(version, checkpoint, layout)
        return self._copied(layout, tasks.copy, version, checkpoint)

    def copy_behind(
        self, order: BehindOrder, layout: Layout, report: Callable[[int], None]
    ) -> Future[Mapping[int, int]]:
        """Copy a published version of every worker, in this process or in small jobs of a pool of its own."""
        if self._here is not None:
            return self._here.copy_behind(order, layout, report)
        sums = MissingBytes(report)
        piece = self._pieces("copy behind", layout, self._behind_jobs, tasks.copy_behind, order)
        return self._beside(self._behind.start(layout.workers, lambda workers: sums.take(piece(workers))))

    def commit(self, version: int, checkpoint: CheckpointId, layout: Layout) -> Mapping[int, CommitReport]:
        """Pin and copy every worker, in this process or in few jobs; no step runs meanwhile, so pieces are large."""
        if self._here is not None:
            return self._here.commit(version, checkpoint, layout)
        return self._copied(layout, tasks.commit, version, checkpoint, layout).result()

    def _copied(
        self, layout: Layout, function: Callable[..., CommitReport | None], *arguments: Any
    ) -> Future[Mapping[int, CommitReport]]:
        """Run one job for each round of pieces, over the workers that are not finished, until all are."""
        piece = self._pieces("copy", layout, self._copy_jobs, function, *arguments)
        return self._beside(self._copier.start(layout.workers, piece))

    def _pieces(
        self, what: str, layout: Layout, jobs: JobThread, function: Callable[..., Any], *arguments: Any
    ) -> Callable[[tuple[int, ...]], dict[int, Any]]:
        """Return a function that runs one job for a piece of each of some workers, on their hosts."""
        hosts = dict(zip(layout.workers, layout.hosts, strict=True))
        return lambda workers: self._control_at(
            what, workers, tuple(hosts[worker] for worker in workers), function, arguments, jobs
        )

    def redistribute(
        self, version: int, checkpoint: CheckpointId, old: Layout, new: Layout, cut: CheckpointId | None = None
    ) -> MoveReport:
        """Make `version` on every worker of the new layout by slicing the old layout's opened version, or its `cut`."""
        if cut is not None:
            self.pin(version, cut, old)
        if not self.work.common_disk:
            shipping = Shipping(self._packed, version - 1, checkpoint.epoch, old, new)
            while self._shipped(shipping, new.workers, tasks.COMMIT_PIECE_BYTES, self._jobs):
                pass
        taken = self._control_in("redistribute", new, tasks.take_over, version, checkpoint, old, new, cut).values()
        return MoveReport.of(old, new, taken)

    def hold_merges(self, old: Layout, new: Layout) -> None:
        """Hold the merges on every worker of the old layout, in one job."""
        self._control_in("hold merges", old, tasks.hold_merges, self.epoch, old, new)

    def warm(
        self, version: int, old: Layout, new: Layout, report: Callable[[WarmProgress], None], at_once: int
    ) -> Future[Mapping[int, WarmProgress]]:
        """Copy state to every new owner while steps run, in small jobs of a separate pool."""
        epoch, sums = self.epoch, WarmRound(report)
        shipping = Shipping(self._packed, version, epoch, old, new)
        near_piece = self._pieces("warm up", new, self._warm_jobs, tasks.warm, version, epoch, old, new)

        def piece(workers: tuple[int, ...]) -> dict[int, WarmProgress | None]:
            far = {} if self.work.common_disk else self._shipped(shipping, workers, tasks.PIECE_BYTES, self._warm_jobs)
            return sums.take(far | near_piece(tuple(worker for worker in workers if worker not in far)))

        return self._beside(self._warmer.start(new.workers, piece, at_once))

    def _shipped(
        self, shipping: Shipping, target_workers: Sequence[int], bytes_max: int, jobs: JobThread
    ) -> dict[int, WarmReport]:
        """Transfer the next piece from other hosts to these targets; return a report for each target that still lacks data."""
        routes = shipping.routes(target_workers)
        if routes and (asked := shipping.unasked(sorted({route.target_worker for route in routes}))):
            self._ask_held(shipping, asked, routes, jobs)
        if routes:
            task = shipping.piece(routes, bytes_max)
            ground = self._ground(tuple(task.host(task.old, source_worker) for source_worker in task.source_workers))
            shipping.note_arrived(
                successes(jobs.run("carry state", lambda: ship_rdd(ground, task).collect()), TransferProgress)
            )
        targets = {route.target_worker for route in shipping.routes(target_workers)}
        return {worker: shipping.progress(worker) for worker in targets}

    def _ask_held(
        self, shipping: Shipping, target_workers: Sequence[int], routes: Sequence[Route], jobs: JobThread
    ) -> None:
        """Ask targets which chunks they hold already, and record their replies."""
        hosts = tuple(shipping.home(worker) for worker in target_workers)
        arguments = (sorted({route.source_worker for route in routes}), shipping.epoch)
        found = self._control_at("ask what is there", tuple(target_workers), hosts, transfers.held, arguments, jobs)
        for worker, held in found.items():
            shipping.note_held(worker, held)

    def cool(self, workers: Sequence[int], layout_version: int, hosts: Sequence[str] = ()) -> None:
        """End the warm-up for a layout; these workers delete what they copied for that layout."""
        self._warmer.end(self._warm_jobs.cancel)
        self.on_hosts("cool", workers, hosts, tasks.cool, self.epoch, layout_version)

    def _beside(self, jobs: Future[_Outcome]) -> Future[_Outcome]:
        """Register jobs that need cores while steps run: resident tasks are dismissed after each step until the jobs are done."""
        self._beside_steps = [*(each for each in self._beside_steps if not each.done()), jobs]
        self._task_server.send_away()
        return jobs

    def _stays(self) -> bool:
        """Return whether only steps need the cores: this runtime owns Spark, and no other job runs."""
        return self._owned and all(each.done() for each in self._beside_steps)

    def _end_copy_jobs(self) -> None:
        """Cancel the jobs of copies and warm-ups that run while steps run."""
        self._copier.end(self._copy_jobs.cancel)
        self._warmer.end(self._warm_jobs.cancel)
        self._behind.end(self._behind_jobs.cancel)
        self.standbys.cancel()
        self.far_reads.cancel()

    def read_view(self, view: str, layout: Layout) -> pa.Table:
        """Return all workers' rows of a view, consolidated, with their weights in the column `weight`."""
        spec = tasks.materialized_view(self.work.plan, view)
        streams = self._control_in(f"read view {view}", layout, control_job.view_bytes, view, self.epoch)
        parts = [control_job.view_batch(streams[worker], spec.schema) for worker in layout.workers]
        return consolidate(concat(parts, spec.schema)).to_arrow(weight_column="weight")

    def lease_views(self, views: Sequence[str], step: int, layout: Layout, old: OldViews = NO_OLD_VIEWS) -> Leased:  # noqa: ARG002 - all views cost the same
        """Return a lease on all views, which are read here if the workers' files are here, else on the workers' hosts."""
        if not self._one_host:
            return self.far_reads.lease(step, layout, old)
        bases = map(self.work.resources.database, layout.workers)
        return LeasedViews.grant(self.work.plan, step, self.epoch, bases, old)

    def discard(self, workers: Sequence[int], hosts: Sequence[str] = (), *, must: bool = True) -> tuple[int, ...]:
        """Delete databases that no openable version names; return the workers that could not be reached.

        A first job lists these databases, and a second job deletes only the listed ones. With `must`, an absent host is an error.
        """
        near, at = (tuple(workers), tuple(hosts)) if must else self._reachable(workers, hosts)
        try:
            condemned = self.on_hosts("look for what to discard", near, at, tasks.condemn, self.epoch)
            self.on_hosts("discard", near, at, tasks.discard, self.epoch, condemned)
        except UnavailableError:
            if must:
                raise
            return tuple(workers)
        return tuple(worker for worker in workers if worker not in near)

    def discard_strays(self, epoch: int, strays: Sequence[Stray]) -> Sequence[Stray]:
        """Delete databases that workers left on hosts which answer again; return those that are gone from there."""
        away = set(self.silent([stray.host for stray in strays]))
        near = [stray for stray in strays if stray.host not in away]
        for stray in near:
            self._control_at("discard a stray", (stray.worker,), (stray.host,), tasks.discard_stray, (stray, epoch))
        return near

    def warm_up(self, layout: Layout, room_s: float) -> None:
        """Load what steps and their exchanges need into all executors; `NoRoomError` without executors in `room_s`."""
        self._jobs.run("wait for executors", lambda: await_executors(self._context, layout.hosts, room_s))
        self._control_in("warm up", layout, control_job.warm)
        self._jobs.run("warm up an exchange", lambda: warm_exchange(self._stage_of(layout).steps))

    def _job_thread(self, name: str, **idle: Any) -> JobThread:
        """Return a new thread for jobs of one kind, with a Spark job group and a scheduler pool of its own."""
        group = f"dbsp-{self.work.run}-{id(self):x}-{name}"
        return JobThread(self._context, group, self.settings.worker_silence_s, self._spark.alive, pool=name, **idle)

    def _keep_warm(self) -> None:
        """Run an empty job on idle Python workers: Spark ends them after an idle minute, and new ones take seconds to start."""
        layout = self._ran_in
        if layout is not None:
            self._control_rdd(layout.workers, layout.hosts, control_job.warm, ()).collect()

    def cancel(self) -> None:
        """Cancel the running job; any thread may call this. The job's caller gets an `UnavailableError`."""
        self._jobs.cancel()

    def close(self) -> None:
        """End a running copy, stop the jobs, and stop Spark if this runtime started it."""
        self._closing.set()
        if self._here is not None:
            self._here.end_copies(COPY_WAIT_S)
        self._task_server.send_away()
        self._end_copy_jobs()
        for jobs in (self._copy_jobs, self._warm_jobs, self._behind_jobs, self.standbys, self.far_reads, self._jobs):
            jobs.close()
        if self._stage is not None:
            self._stage.steps.close()
        self._task_server.close()
        self._moving.close()
        self._ahead_jobs.close()
        self._toucher.close()
        if self._parcels is not None:
            self._parcels.close()
        if self._near is not None and self._near.background is not None:
            self._near.background.close()
        if self._owned:
            self._spark.stop()

    def on_hosts(
        self, what: str, workers: Sequence[int], hosts: Sequence[str], function: Callable[..., Any], *arguments: Any
    ) -> dict[int, Any]:
        """Run one function for each worker on its host, after waiting for executors there; any host if none is named."""
        places = tuple(hosts) or ("",) * len(workers)
        self._await_hosts(workers, places)
        return self._control_at(what, tuple(workers), places, function, arguments)

    def _control_in(self, what: str, layout: Layout, function: Callable[..., Any], *arguments: Any) -> dict[int, Any]:
        """Run one function for each worker of a layout on the worker's host; return the results by worker."""
        return self._control_at(what, layout.workers, layout.hosts, function, arguments)

    def _control_at(
        self,
        what: str,
        workers: tuple[int, ...],
        hosts: tuple[str, ...],
        function: Callable[..., Any],
        arguments: Any,
        jobs: JobThread | None = None,
    ) -> dict[int, Any]:
        if not workers:
            return {}
        # Resident tasks may hold every core: without their dismissal the job would wait until they are idle for `LINGER_S`.
        if jobs is None:
            self._task_server.send_away()
        results = self._run(
            jobs or self._jobs, what, workers, hosts,
            lambda: self._control_rdd(workers, hosts, function, arguments).collect(),
        )  # fmt: skip
        return dict(successes(results, tuple))

    def _run(
        self, jobs: JobThread, what: str, workers: Sequence[int], hosts: Sequence[str], job: Callable[[], Any]
    ) -> Any:
        """Run a job; if a host is the cause of its failure, the error names the host."""
        try:
            return jobs.run(what, job)
        except DbspError as error:
            if self._closing.is_set() or not self._spark.alive():
                raise
            homes = dict(zip(workers, hosts, strict=True))
            raise diagnosis.explained(
                error, what, homes, lambda: self.silent(hosts), lambda: self._versions(hosts)
            ) from None

    def silent(self, hosts: Sequence[str]) -> Sequence[str]:
        """Return the hosts that do not answer; empty if Spark cannot be asked."""
        with suppress(Py4JError, OSError, EOFError, UnavailableError):
            return diagnosis.hosts_away(self._context, hosts)
        return ()

    def _versions(self, hosts: Sequence[str]) -> Mapping[str, str]:
        """Return the version of dbsp on each host; empty if the job that asks fails."""
        with suppress(DbspError):
            found: Mapping[str, str] = self._jobs.run(
                "ask for versions", lambda: diagnosis.versions_on(self._context, hosts)
            )
            return found
        return {}

    def awaited(self) -> Sequence[int]:
        """Return the workers that have not answered in the running step; see `dbsp.runtime.runtime.TellsAwaited`."""
        layout, stage = self._ran_in, self._stage
        if layout is None:
            return ()
        if stage is not None and stage.layout == layout and isinstance(stage.steps, ResidentTasks):
            slots = self._task_server.awaited()
        else:
            slots = diagnosis.unfinished(self._context, self._jobs.group, len(layout.workers))
        return tuple(layout.workers[slot] for slot in slots if slot < len(layout.workers))

    def hosts_away(self) -> Sequence[str]:
        """Return the hosts of the step's workers on which no executor answers."""
        layout = self._ran_in
        return () if layout is None else self.silent(layout.hosts)

    def copy_trouble(self) -> str | None:
        """Return why the running copy waits; see `dbsp.runtime.runtime.TellsCopyTrouble`."""
        return self._copier.trouble or self._behind.trouble if self._here is None else self._here.copy_trouble()

    def _silent(self) -> str:
        """Return the silent workers and hosts as text for the error of a job without progress."""
        awaited, away = self.awaited(), self.hosts_away()
        silent = f" workers_that_have_not_answered={list(awaited)}" if awaited else ""
        return silent + (f" hosts_that_do_not_answer={', '.join(away)}" if away else "")

    def _control_rdd(
        self, workers: tuple[int, ...], hosts: tuple[str, ...], function: Callable[..., Any], arguments: Any
    ) -> RDD[Any]:
        task = control_job.ControlTask(
            work=self._packed, workers=workers, hosts=hosts, function=function, arguments=arguments
        )
        return self._ground(hosts).mapPartitionsWithIndex(control_job.partial_of(task))

    def _ground(self, hosts: tuple[str, ...]) -> RDD[int]:
        """Return the RDD with an empty partition on each host; keep the last `_GROUNDS_KEPT` of them."""
        if hosts not in self._grounds:
            while len(self._grounds) >= _GROUNDS_KEPT:
                self._grounds.pop(next(iter(self._grounds)))
            self._grounds[hosts] = ground_rdd(self._context, hosts)
        return self._grounds[hosts]

    def _stage_of(self, layout: Layout) -> _Stage:
        """Return the stage that steps in this layout share; make it at the layout's first step, and close the previous one."""
        stage = self._stage
        if stage is None or (stage.layout is not layout and stage.layout != layout):
            if stage is not None:
                stage.steps.close()
                stage.broadcast.unpersist()
            broadcast = self._context.broadcast(layout)
            task = StepTask(work=self._packed, layout=broadcast, parcels=self._parcels)
            stage = self._stage = _Stage(layout=layout, broadcast=broadcast, steps=self._steps(task, layout))
        return stage

    def _steps(self, task: StepTask, layout: Layout) -> StepsAhead | ResidentTasks:
        """Return the runner of a layout's steps: resident tasks if every worker has a core, else jobs with shuffles."""
        ground, plan, workers = self._ground(layout.hosts), self.work.plan, len(layout.workers)
        if meet(self._context, workers):
            return ResidentTasks(ground, task, workers, self._task_server, self._stays)
        return StepsAhead(ground, task, workers, plan)

    def _await_hosts(self, workers: Sequence[int], hosts: Sequence[str]) -> None:
        """Wait until each host has an executor; executors register some time after Spark starts, or after a loss.

        Spark would run the tasks of a host without an executor on any host.
        **Errors** `UnavailableError` if a host has none after `executors_wait_s` seconds.
        """
        limit_s = time.monotonic() + self.settings.executors_wait_s
        while any(hosts):
            alive = self._jobs.run("look for executors", lambda: live_hosts(self._context))
            error = diagnosis.no_executor(workers, hosts, alive)
            if error is None:
                return
            if time.monotonic() > limit_s:
                raise error
            self._closing.wait(_LOOK_S)

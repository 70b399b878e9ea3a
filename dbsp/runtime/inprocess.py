"""The runtime of one process: the same tasks and the same exchange as on Spark, without a JVM.

This runtime serves notebooks, unit tests, the simulator, and small services. It is not a second engine: it calls
`dbsp.runtime.tasks` for each worker in turn. With `encode_parcels` every parcel is encoded and decoded, as between
processes. Otherwise batches are passed as objects. This needs a database whose arrays outlive its transactions, such as
`MemoryDatabase`.

Steps run one worker after the other. The work between steps for a rescale mostly waits for the disk, so
`opens_at_once` workers are fenced, sliced and opened at a time, in threads. Checkpoints of `copies_at_once` workers
are copied at a time, while steps run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

import pyarrow as pa

from dbsp.distribute.keys import Keys
from dbsp.distribute.strategies import joint
from dbsp.errors import DataError, UnavailableError
from dbsp.layout import Layout
from dbsp.logs import StepRecord
from dbsp.runtime import ahead, loops, migrating, tasks
from dbsp.runtime.copying import Copier, MissingBytes, WarmRound
from dbsp.runtime.leases import NO_OLD_VIEWS, Leased, LeasedViews, OldViews
from dbsp.runtime.runtime import NOTHING, BehindOrder, MoveReport, StepReport, WarmProgress, WorkerReport
from dbsp.runtime.steps_first import StepsFirst
from dbsp.runtime.work import Work
from dbsp.steps.exchange import Parcel, from_bytes, least_round, to_bytes
from dbsp.store import CheckpointId, CommitReport, VersionInfo
from dbsp.zset.batch import concat, consolidate

Sent = list[Parcel] | WorkerReport
T = TypeVar("T")

COPY_WAIT_S = 10.0
"""Seconds that a fence waits for a running piece of a copy, which may wait for a lock of a stopped process."""


@dataclass(slots=True)
class InProcessRuntime:
    """A runtime that runs all workers in the calling thread, one after another; see `dbsp.runtime.runtime.Runtime`."""

    work: Work
    encode_parcels: bool = True
    opens_at_once: int = 1
    copies_at_once: int = 1
    epoch: int = 0
    _awaited: tuple[int, ...] = ()
    _copier: Copier = field(default_factory=Copier)
    _warmer: Copier = field(default_factory=Copier)
    _behind: Copier = field(default_factory=Copier)
    _first: StepsFirst = field(default_factory=StepsFirst)
    _migrations: migrating.Driver = field(default_factory=migrating.Driver)

    def create(self, workers: Sequence[int], checkpoint: CheckpointId, hosts: Sequence[str] = ()) -> None:  # noqa: ARG002 - all are here
        """Make version 0 where it is absent."""
        for worker in workers:
            tasks.create(self.work, worker, checkpoint)

    def fence(
        self,
        epoch: int,
        workers: Sequence[int],
        hosts: Sequence[str] = (),  # noqa: ARG002 - all are here
        since: Mapping[int, int] = NOTHING,
    ) -> tuple[int, ...]:
        """Raise the epoch of every worker, and end a running copy; return the workers that were restored from a standby.

        A copy may wait for a lock of a stopped process. It goes on when that process is ended, which raising the
        epoch does.
        """
        self.end_copies(COPY_WAIT_S)
        restored = self._each(workers, lambda worker: tasks.fence(self.work, worker, epoch, since))
        self.end_copies()
        ahead.forget(self.work.background, workers, epoch)
        self.epoch = epoch
        return tuple(worker for worker, lost in zip(workers, restored, strict=True) if lost)

    def fence_others(self, epoch: int, workers: Sequence[int], hosts: Sequence[str] = ()) -> tuple[int, ...]:  # noqa: ARG002 - all are here
        """Fence the workers whose databases can be opened, and return them."""
        reached = self._each(workers, lambda worker: tasks.fence_other(self.work, worker, epoch))
        return tuple(worker for worker, there in zip(workers, reached, strict=True) if there)

    def versions(self, workers: Sequence[int], hosts: Sequence[str] = ()) -> Mapping[int, tuple[VersionInfo, ...]]:  # noqa: ARG002 - all are here
        """Return the versions that every worker can open."""
        return {worker: tasks.versions(self.work, worker) for worker in workers}

    def open(self, version: int, epoch: int, layout: Layout) -> CheckpointId:
        """Open all workers of the layout; they must agree on the checkpoint."""
        found = set(
            self._each(layout.workers, lambda worker: tasks.open_version(self.work, worker, version, epoch, layout))
        )
        if len(found) != 1:
            raise DataError(f"workers hold different checkpoints under one version: version={version} found={found}")
        self.epoch = epoch
        return found.pop()

    def run_step(self, record: StepRecord, layout: Layout, coming: Layout | None = None) -> StepReport:
        """Run the segments in order, each on every worker, and deliver the parcels between them.

        With `coming`, the step is one of a migration from `layout`, on the workers of both layouts; its record holds
        the command.
        """
        with self._first.step():
            return self._run_step(record, layout, coming)

    def _run_step(self, record: StepRecord, layout: Layout, coming: Layout | None) -> StepReport:
        """Run the segments of a step."""
        began_s, started = time.time(), time.perf_counter()
        moving = self._moving(record, layout, coming) if coming is not None else None
        order = tasks.StepOrder(
            record=record, epoch=self.epoch, layout=layout if moving is None else moving.layout,
            migration=None if moving is None else moving.migration,
        )  # fmt: skip
        results = self._on_all(
            order.layout, lambda worker: tasks.run_first_segment(self.work, order, worker, self._send)
        )
        for segment in range(1, self.work.plan.segments):
            results, turn = self._loops(order, segment - 1, results)
            arrived = self._deliver(results, order.layout)

            def later(
                worker: int, segment: int = segment, arrived: Mapping[int, list[Parcel]] = arrived, turn: int = turn
            ) -> Sent:
                return tasks.run_later_segment(self.work, order, segment, worker, arrived[worker], self._send, turn)

            results = self._on_all(order.layout, later)
        reports = tuple(result for result in results.values() if isinstance(result, WorkerReport))
        return StepReport(
            step=record.step, began_s=began_s, seconds=time.perf_counter() - started, workers=reports,
            migration=None if moving is None else moving.report,
        )  # fmt: skip

    def _moving(self, record: StepRecord, old: Layout, new: Layout) -> migrating.Decision:
        """Return the decision which keys move in the step, after asking all workers of both layouts."""
        epoch, workers = self.epoch, joint(old, new).workers
        answers = {worker: migrating.ask(self.work, worker, record, epoch, old, new) for worker in workers}

        def fetch() -> dict[int, Keys]:
            return {one: migrating.keys_of_worker(self.work, one, epoch, record.step - 1) for one in workers}

        return migrating.decide(self._migrations, record, epoch, old, new, answers, fetch)

    def read_ahead(self, record: StepRecord, layout: Layout) -> None:
        """Read the step's input in the threads of the background workers, if the work has any."""
        for worker in layout.workers:
            tasks.read_ahead(self.work, worker, record, self.epoch, layout)

    def _loops(self, order: tasks.StepOrder, depth: int, results: dict[int, Sent]) -> tuple[dict[int, Sent], int]:
        """Run the loops after a segment to their end; return the last parcels, and the number of turns (tasks per worker)."""
        plan, turn = self.work.plan, 0
        place = loops.first_place(plan, depth, _least(results))
        while place is not None:
            arrived = self._deliver(results, order.layout)

            def one(worker: int, place: loops.LoopPlace = place, arrived: Mapping[int, list[Parcel]] = arrived) -> Sent:
                return loops.run_loop_segment(self.work, order, place, worker, arrived[worker], self._send)

            results = self._on_all(order.layout, one)
            turn, place = place.turn + 1, loops.next_place(plan, place, _least(results), order.record.step)
        return results, turn

    def _on_all(self, layout: Layout, run: Callable[[int], Sent]) -> dict[int, Sent]:
        """Run one segment on every worker; return the results by worker."""
        results: dict[int, Sent] = {}
        for slot, worker in enumerate(layout.workers):
            self._awaited = layout.workers[slot:]
            results[worker] = run(worker)
        self._awaited = ()
        return results

    def awaited(self) -> Sequence[int]:
        """Return the workers that have not finished the running segment; see `dbsp.runtime.runtime.TellsAwaited`."""
        return self._awaited

    def hosts_away(self) -> Sequence[str]:
        """Return none: all workers are in this process."""
        return ()

    def copy_trouble(self) -> str | None:
        """Return why the running copy waits; see `dbsp.runtime.runtime.TellsCopyTrouble`."""
        return self._copier.trouble or self._behind.trouble

    def _deliver(self, results: Mapping[int, Sent], layout: Layout) -> dict[int, list[Parcel]]:
        """Sort the parcels by destination."""
        sent = [parcels for parcels in results.values() if not isinstance(parcels, WorkerReport)]
        return {worker: [parcels[slot] for parcels in sent] for slot, worker in enumerate(layout.workers)}

    def _send(self, parcel: Parcel) -> Parcel:
        """Return a parcel as its destination receives it."""
        return from_bytes(to_bytes(parcel), self.work.plan) if self.encode_parcels else parcel

    def pin(self, version: int, checkpoint: CheckpointId, layout: Layout) -> None:
        """Pin every worker."""
        self._each(layout.workers, lambda worker: tasks.pin(self.work, worker, version, checkpoint, layout))

    def copy(self, version: int, checkpoint: CheckpointId, layout: Layout) -> Future[Mapping[int, CommitReport]]:
        """Copy every worker while steps run, piece by piece, some workers at a time."""
        return self._copied(layout.workers, lambda worker: tasks.copy(self.work, worker, version, checkpoint))

    def copy_behind(
        self, order: BehindOrder, layout: Layout, report: Callable[[int], None]
    ) -> Future[Mapping[int, int]]:
        """Copy a published version of every worker, piece by piece, in one thread: steps and commits come first."""
        sums = MissingBytes(report)

        def piece(waiting: tuple[int, ...]) -> dict[int, int | None]:
            return sums.take({worker: tasks.copy_behind(self.work, worker, order) for worker in waiting})

        return self._behind.start(layout.workers, piece)

    def commit(self, version: int, checkpoint: CheckpointId, layout: Layout) -> Mapping[int, CommitReport]:
        """Pin and copy every worker, in large pieces: no step waits for one to end."""
        return self._copied(
            layout.workers, lambda worker: tasks.commit(self.work, worker, version, checkpoint, layout)
        ).result()

    def _copied(
        self, workers: tuple[int, ...], copied: Callable[[int], CommitReport | None]
    ) -> Future[Mapping[int, CommitReport]]:
        """Copy in separate threads, each worker piece by piece.

        These threads are not those of `_each`. A piece may wait for a lock of a stopped process, which only the fence ends.
        So a fence must not wait for the piece.
        """

        def piece(waiting: tuple[int, ...]) -> dict[int, CommitReport | None]:
            return {worker: copied(worker) for worker in waiting}

        return self._copier.start(workers, piece, threads=self.copies_at_once)

    def redistribute(
        self, version: int, checkpoint: CheckpointId, old: Layout, new: Layout, cut: CheckpointId | None = None
    ) -> MoveReport:
        """Make `version` on every worker of the new layout by slicing the opened version of the old one's, or their `cut`."""
        if cut is not None:
            self.pin(version, cut, old)
        taken = self._each(
            new.workers, lambda worker: tasks.take_over(self.work, worker, version, checkpoint, old, new, cut)
        )
        return MoveReport.of(old, new, taken)

    def _each(self, workers: Sequence[int], work: Callable[[int], T]) -> list[T]:
        """Run a function on every worker, some at a time; raise the first error after all have ended."""
        if self.opens_at_once == 1 or len(workers) < 2:  # noqa: PLR2004 - nobody to be beside
            return [work(worker) for worker in workers]
        with ThreadPoolExecutor(self.opens_at_once, thread_name_prefix="dbsp-each") as pool:
            return list(pool.map(work, workers))

    def hold_merges(self, old: Layout, new: Layout) -> None:
        """Hold merges on every worker."""
        for worker in old.workers:
            tasks.hold_merges(self.work, worker, self.epoch, old, new)

    def warm(
        self, version: int, old: Layout, new: Layout, report: Callable[[WarmProgress], None], at_once: int
    ) -> Future[Mapping[int, WarmProgress]]:
        """Copy for every new owner in a thread, one piece each in turn."""
        epoch, sums = self.epoch, WarmRound(report)

        def piece(workers: tuple[int, ...]) -> dict[int, WarmProgress | None]:
            return sums.take({worker: tasks.warm(self.work, worker, version, epoch, old, new) for worker in workers})

        return self._warmer.start(new.workers, piece, at_once)

    def cool(self, workers: Sequence[int], layout_version: int, hosts: Sequence[str] = ()) -> None:  # noqa: ARG002 - all are here
        """End the warm-up for a layout; these workers delete what they copied for it."""
        self._warmer.end()
        for worker in workers:
            tasks.cool(self.work, worker, self.epoch, layout_version)

    def end_copies(self, wait_s: float | None = None) -> None:
        """End all copies that run while steps run; wait for running pieces, at most `wait_s`."""
        self._copier.end(wait_s=wait_s)
        self._warmer.end(wait_s=wait_s)
        self._behind.end(wait_s=wait_s)

    def read_view(self, view: str, layout: Layout) -> pa.Table:
        """Return all workers' rows of a view, consolidated."""
        spec = tasks.materialized_view(self.work.plan, view)
        parts = [tasks.view_part(self.work, worker, spec, self.epoch) for worker in layout.workers]
        return consolidate(concat(parts, spec.schema)).to_arrow(weight_column="weight")

    def lease_views(
        self,
        views: Sequence[str],  # noqa: ARG002 - all views cost the same
        step: int,
        layout: Layout,
        old: OldViews = NO_OLD_VIEWS,
    ) -> Leased:
        """Return a lease on all views of every worker; nothing is read or copied yet."""
        databases = map(self.work.resources.database, layout.workers)
        return LeasedViews.grant(self.work.plan, step, self.epoch, databases, old, self._first.give_way)

    def discard(self, workers: Sequence[int], hosts: Sequence[str] = (), *, must: bool = True) -> tuple[int, ...]:  # noqa: ARG002 - all are here
        """Delete databases that no openable version names."""
        left = []
        for worker in workers:
            try:
                tasks.discard(self.work, worker, self.epoch, {worker: tasks.condemn(self.work, worker, self.epoch)})
            except (DataError, UnavailableError):
                if must:
                    raise
                left.append(worker)
        return tuple(left)

    def close(self) -> None:
        """End a running copy; the files of the worker resources close with the process."""
        self.end_copies()
        if self.work.background is not None:
            self.work.background.close()


def _least(results: Mapping[int, Sent]) -> int | None:
    """Return the first iteration for which some worker has work; None if there is none."""
    return least_round(
        parcel.least for parcels in results.values() if not isinstance(parcels, WorkerReport) for parcel in parcels
    )

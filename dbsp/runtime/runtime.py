"""Define the contract between the caller that decides (a coordinator, a test) and the runtime that runs steps (in
process, Spark).

A runtime makes no decisions: it opens the workers' databases at a version, runs one step on request, and commits on
request. Every request carries the epoch. `WorkerResources` opens a worker's database and logs. It is a picklable value,
because a Spark task builds it again in its own process.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from dbsp.layout import Layout, least_moved, moved_shards
from dbsp.logs import DeadLetter, InputLog, OutputLog, StepRecord
from dbsp.runtime.dead_counts import DeadCount
from dbsp.runtime.leases import NO_OLD_VIEWS, Leased, OldViews
from dbsp.runtime.profile import NodeProfile
from dbsp.steps.figures import StepPhase, TableRead
from dbsp.steps.timing import Signal
from dbsp.store import CheckpointId, CommitReport, Database, VersionInfo

NOTHING: Mapping[int, int] = MappingProxyType({})


class WorkerResources(Protocol):
    """A picklable value that opens a worker's database and logs, or returns those that this process opened before."""

    def database(self, worker: int, create: CheckpointId | None = None) -> Database:
        """Return the worker's database; with `create`, make an absent one at version 0 with this id, else raise `DataError`."""
        ...

    def condemn_database(self, worker: int, epoch: int) -> Any:
        """Return a picklable value that identifies the worker's database, for `discard_database`; refuse an older epoch."""
        ...

    def discard_database(self, worker: int, epoch: int, condemned: Any) -> None:
        """Delete the condemned database, but no database that was made in its place since.

        No openable version's layout names the worker. Refuse if the database has seen a newer epoch.
        """
        ...

    def restore_database(self, worker: int, epoch: int, since: int = 0) -> bool:
        """Restore a worker's lost database from a standby or copies; return whether that was necessary and possible.

        A database that was never fenced in epoch `since` or later remains from an earlier stay of the worker on this host.
        Such a database is replaced.
        """
        ...

    def discard_stray(self, worker: int, epoch: int, since: int) -> bool:
        """Delete the database that a worker left here when it moved away in epoch `since`; return whether there was one."""
        ...

    def input_log(self) -> InputLog:
        """Return the input log, for reading."""
        ...

    def output_log(self, worker: int, first_step: int = 0, *, create: bool = False) -> OutputLog:
        """Return the worker's part of the outputs; `create` lets it begin at `first_step`, else absence is a `DataError`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Stray:
    """The database that `worker` left on `host` when it moved to another one in epoch `since`."""

    worker: int
    host: str
    since: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerReport:
    """The figures of one worker in one step, with the size of its state after it.

    `dead` is the number of its dead rows, with equal rows counted separately; `late` of them were late. `dead_of` has the
    numbers by origin and kind. `letters` are its dead letters, except `letters_left` of them, which were too many to send.
    `reads` is the input that the worker read, by table. `view_bytes` are the bytes of its changes by view, as Arrow with
    weights.
    """

    worker: int
    rows_in: int
    rows_out: int
    dead: int
    seconds: float
    state_bytes: int
    nodes: tuple[NodeProfile, ...] = ()
    signals: tuple[Signal, ...] = ()
    late: int = 0
    dead_of: tuple[DeadCount, ...] = ()
    letters: tuple[DeadLetter, ...] = ()
    letters_left: int = 0
    reads: tuple[TableRead, ...] = ()
    phases: tuple[StepPhase, ...] = ()
    view_bytes: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationReport:
    """The figures of a migration's step: moved keys and rows, keys left to move, rounds of messages, and whether it is over."""

    strategy: str
    moved_keys: int
    moved_rows: int
    moved_bytes: int
    left_keys: int
    rounds: int
    over: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """The report of a finished step: its outputs are durable, and its state is in every worker's scratch.

    `began_s` is the start in seconds since 1970, by the clock of the runtime's process; None if it is unknown.
    """

    step: int
    seconds: float
    began_s: float | None = None
    workers: tuple[WorkerReport, ...] = field(default=())
    migration: MigrationReport | None = None

    @property
    def rows_in(self) -> int:
        """Return the number of the step's input rows."""
        return sum(worker.rows_in for worker in self.workers)

    @property
    def signals(self) -> tuple[Signal, ...]:
        """Return the workers' signals for later steps."""
        return tuple(signal for worker in self.workers for signal in worker.signals)


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveReport:
    """The figures of a redistribution: the shards and bytes that changed owner, and the totals.

    Of the moved bytes, `bytes_ahead` were copied while steps ran. `least` is the smallest share of shards, from 0 to 1,
    that a rescale between these numbers of workers can move.
    """

    workers_before: int
    workers: int
    shards_moved: int
    shards: int
    least: float
    bytes_moved: int
    bytes_total: int
    bytes_ahead: int = 0

    @classmethod
    def of(cls, old: Layout, new: Layout, taken: Collection[CommitReport]) -> MoveReport:
        """Return the report from the commit reports of the new layout's workers."""
        return cls.between(
            old, new, bytes_moved=sum(report.bytes_written for report in taken),
            bytes_total=sum(report.state_bytes for report in taken),
        )  # fmt: skip

    @classmethod
    def between(cls, old: Layout, new: Layout, *, bytes_moved: int, bytes_total: int) -> MoveReport:
        """Return the report for these bytes and layouts."""
        return cls(
            workers_before=len(old.workers), workers=len(new.workers), shards_moved=moved_shards(old, new),
            shards=max(old.shards, new.shards), least=least_moved(old, new), bytes_moved=bytes_moved,
            bytes_total=bytes_total,
        )  # fmt: skip

    @property
    def share(self) -> float:
        """Return the share of the shards that moved, from 0 to 1."""
        return self.shards_moved / self.shards


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmProgress:
    """The progress of a warm-up's round: bytes copied in it, bytes still missing, and bytes of all slices."""

    copied_bytes: int
    missing_bytes: int
    slices_bytes: int


@runtime_checkable
class TellsAwaited(Protocol):
    """A runtime that knows which workers have not finished the running step; any thread may ask."""

    def awaited(self) -> Sequence[int]:
        """Return the workers that have not finished the running step; empty while no step runs."""
        ...

    def hosts_away(self) -> Sequence[str]:
        """Return the hosts of workers that do not answer at all."""
        ...


@runtime_checkable
class KnowsHosts(Protocol):
    """A runtime whose workers are on several hosts, of which one may be lost."""

    @property
    def first_answer_s(self) -> float:
        """Return how long after the start of this runtime a host may take to answer for the first time."""
        ...

    def silent(self, hosts: Sequence[str]) -> Sequence[str]:
        """Return the hosts among `hosts` that do not answer now, within a bounded time; any thread may call."""
        ...

    def cancel(self) -> None:
        """Cancel the running job, from any thread; its caller gets an `UnavailableError`."""
        ...

    def discard_strays(self, epoch: int, strays: Sequence[Stray]) -> Sequence[Stray]:
        """Delete databases that workers left on hosts which answer again; return the strays that no longer exist."""
        ...


@runtime_checkable
class RunsOnHosts(Protocol):
    """A runtime that can run a function for each worker where the worker's files are."""

    def on_hosts(
        self, what: str, workers: Sequence[int], hosts: Sequence[str], function: Callable[..., Any], *arguments: Any
    ) -> Mapping[int, Any]:
        """Call `function(work, worker, *arguments)` on the host of each worker; return the results by worker.

        The function is of a module, so that it can be sent, and may run twice.
        **Errors** those of the function; `UnavailableError` for a host that does not answer.
        """
        ...


class ClusterApplication(Protocol):
    """An application on a cluster."""

    @property
    def name(self) -> str:
        """Return the name that the cluster gave to the application."""
        ...

    def end_other(self, name: str) -> None:
        """Ask the cluster to end another application, which frees its cores; do nothing if there is no such application."""
        ...


@runtime_checkable
class HasApplication(Protocol):
    """A runtime whose executors belong to an application on a cluster.

    The cluster does not notice that a driver is cut off, and keeps its executors' cores for it.
    """

    application: ClusterApplication


@runtime_checkable
class TellsCopyTrouble(Protocol):
    """A runtime whose copies of checkpoints may wait for a place that does not answer; any thread may ask."""

    def copy_trouble(self) -> str | None:
        """Return why a running copy of a checkpoint waits; None if no copy waits."""
        ...


@runtime_checkable
class LagsCopies(Protocol):
    """Worker resources whose copies may lag behind the checkpoints (`copies_required = 0`)."""

    def copy_behind(self, worker: int, order: BehindOrder, bytes_max: int) -> int:
        """Copy about `bytes_max` further bytes of the worker's version; return the bytes that are still missing."""
        ...

    def is_lost(self, worker: int) -> bool:
        """Return whether the copies lag, and the worker's database is lost and could not be restored."""
        ...

    def outputs_needed_from(self, worker: int, epoch: int) -> int | None:
        """Return the first step whose output progress a rollback to the copies would need; None if it would need none."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class BehindOrder:
    """A request to copy a published version while steps run.

    Until the copy is whole, the output progress from step `needed_from` on must stay.
    """

    epoch: int
    version: int
    checkpoint: CheckpointId
    needed_from: int


@runtime_checkable
class CopiesBehind(Protocol):
    """A runtime that copies published versions while steps run."""

    def copy_behind(
        self, order: BehindOrder, layout: Layout, report: Callable[[int], None]
    ) -> Future[Mapping[int, int]]:
        """Begin to copy a version of every worker; the future ends when the copies are whole, or fails.

        `report` is called after every piece with the bytes that are still missing. At most one such copy runs at a time.
        `fence` and `close` end the copy.
        """
        ...


class Runtime(Protocol):
    """A runner of steps and commits.

    Every method raises a `DbspError`; after any error the caller rolls back (a new epoch).

    Where no layout is given, `hosts` names the host of each of `workers`; it is empty where no host is named.
    """

    def create(self, workers: Sequence[int], checkpoint: CheckpointId, hosts: Sequence[str] = ()) -> None:
        """Make version 0 for workers that have no database yet."""
        ...

    def fence(
        self, epoch: int, workers: Sequence[int], hosts: Sequence[str] = (), since: Mapping[int, int] = NOTHING
    ) -> tuple[int, ...]:
        """Write the epoch into every worker's database, durably: older writers are refused from now on.

        A lost database is first restored from a standby, if there is one. Return the workers that were restored. `since` maps
        a worker that moved to its host to the epoch of the move (`WorkerResources.restore_database`).
        """
        ...

    def fence_others(self, epoch: int, workers: Sequence[int], hosts: Sequence[str] = ()) -> tuple[int, ...]:
        """Fence the workers that can be reached and whose databases can be opened; return these workers.

        No openable version needs these workers, so an absent host or a broken database is no error.
        """
        ...

    def versions(self, workers: Sequence[int], hosts: Sequence[str] = ()) -> Mapping[int, tuple[VersionInfo, ...]]:
        """Return the versions that every worker can open; a worker without a database has none."""
        ...

    def open(self, version: int, epoch: int, layout: Layout) -> CheckpointId:
        """Open every worker of the layout at the version; raise `DataError` if outputs below its step are missing."""
        ...

    def run_step(self, record: StepRecord, layout: Layout, coming: Layout | None = None) -> StepReport:
        """Run one step on all workers; on return its outputs are durable. The record must be durable before.

        With `coming`, the step is one of a migration from `layout` to `coming`, on the workers of both layouts. Its record
        contains the command, and the report contains the migration's figures.
        """
        ...

    def pin(self, version: int, checkpoint: CheckpointId, layout: Layout) -> None:
        """Pin the state before step `checkpoint.step` on every worker, to become `version`; nothing is copied yet."""
        ...

    def copy(self, version: int, checkpoint: CheckpointId, layout: Layout) -> Future[Mapping[int, CommitReport]]:
        """Begin to copy the pinned state while steps run; the future ends when every worker holds `version`, or fails.

        At most one copy runs at a time. `fence` and `close` end the copy, and the next `open` deletes its copied chunks.
        """
        ...

    def commit(self, version: int, checkpoint: CheckpointId, layout: Layout) -> Mapping[int, CommitReport]:
        """Run `pin` and `copy` together: every worker holds `version` on return."""
        ...

    def redistribute(
        self, version: int, checkpoint: CheckpointId, old: Layout, new: Layout, cut: CheckpointId | None = None
    ) -> MoveReport:
        """Make `version` on every worker of `new` by slicing the opened version (= version - 1, layout `old`).

        With `cut`, the version is made of the state before step `cut.step`, which all workers of `old` pin first. A cut is
        no version and not durable, so other hosts cannot read it: the hosts of `old` must be those of `new`.

        Data that `warm` copied ahead is not copied again; the version is the same.
        """
        ...

    def hold_merges(self, old: Layout, new: Layout) -> None:
        """Hold merges of the state of the workers of `old` until `open` or `cool`, so that copied chunks still exist later.

        New state is stored separately for every owner in `new`.
        """
        ...

    def warm(
        self, version: int, old: Layout, new: Layout, report: Callable[[WarmProgress], None], at_once: int
    ) -> Future[Mapping[int, WarmProgress]]:
        """Begin to copy, while steps run, the parts of slices of `version` that the workers of `new` lack.

        `report` is called with the progress; `at_once` workers copy at a time. The version must stay openable until the
        future ends. `fence`, `cool` and `close` end the copy. Copied data stays until `cool`, `open` or
        `redistribute`.
        """
        ...

    def cool(self, workers: Sequence[int], layout_version: int, hosts: Sequence[str] = ()) -> None:
        """End the warm-up for the layout with this version number; the workers delete the parts that they copied for it."""
        ...

    def read_ahead(self, record: StepRecord, layout: Layout) -> None:
        """Begin to read the input of the next step, whose record is durable; any thread may call.

        The call returns at once and never raises a `DbspError`.
        """
        ...

    def read_view(self, view: str, layout: Layout) -> pa.Table:
        """Return the rows of a materialized view after the last finished step, with an int64 column `weight`."""
        ...

    def lease_views(self, views: Sequence[str], step: int, layout: Layout, old: OldViews = NO_OLD_VIEWS) -> Leased:
        """Return a lease on at least these views as of the end of step `step - 1`, the last finished one.

        Views in `old` are read as they were before the backfill step that fills them anew.
        Call this between two steps. The lease may be read on any thread while further steps run. A rollback ends it.
        """
        ...

    def discard(self, workers: Sequence[int], hosts: Sequence[str] = (), *, must: bool = True) -> tuple[int, ...]:
        """Delete the databases of workers that no openable version names; return the workers that were not reached.

        With `must`, an unreachable worker is an error.
        """
        ...

    def close(self) -> None:
        """Release processes, files and connections."""
        ...

"""The contract between whoever decides (a coordinator, a test) and whoever runs the steps (in process, Spark).

A runtime holds no decisions: it opens the workers' databases at a version, runs one step when told, commits when told.
Everything it is told carries the epoch. `Site` is how a worker reaches its database and its logs; it is a picklable value,
because a Spark task builds it again in its own process.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from dbsp.layout import Layout, least_moved, moved_shards
from dbsp.logs import InputLog, OutputLog, StepRecord
from dbsp.runtime.profile import NodeProfile
from dbsp.store import CheckpointId, CommitReport, Database, VersionInfo
from dbsp.timing import Signal


class Site(Protocol):
    """Where a worker lives: opens (or finds again, per process) its database and logs. Picklable."""

    def database(self, worker: int, create: CheckpointId | None = None) -> Database:
        """The worker's database; `create` makes an absent one at version 0 with this id, else absent is a `DataError`."""
        ...

    def condemn_database(self, worker: int, epoch: int) -> Any:
        """Say which database of a worker is to be deleted, as a picklable value; refused if it has met a newer epoch."""
        ...

    def discard_database(self, worker: int, epoch: int, condemned: Any) -> None:
        """Delete the database that was condemned, and none that was made in its place since.

        No openable version's layout names the worker. Refused if the database has met a newer epoch.
        """
        ...

    def restore_database(self, worker: int, epoch: int) -> bool:
        """Make the database of a worker that has lost it again from a standby; whether that was needed and there is one."""
        ...

    def input_log(self) -> InputLog:
        """The input log, for reading."""
        ...

    def output_log(self, worker: int, first_step: int = 0, *, create: bool = False) -> OutputLog:
        """The worker's part of the outputs; `create` lets it begin at `first_step`, else absent is a `DataError`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerReport:
    """What one worker did in one step; `state_bytes` after it; of its `dead` rows, equal ones apart, `late` came too late."""

    worker: int
    rows_in: int
    rows_out: int
    dead: int
    seconds: float
    state_bytes: int
    nodes: tuple[NodeProfile, ...] = ()
    signals: tuple[Signal, ...] = ()
    late: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationReport:
    """What a step of a migration did: keys and rows that moved, keys left to move, rounds; whether it is over."""

    strategy: str
    moved_keys: int
    moved_rows: int
    moved_bytes: int
    left_keys: int
    rounds: int
    over: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """One finished step: outputs are durable, state is in every worker's scratch."""

    step: int
    seconds: float
    workers: tuple[WorkerReport, ...] = field(default=())
    migration: MigrationReport | None = None

    @property
    def rows_in(self) -> int:
        """Input rows of the step."""
        return sum(worker.rows_in for worker in self.workers)

    @property
    def signals(self) -> tuple[Signal, ...]:
        """What the workers have to say for the steps to come."""
        return tuple(signal for worker in self.workers for signal in worker.signals)


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveReport:
    """What a redistribution moved: shards and bytes that changed owner, out of all; `bytes_ahead` of them beside the steps.

    `least` is the part of the shards that any rescale between so many workers moves.
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
        """What the workers of the new layout took over."""
        return cls.between(
            old, new, bytes_moved=sum(report.bytes_written for report in taken),
            bytes_total=sum(report.state_bytes for report in taken),
        )  # fmt: skip

    @classmethod
    def between(cls, old: Layout, new: Layout, *, bytes_moved: int, bytes_total: int) -> MoveReport:
        """So many bytes, between these layouts."""
        return cls(
            workers_before=len(old.workers), workers=len(new.workers), shards_moved=moved_shards(old, new),
            shards=max(old.shards, new.shards), least=least_moved(old, new), bytes_moved=bytes_moved,
            bytes_total=bytes_total,
        )  # fmt: skip

    @property
    def share(self) -> float:
        """The part of the shards that moved."""
        return self.shards_moved / self.shards


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmProgress:
    """How far a round of a warm-up has come: bytes copied in it, bytes still missing, bytes of the slices in all."""

    copied_bytes: int
    missing_bytes: int
    slices_bytes: int


@runtime_checkable
class TellsAwaited(Protocol):
    """A runtime that knows which workers have not done their part of the step that runs; may be asked from any thread."""

    def awaited(self) -> Sequence[int]:
        """Return the workers that have not answered; none where no step runs."""
        ...

    def hosts_away(self) -> Sequence[str]:
        """Return the hosts of workers that do not answer at all."""
        ...


class Runtime(Protocol):
    """Runs what it is told. Every method raises a `DbspError`; after any error the caller rolls back (a new epoch).

    `hosts` beside `workers`, where no layout says so, are where these live, one for each; nothing where no host is named.
    """

    def create(self, workers: Sequence[int], checkpoint: CheckpointId, hosts: Sequence[str] = ()) -> None:
        """Make version 0 for workers that have no database yet."""
        ...

    def fence(self, epoch: int, workers: Sequence[int], hosts: Sequence[str] = ()) -> tuple[int, ...]:
        """Write the epoch into every worker's database, durably: older writers are refused from now on.

        A database that is lost is first made again from a standby, where there is one; the workers of whom that is so.
        """
        ...

    def fence_others(self, epoch: int, workers: Sequence[int], hosts: Sequence[str] = ()) -> tuple[int, ...]:
        """Fence those of these workers that can be reached and have a database that can be opened; return these.

        Nothing that can be opened needs them, so a host that is away or a database that is broken is no error.
        """
        ...

    def versions(self, workers: Sequence[int], hosts: Sequence[str] = ()) -> Mapping[int, tuple[VersionInfo, ...]]:
        """What every worker can open; a worker without a database has none."""
        ...

    def open(self, version: int, epoch: int, layout: Layout) -> CheckpointId:
        """Open every worker of the layout at the version; `DataError` if outputs below its step are gone."""
        ...

    def run_step(self, record: StepRecord, layout: Layout, coming: Layout | None = None) -> StepReport:
        """Run one step on all workers; on return its outputs are durable. The record must be durable before.

        With `coming` it is a step of a migration from `layout`, on the workers of both; its record holds the command, and the
        report says what moved.
        """
        ...

    def pin(self, version: int, checkpoint: CheckpointId, layout: Layout) -> None:
        """Pin the state before step `checkpoint.step` on every worker, to become `version`; nothing is copied yet."""
        ...

    def copy(self, version: int, checkpoint: CheckpointId, layout: Layout) -> Future[Mapping[int, CommitReport]]:
        """Begin to copy what was pinned, beside the steps; the future ends when every worker holds `version`, or with an error.

        At most one at a time. `fence` and `close` end it: what is copied then is let go of by the next `open`.
        """
        ...

    def commit(self, version: int, checkpoint: CheckpointId, layout: Layout) -> Mapping[int, CommitReport]:
        """`pin` and `copy` at once: every worker holds `version` on return."""
        ...

    def redistribute(
        self, version: int, checkpoint: CheckpointId, old: Layout, new: Layout, cut: CheckpointId | None = None
    ) -> MoveReport:
        """From the opened version (= version - 1, layout `old`) make `version` on every worker of `new`, by slicing alone.

        With `cut` it is made of the state before step `cut.step`, which all workers of `old` pin first, and which is no version:
        their hosts must be those of `new`, for no other sees what was not made durable.

        What was copied ahead by `warm` is not copied again; the version is the same.
        """
        ...

    def hold_merges(self, old: Layout, new: Layout) -> None:
        """Let merges of what the workers of `old` have wait until `open` or `cool`, so that what `warm` copies is there later.

        What they add to it from now on is stored apart for every owner in `new`.
        """
        ...

    def warm(
        self, version: int, old: Layout, new: Layout, told: Callable[[WarmProgress], None], at_once: int
    ) -> Future[Mapping[int, WarmProgress]]:
        """Begin to copy, beside the steps, what the workers of `new` lack of their slices of `version`; `told` hears how far.

        `at_once` workers copy at a time. The version must stay openable until the future ends. `fence`, `cool` and `close` end
        it; what was copied stays until `cool`, `open` or `redistribute`.
        """
        ...

    def cool(self, workers: Sequence[int], layout_version: int, hosts: Sequence[str] = ()) -> None:
        """End what `warm` has begun for the layout of this version, and let these workers forget what they have of it."""
        ...

    def read_ahead(self, record: StepRecord, layout: Layout) -> None:
        """The step comes next: its input may be read already. Returns at once, from any thread, and raises no `DbspError`."""
        ...

    def read_view(self, view: str, layout: Layout) -> pa.Table:
        """The rows of a materialized view after the last finished step, with an int64 column `weight`."""
        ...

    def discard(self, workers: Sequence[int], hosts: Sequence[str] = (), *, must: bool = True) -> tuple[int, ...]:
        """Delete the databases of workers that no openable version names; without `must`, those that can be reached.

        Return the workers that were not reached.
        """
        ...

    def close(self) -> None:
        """Release processes, files and connections."""
        ...

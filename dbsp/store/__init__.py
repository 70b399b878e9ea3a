"""The contract of a worker's two-version database, and of one step's transaction on it.

Two implementations pass the same contract tests: `dbsp.trace.memory.MemoryDatabase` (in process, volatile) and
`dbsp.storage.WorkerDatabase` (LMDB).

- There are at most two versions, and a commit that crashes leaves v, or v and v+1.
- Every write carries the epoch. The transaction that would write refuses an older epoch (invariant 6).
- A step's writes per segment appear at once, and only once.

Source: docs/concepts/steps.md and docs/concepts/storage.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Protocol, Self, runtime_checkable

from dbsp.errors import DbspError, UnavailableError
from dbsp.stored import stored
from dbsp.trace.chunks import ChunkStore
from dbsp.trace.manifest import SpineState
from dbsp.trace.retention import RetentionBound
from dbsp.trace.spine import Spine
from dbsp.zset.batch import Batch
from dbsp.zset.schema import Arrangement

if TYPE_CHECKING:
    from dbsp.trace.slicing import Warm


@stored("CheckpointId", "run epoch step layout_version fingerprint")
@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointId:
    """The identity of a version; two databases match only when all parts are equal.

    `run` is drawn when the pipeline is first created. `step` is the next step to apply. `epoch` is the one that
    committed.
    """

    run: str
    epoch: int
    step: int
    layout_version: int
    fingerprint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionInfo:
    """A version that can be opened; version 0 is empty and has the id that the database was created with."""

    version: int
    checkpoint: CheckpointId


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionView:
    """A version's traces, by number, and the store of their chunks; valid inside its context only."""

    checkpoint: CheckpointId
    traces: Mapping[int, SpineState]
    chunks: ChunkStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Shipment:
    """A piece of a worker's version on its way to another host: stored chunks by number, as bytes.

    The last piece carries the `record`, which names the references to the chunks. After a piece, `left_bytes` of
    `total_bytes` are still missing. For a standby the last piece carries the small `values` too; None is a deleted one.
    """

    version: int
    chunks: tuple[tuple[int, bytes], ...]
    record: bytes | None
    left_bytes: int
    total_bytes: int
    values: Mapping[bytes, bytes | None] = field(default_factory=dict)


@stored("CommitReport", "version chunks_written bytes_written state_bytes")
@dataclass(frozen=True, slots=True, kw_only=True)
class CommitReport:
    """The figures of a commit: chunks copied to the durable side, their bytes, and the bytes of the whole state."""

    version: int
    chunks_written: int
    bytes_written: int
    state_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSpec:
    """A trace of the plan: its stable number and its arrangement."""

    id: int
    arrangement: Arrangement


RETAINED_TRACES = 1 << 32
"""Traces with numbers from here on belong to no step. The next version that is pinned after a step does not have them."""

NOTHING_SHARED: Mapping[int, Sequence[TraceSpec]] = MappingProxyType({})


class StepTransaction(Protocol):
    """A transaction that reads the state as of step-1 and collects the additions of (step, segment).

    Entering begins the read transactions; callers keep no array read through it after leaving. If (step, segment) was
    already written (`done`), reads still see step-1 and `finish` does nothing. So a task that runs twice emits the
    same bytes and writes once.
    """

    done: bool

    def __enter__(self) -> Self:
        """Begin reading."""
        ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End reading; drop additions that were not finished."""
        ...

    def spine(self, trace: TraceSpec) -> Spine:
        """Return the trace as of step-1."""
        ...

    def append(self, trace: TraceSpec, batch: Batch, retention: RetentionBound | None = None) -> None:
        """Add an arranged batch to the trace, visible from step+1 on; at most once per trace and step.

        From then on, the trace may drop rows below the retention bound.
        """
        ...

    def finish(self) -> None:
        """Write all additions in one transaction that checks the epoch; `FencedError` if the epoch is old."""
        ...


class Lease(Protocol):
    """A lease on some traces of a worker as of one step, which any thread may read while steps run.

    Chunks that the traces refer to are not deleted until `end` (invariant 12). A rollback or a rescale ends the lease.
    After that a read fails with `UnavailableError`, and never returns rows of another step.
    """

    def state(self, trace: TraceSpec) -> SpineState:
        """Return the manifest of a leased trace."""
        ...

    def reading(self) -> AbstractContextManager[ChunkStore]:
        """Yield the chunks for a read of milliseconds; their arrays are invalid after the block."""
        ...

    def end(self) -> None:
        """End the lease after the read in progress, if there is one; repeating the call does nothing."""
        ...


_OVER = "the rows that were read are no longer held"


def lease_over(why: str) -> UnavailableError:
    """Return the error of every read whose lease is over; it says why, in words that follow a colon."""
    hint = "read again: the rows are then those of a later step; `lease_s` in [query] is the time of a lease"
    return UnavailableError(f"{_OVER}: {why}", hint)


def is_lease_over(error: DbspError) -> bool:
    """Return whether an error is one of `lease_over`, perhaps from another process.

    >>> is_lease_over(lease_over("the lease has ended"))
    True
    """
    return isinstance(error, UnavailableError) and error.message.startswith(_OVER)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseNames:
    """The named leases that a reader holds: all in `live`; of those up to `newest` no other.

    Names ascend within an epoch. So a late message ends no lease that was granted after the message was written.

    >>> names = LeaseNames(live=frozenset({2, 4}), newest=4)
    >>> [name for name in range(6) if names.is_over(name)]
    [0, 1, 3]
    """

    live: frozenset[int]
    newest: int

    def is_over(self, name: int) -> bool:
        """Return whether a lease has ended."""
        return name <= self.newest and name not in self.live


@runtime_checkable
class NamesLeases(Protocol):
    """A database whose leases can outlive a process, for readers on other hosts."""

    def grant_named(
        self, epoch: int, names: LeaseNames, step: int, traces: Sequence[TraceSpec]
    ) -> Mapping[int, SpineState]:
        """Grant the lease `names.newest`, end those that are over, and return the manifests; a repeat does no harm.

        **Errors** `UnavailableError` if the database does not hold the state before `step`.
        """
        ...

    def end_named(self, epoch: int, names: LeaseNames) -> None:
        """End the named leases that are over; chunks that they alone held are deleted."""
        ...

    def named_lease(self, epoch: int, name: int, traces: Sequence[TraceSpec]) -> Lease:
        """Return the lease of this name for these traces; its `end` leaves the lease, which goes on.

        **Errors** `UnavailableError` if it has ended.
        """
        ...


class Database(Protocol):
    """The database of one worker: versions v and perhaps v+1, and the steps since v."""

    def versions(self) -> tuple[VersionInfo, ...]:
        """Return the versions that can be opened, oldest first: one or two."""
        ...

    def raise_epoch(self, epoch: int) -> None:
        """Make `epoch` the newest, durably; `FencedError` if the database has a newer one.

        Every rollback begins with this call.
        """
        ...

    def open(self, version: int, epoch: int) -> CheckpointId:
        """Discard the other versions and all steps since `version`, whose step is the next to apply.

        A repeat in the same epoch does nothing: all later steps of this epoch stay.

        **Errors** `UnavailableError` if this epoch opened another version, or if the database no longer holds
        `version`.
        """
        ...

    def attach(self, epoch: int) -> None:
        """Use the state that was opened in `epoch`, perhaps by another process; `UnavailableError` if there is none."""
        ...

    def begin(
        self,
        epoch: int,
        step: int,
        segment: int,
        traces: Sequence[TraceSpec],
        shared: Mapping[int, Sequence[TraceSpec]] = NOTHING_SHARED,
    ) -> StepTransaction:
        """Return a transaction for (step, segment), which reads that segment's state as of step-1.

        The transaction also reads the traces `shared` by other segments. It sees them as of step-1, whether or not
        these segments have already run this step.

        **Errors** `UnavailableError` if the database does not hold step-1 of the segment.
        """
        ...

    def pin(self, version: int, checkpoint: CheckpointId) -> None:
        """Keep the state after step `checkpoint.step - 1`, to become `version` = opened + 1.

        The call copies nothing; repeating it does nothing. Steps may go on at once: the database deletes no chunk that
        the cut refers to (invariant 12). `open` releases the cut.
        """
        ...

    def copy(self, version: int, checkpoint: CheckpointId, bytes_max: int | None = None) -> CommitReport | None:
        """Make about `bytes_max` more bytes of the pinned cut durable while steps run (None: all that is left).

        Returns the report once the cut is `version`, else None. From then on `version` is the opened one, and the
        version before it stays until the next one is complete. Until then the database holds its old versions.
        Repeating the call afterwards returns the same report.

        **Errors** `FencedError` if the checkpoint's epoch is not the newest: every piece checks the epoch where it
        writes.
        """
        ...

    def commit(self, version: int, checkpoint: CheckpointId) -> CommitReport:
        """Pin and copy in one call: make the state after step `checkpoint.step - 1` version `version` = opened + 1."""
        ...

    def read_trace(self, trace: TraceSpec) -> AbstractContextManager[Spine]:
        """Return the trace as of the newest finished step of its segment; keep no array of it after leaving the context."""
        ...

    def lease(self, epoch: int, step: int, traces: Sequence[TraceSpec]) -> Lease:
        """Grant a lease on the traces as of the end of step `step - 1`, between two steps; nothing is copied.

        **Errors** `UnavailableError` if the database does not hold that state.
        """
        ...

    def read_version(self, version: int) -> AbstractContextManager[VersionView]:
        """Return the traces of a version, for slicing."""
        ...

    def read_cut(self, version: int, cut: CheckpointId) -> AbstractContextManager[VersionView]:
        """Return the traces of the cut that was pinned for `version`, for slicing.

        **Errors** `UnavailableError` if another cut or none is pinned.
        """
        ...

    def adopt(
        self,
        version: int,
        checkpoint: CheckpointId,
        make: Callable[[ChunkStore], Mapping[int, SpineState]],
        cut: CheckpointId | None = None,
    ) -> CommitReport:
        """Make `version` from the states that `make` builds in the given chunk store; repeating the call does nothing.

        With `cut`, pinned here for `version`, the states may refer to the cut's chunks, and the version takes the
        cut's small values. Without it, both are those of version - 1. The call releases warm parts that the version
        does not include.
        """
        ...

    @property
    def chunk_bytes_max(self) -> int:
        """Return the approximate bound of a chunk's size in bytes."""
        ...

    def warm_chunks(self) -> Warm:
        """Return the parts of slices that were received ahead of a version, by their keys."""
        ...

    def take_warm(self, epoch: int, layout_version: int, opened: bool, parts: Sequence[tuple[bytes, Batch]]) -> int:
        """Keep the rows of these parts as chunks that no version refers to yet; return the bytes written.

        The chunks stay until `adopt`, `forget_warm`, parts for a later layout, or `open` (invariant 12). `opened` says that
        steps run on this database meanwhile.

        **Errors** The call checks these where it writes:
        - `FencedError` if the epoch is not the newest.
        - `UnavailableError` if `adopt` or `forget_warm` ended a warm-up for this layout or a later one in this epoch.
        - `UnavailableError` if a warm-up for a later layout has begun.
        """
        ...

    def touch_warm(self) -> None:
        """Start loading the warm parts into memory, ready for use; the call does not wait for it."""
        ...

    def hold_merges(self, epoch: int, layout_version: int, cuts: Sequence[int]) -> None:
        """Delay merges of existing batches for the warm-up of this layout, until `end_hold` or the next `open`.

        Meanwhile, from each `pin` on, merges of the pinned batches wait too. So chunks copied for one version are
        still part of the next one. `cuts` are key hashes, ascending, at which the shards of future owners begin. New
        chunks end there, so that each chunk has one owner, and is copied as a whole or stays as it is. Rows and
        outputs are the same either way.

        **Errors** `UnavailableError` if that warm-up was ended, or a later one has begun.
        """
        ...

    def end_hold(self, epoch: int, layout_version: int) -> None:
        """Let merges go on; if they wait for a later layout, this call is a late end and does nothing."""
        ...

    def forget_warm(self, epoch: int, layout_version: int) -> None:
        """Release the warm parts for this layout and earlier ones, and refuse further parts for these layouts.

        Parts for a later layout stay: for that one, this call is a late end.
        """
        ...

    def get(self, table: str, key: bytes) -> bytes | None:
        """Return a value of the small key-value tables, as put since the opened version or before; None if there is none."""
        ...

    def put(self, epoch: int, table: str, key: bytes, value: bytes | None) -> None:
        """Write a small value (None: delete it); part of the next commit."""
        ...

    def get_step(self) -> int:
        """Return the next step to apply."""
        ...

    def set_step(self, epoch: int, step: int) -> None:
        """Set the next step to apply; part of the next commit."""
        ...

    def state_bytes(self) -> int:
        """Return the bytes of all chunks that the newest state refers to."""
        ...

    def close(self) -> None:
        """Release files; uncommitted changes are lost."""
        ...

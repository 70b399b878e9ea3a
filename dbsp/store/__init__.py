"""The contract of a worker's two-version database, and of one step's transaction on it.

Two implementations pass the same contract tests: `dbsp.trace.memory.MemoryDatabase` (in process, forgets) and
`dbsp.storage.WorkerDatabase` (LMDB). Source: docs/concepts/steps.md and
docs/concepts/storage.md: at most two versions; a commit that
crashes leaves v, or v and v+1; every write carries the epoch, and an older epoch is refused in the transaction that would
have written (invariant 6); a step's writes per segment appear at once and once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Protocol, Self

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
    """What a version belongs to; two databases match only when all parts are equal.

    `run` is drawn when the pipeline is first created. `step` is the next step to apply. `epoch` is the one that committed.
    """

    run: str
    epoch: int
    step: int
    layout_version: int
    fingerprint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionInfo:
    """One openable version; version 0 is empty and has the id that the database was created with."""

    version: int
    checkpoint: CheckpointId


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionView:
    """A version's traces, by number, and where their chunks are; to be used inside its context only."""

    checkpoint: CheckpointId
    traces: Mapping[int, SpineState]
    chunks: ChunkStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Shipment:
    """A piece of a worker's version on its way to another host: stored chunks by their numbers, as bytes.

    The `record` comes with the last piece and says what refers to them. After it `left_bytes` of `total_bytes` are missing.
    """

    version: int
    chunks: tuple[tuple[int, bytes], ...]
    record: bytes | None
    left_bytes: int
    total_bytes: int


@stored("CommitReport", "version chunks_written bytes_written state_bytes")
@dataclass(frozen=True, slots=True, kw_only=True)
class CommitReport:
    """What a commit wrote: chunks copied to the durable side, their bytes, bytes of state in all."""

    version: int
    chunks_written: int
    bytes_written: int
    state_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSpec:
    """One trace of the plan: its stable number and how it is arranged."""

    id: int
    arrangement: Arrangement


NOTHING_SHARED: Mapping[int, Sequence[TraceSpec]] = MappingProxyType({})


class StepTransaction(Protocol):
    """Reads the state as of step-1 and collects what (step, segment) adds.

    Entering begins the read transactions; no array read through it may be kept after leaving. If (step, segment) was
    already written (`done`), reads still see step-1 and `finish` does nothing, so that a task which is run twice emits
    the same bytes and writes once.
    """

    done: bool

    def __enter__(self) -> Self:
        """Begin reading."""
        ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End reading; what was not finished is dropped."""
        ...

    def spine(self, trace: TraceSpec) -> Spine:
        """The trace as of step-1."""
        ...

    def append(self, trace: TraceSpec, batch: Batch, retention: RetentionBound | None = None) -> None:
        """Add an arranged batch to the trace, seen from step+1 on; at most once per trace and step.

        Rows below the retention bound may be dropped from then on.
        """
        ...

    def finish(self) -> None:
        """Write everything appended, in one transaction that checks the epoch; `FencedError` if it is old."""
        ...


class Lease(Protocol):
    """Some traces of a worker as of one step, which any thread may read while steps run.

    Chunks that the traces refer to are not deleted until `end` (invariant 12). A rollback or a rescale ends the lease:
    then a read fails with `UnavailableError`, and never returns rows of another step.
    """

    def state(self, trace: TraceSpec) -> SpineState:
        """Return the manifest of a leased trace."""
        ...

    def reading(self) -> AbstractContextManager[ChunkStore]:
        """Yield the chunks for a read of milliseconds; their arrays are invalid after the block."""
        ...

    def end(self) -> None:
        """End the lease; a read that is under way ends first. Repeating it does nothing."""
        ...


class Database(Protocol):
    """One worker's database: versions v and perhaps v+1, and the steps since v."""

    def versions(self) -> tuple[VersionInfo, ...]:
        """The versions that can be opened, oldest first: one or two."""
        ...

    def raise_epoch(self, epoch: int) -> None:
        """Make `epoch` the newest, durably; `FencedError` if a newer one is there. Every rollback begins with it."""
        ...

    def open(self, version: int, epoch: int) -> CheckpointId:
        """Discard other versions and all steps since; the state is that of `version`, its step the next to apply.

        A repeat in the same epoch does nothing: whatever followed in this epoch stays.
        **Errors** `UnavailableError` if another version was opened in this epoch, or `version` is held no more.
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
        """A transaction for (step, segment); `UnavailableError` if step-1 of that segment is not held.

        It also reads the traces `shared` by other segments, as of step-1, whether these have run this step or not.
        """
        ...

    def pin(self, version: int, checkpoint: CheckpointId) -> None:
        """Keep the state after step `checkpoint.step - 1`, to become `version` = opened + 1; repeating it does nothing.

        Costs no copying. Steps may go on at once: nothing that the cut refers to is deleted (invariant 12). `open` lets go of it.
        """
        ...

    def copy(self, version: int, checkpoint: CheckpointId, bytes_max: int | None = None) -> CommitReport | None:
        """Make about `bytes_max` bytes more of the pinned cut durable (None: all that is left), beside running steps.

        The report when the cut is `version`, else None. Then `version` is the opened one; the version before it stays until the
        next one lands. Until then the database holds what it held. Repeating it afterwards gives the same report.

        **Errors** `FencedError` if the checkpoint's epoch is not the newest: every piece checks it where it writes.
        """
        ...

    def commit(self, version: int, checkpoint: CheckpointId) -> CommitReport:
        """`pin` and `copy` at once: make the state after step `checkpoint.step - 1` version `version` = opened + 1."""
        ...

    def read_trace(self, trace: TraceSpec) -> AbstractContextManager[Spine]:
        """The trace as of the newest finished step of its segment; nothing read through it may be kept after leaving."""
        ...

    def lease(self, epoch: int, step: int, traces: Sequence[TraceSpec]) -> Lease:
        """A lease on the traces as of the end of step `step - 1`, granted between two steps; nothing is copied.

        **Errors** `UnavailableError` if that state is not held.
        """
        ...

    def read_version(self, version: int) -> AbstractContextManager[VersionView]:
        """The traces of a version, for slicing."""
        ...

    def read_cut(self, version: int, cut: CheckpointId) -> AbstractContextManager[VersionView]:
        """The traces of the cut that was pinned for `version`, for slicing; `UnavailableError` if it is another or none."""
        ...

    def adopt(
        self,
        version: int,
        checkpoint: CheckpointId,
        make: Callable[[ChunkStore], Mapping[int, SpineState]],
        cut: CheckpointId | None = None,
    ) -> CommitReport:
        """Make `version` out of states that `make` builds in the given chunk store; repeating it does nothing.

        With `cut`, pinned here for `version`, they may refer to its chunks, and its small values are the version's; else it is
        version - 1's. What was taken in warm and is not part of the version is let go of.
        """
        ...

    @property
    def chunk_bytes_max(self) -> int:
        """How large a chunk may be, about."""
        ...

    def warm_chunks(self) -> Warm:
        """The parts of slices that were taken in ahead of a version, by their keys."""
        ...

    def take_warm(self, epoch: int, layout_version: int, opened: bool, parts: Sequence[tuple[bytes, Batch]]) -> int:
        """Keep the rows of these parts as chunks that no version refers to yet; the bytes written.

        They stay until `adopt`, `forget_warm`, parts for a later layout, or `open` (12). `opened`: steps run on this database
        meanwhile.
        **Errors** `FencedError` if the epoch is not the newest, `UnavailableError` if a warm-up for this layout or a later one
        was ended by the first two in this epoch, or a later one has begun; both are checked where it writes.
        """
        ...

    def touch_warm(self) -> None:
        """Have what was taken in warm in memory when it is used; it is not waited for."""
        ...

    def hold_merges(self, epoch: int, layout_version: int, cuts: Sequence[int]) -> None:
        """Let merges of what there is wait for the warm-up of this layout, until `end_hold` or the next `open`.

        While they wait, so do, from each `pin` on, merges of what it pinned. So what is copied of a version is still there in the
        next one. `cuts` are key hashes, ascending, at which owners to come begin: new chunks end there, so that each has one
        owner, and is copied or stays as it is. Rows and outputs are the same either way.
        **Errors** `UnavailableError` if that warm-up was ended, or a later one has begun.
        """
        ...

    def end_hold(self, epoch: int, layout_version: int) -> None:
        """Let merges go on; where they wait for a later layout, this is an end that comes late, and does nothing."""
        ...

    def forget_warm(self, epoch: int, layout_version: int) -> None:
        """Let go of what was taken in warm for this layout or earlier ones; pieces of these that come later are refused.

        What was taken in for a later one stays: this is an end that comes late.
        """
        ...

    def get(self, table: str, key: bytes) -> bytes | None:
        """A value of the small key-value tables, as put since the opened version or before."""
        ...

    def put(self, epoch: int, table: str, key: bytes, value: bytes | None) -> None:
        """Write (None: delete) a small value; part of the next commit."""
        ...

    def get_step(self) -> int:
        """The next step to apply."""
        ...

    def set_step(self, epoch: int, step: int) -> None:
        """Set the next step to apply; part of the next commit."""
        ...

    def state_bytes(self) -> int:
        """Bytes of all chunks the newest state refers to."""
        ...

    def close(self) -> None:
        """Release files; what was not committed is gone."""
        ...

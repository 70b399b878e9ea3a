"""Keep a worker's two-version database in memory: the counterpart of `dbsp.storage.WorkerDatabase` without durability.

States are values, so a version is a dictionary of states, and opening a version is an assignment.
Both databases pass the same contract tests.

Invariants (of ARCHITECTURE.md): 3, 6, 12; a (step, segment) is written once, and its reads always see step - 1.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Self

import numpy as np

from dbsp.errors import FencedError, InternalError, UnavailableError
from dbsp.store import NOTHING_SHARED, RETAINED_TRACES, CheckpointId, CommitReport, TraceSpec, VersionInfo, VersionView
from dbsp.trace.chunks import CHUNK_BYTES_MAX_MEMORY, ChunkRef, ChunkStore, EndingAt, MemoryChunks
from dbsp.trace.manifest import ID, NBYTES, Refs, SpineState, StoredBatch, chunk_ids, chunk_refs, refs_of, state_bytes
from dbsp.trace.merging import store
from dbsp.trace.retention import RetentionBound
from dbsp.trace.slicing import Warm
from dbsp.trace.spine import Spine, append, fuel_for
from dbsp.zset.batch import Batch

States = Mapping[int, SpineState]
Table = tuple[str, bytes]
Appended = tuple[TraceSpec, Batch, RetentionBound | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Version:
    """A version: its checkpoint, next step, traces, and small tables."""

    checkpoint: CheckpointId
    step: int
    traces: States = field(default_factory=dict)
    table: Mapping[Table, bytes] = field(default_factory=dict)
    report: CommitReport | None = None
    sliced: bool = False
    """True if the version was made of slices and no step has run since. Its first step merges no existing runs."""


class MemoryDatabase:
    """A worker's database in this process's memory.

    **State**: the chunks that the versions, the last two steps of each segment and running transactions refer to.

    **Cost**: a commit copies two dictionaries; a step costs what its appends cost.

    **Example**

    >>> from dbsp.store import CheckpointId, TraceSpec
    >>> from dbsp.zset.batch import Batch, arrange
    >>> from dbsp.zset.schema import INT64, Arrangement, Schema
    >>> schema = Schema.of({"key": INT64})
    >>> trace = TraceSpec(id=0, arrangement=Arrangement(schema=schema, key=("key",)))
    >>> first = CheckpointId(run="r", epoch=1, step=0, layout_version=1, fingerprint="f")
    >>> database = MemoryDatabase(first)
    >>> database.open(0, epoch=1).step
    0
    >>> with database.begin(1, 0, 0, [trace]) as step:
    ...     step.append(trace, arrange(Batch.from_rows(schema, [((7,), 2)]), trace.arrangement))
    ...     step.finish()
    >>> with database.read_trace(trace) as spine:
    ...     [row for part in spine.parts() for row in part.to_rows()]
    [((7,), 2)]
    """

    def __init__(
        self, checkpoint: CheckpointId, version: int | None = 0, chunk_bytes_max: int = CHUNK_BYTES_MAX_MEMORY
    ) -> None:
        """Create a database with an empty `version`; None creates no version, for a worker that joins."""
        self.chunks = MemoryChunks(chunk_bytes_max)
        self._lock = threading.RLock()
        self._epoch = checkpoint.epoch
        self._versions: dict[int, _Version] = {}
        if version is not None:
            self._versions[version] = _Version(checkpoint=checkpoint, step=checkpoint.step)
        self._opened: tuple[int, int] | None = None
        self._base_step = checkpoint.step
        self._step = checkpoint.step
        self._held: dict[int, dict[int, States]] = {}
        self._table: dict[Table, bytes] = {}
        self._leases: dict[int, list[SpineState]] = {}
        self._pinned: dict[int, _Version] = {}
        self._warm: dict[bytes, tuple[ChunkRef, ...]] = {}
        self._warm_try: int | None = None
        self._warms = False
        self._kept_below = 0
        self._cuts: Sequence[int] = ()
        self._hold_try = (-1, False)
        self._opened_in: tuple[int, int] | None = None

    @classmethod
    def over(cls, version: int, view: VersionView) -> MemoryDatabase:
        """Return a database in memory that continues from `version` of another database, and never writes to it.

        Chunks of the version are read through `view`, which must stay open. The version's small tables are not copied.
        """
        made = cls(view.checkpoint, None)
        made.chunks = MemoryChunks(view.chunks.chunk_bytes_max, below=view.chunks)
        made._versions = {version: _Version(checkpoint=view.checkpoint, step=view.checkpoint.step, traces=view.traces)}
        return made

    def versions(self) -> tuple[VersionInfo, ...]:
        """Return the versions that can be opened, oldest first."""
        with self._lock:
            held = sorted(self._versions.items())
            return tuple(VersionInfo(version=number, checkpoint=version.checkpoint) for number, version in held)

    def raise_epoch(self, epoch: int) -> None:
        """Make `epoch` the newest epoch; raise `FencedError` if there is a newer one."""
        with self._lock:
            if epoch < self._epoch:
                raise FencedError(f"a newer epoch owns this database: epoch={epoch} newest={self._epoch}")
            self._epoch = epoch

    def open(self, version: int, epoch: int) -> CheckpointId:
        """Open a version: discard other versions and all steps since. A repeat in one epoch does nothing."""
        with self._lock:
            self.raise_epoch(epoch)
            if self._opened_in == (epoch, version):
                self.check(epoch)
            elif self._opened_in is not None and self._opened_in[0] == epoch:
                story = f"epoch={epoch} version={version} opened={self._opened_in[1]}"
                raise UnavailableError(f"another version was opened in this epoch: {story}", "open it in a new epoch")
            if version not in self._versions:
                raise UnavailableError(f"no such version: version={version} versions={sorted(self._versions)}")
            kept = self._versions[version]
            if self._opened_in != (epoch, version):
                self._open(version, epoch, kept)
            return kept.checkpoint

    def _open(self, version: int, epoch: int, kept: _Version) -> None:
        """Reset the state to that of a version."""
        self._versions = {version: kept}
        self._opened, self._opened_in = (version, epoch), (epoch, version)
        self._base_step = kept.checkpoint.step
        self._step, self._table, self._held, self._pinned = kept.step, dict(kept.table), {}, {}
        self._warm, self._warm_try, self._warms = {}, None, False
        self._kept_below, self._cuts, self._hold_try = 0, (), (-1, False)
        self._sweep(force=True)

    def check(self, epoch: int) -> int:
        """Return the opened version; raise an error if the database was not opened in this epoch."""
        if epoch < self._epoch:
            raise FencedError(f"a newer epoch owns this database: epoch={epoch} newest={self._epoch}")
        if self._opened is None or self._opened[1] != epoch:
            raise UnavailableError(f"the database was not opened in this epoch: epoch={epoch}")
        return self._opened[0]

    def attach(self, epoch: int) -> None:
        """Check that the database was opened in this epoch; there is no state to find, because this object has it."""
        with self._lock:
            self.check(epoch)

    def begin(
        self,
        epoch: int,
        step: int,
        segment: int,
        traces: Sequence[TraceSpec],
        shared: Mapping[int, Sequence[TraceSpec]] = NOTHING_SHARED,
    ) -> MemoryTransaction:
        """Begin a transaction for (step, segment); raise `UnavailableError` if the segment's step - 1 is not held."""
        return MemoryTransaction(self, epoch, step, segment, tuple(traces), shared)

    def states_before(self, step: int, segment: int, traces: Collection[int]) -> States:
        """Return the traces of a segment as of step - 1."""
        held = self._held.get(segment, {})
        opened = self._versions[self._opened[0]].traces if self._opened else {}
        base = {number: state for number, state in opened.items() if number in traces}
        if not step_is_open(step, held, self._base_step):
            story = f"step={step} segment={segment} held={sorted(held)}"
            raise UnavailableError(f"the state before this step is not held: {story}")
        return base | dict(held.get(step - 1, {}))

    def _is_done(self, step: int, segment: int) -> bool:
        """Return True if (step, segment) was written."""
        return step in self._held.get(segment, {})

    def _write(self, epoch: int, step: int, segment: int, traces: set[int], appended: Sequence[Appended]) -> None:
        """Append the batches of a transaction, hold the result as `step`, and drop the steps before step - 1."""
        with self._lock:
            self.check(epoch)
            if self._is_done(step, segment):
                return
            states = dict(self.states_before(step, segment, traces))
            chunks = EndingAt(self.chunks, self._cuts)
            kept_below = self.chunks.next_number if self._rests(step) else self._kept_below
            for trace, batch, retention in appended:
                old, fuel = states.get(trace.id, SpineState()), fuel_for(len(batch))
                states[trace.id] = append(old, batch, trace.arrangement, chunks, fuel, retention, kept_below=kept_below)
            held = self._held.get(segment, {})
            self._held[segment] = {number: kept for number, kept in held.items() if number == step - 1} | {step: states}
            self._sweep()

    def _rests(self, step: int) -> bool:
        """Return True if `step` must not merge existing runs: the first step of a version that was made of slices."""
        return self._opened is not None and self._versions[self._opened[0]].sliced and step == self._base_step

    def take_back(self, step: int) -> None:
        """Drop the states that segments have written for `step`, the newest step, which did not complete."""
        with self._lock:
            for held in self._held.values():
                held.pop(step, None)
            self._held = {segment: held for segment, held in self._held.items() if held}

    def pin(self, version: int, checkpoint: CheckpointId) -> None:
        """Keep the state after step `checkpoint.step - 1` for `copy`, so that further steps may run before the copy."""
        with self._lock:
            opened = self.check(checkpoint.epoch)
            if version in self._pinned and self._pinned[version].checkpoint == checkpoint:
                return
            if version != opened + 1:
                raise UnavailableError(f"only the next version can be committed: version={version} opened={opened}")
            traces, step = self._cut(checkpoint.step), self._step_of(checkpoint)
            if checkpoint.step != self._base_step:
                traces = {number: state for number, state in traces.items() if number < RETAINED_TRACES}
            made = _Version(
                checkpoint=checkpoint,
                step=step,
                traces=traces,
                table=dict(self._table),
                sliced=self._rests(checkpoint.step),
            )
            self._pinned = {version: made}
            if self._kept_below:
                self._kept_below = self.chunks.next_number

    def commit(self, version: int, checkpoint: CheckpointId) -> CommitReport:
        """Make the state after step `checkpoint.step - 1` version `version`; a repeat does nothing."""
        with self._lock:
            done = self._versions.get(version)
            if done is None or done.checkpoint != checkpoint:
                self.pin(version, checkpoint)
            return self.copy(version, checkpoint)

    def copy(self, version: int, checkpoint: CheckpointId, bytes_max: int | None = None) -> CommitReport:  # noqa: ARG002
        """Make the pinned cut version `version`; in memory nothing is copied, so one call completes."""
        with self._lock:
            opened = self.check(checkpoint.epoch)
            done = self._versions.get(version)
            if done is not None and done.checkpoint == checkpoint and done.report is not None:
                return done.report
            cut = self._cut_for(version, checkpoint)
            del self._pinned[version]
            report = self._report(version, cut.traces, before=self._versions[opened].traces)
            self._versions = {opened: self._versions[opened], version: replace(cut, report=report)}
            self._opened = (version, checkpoint.epoch)
            self._base_step, self._step = checkpoint.step, max(self._step, cut.step)
            self._sweep()
            return report

    def _step_of(self, checkpoint: CheckpointId) -> int:
        """Return the next step as it was set, or the checkpoint's step if that is greater."""
        return max(self._step, checkpoint.step)

    def _cut(self, step: int) -> States:
        """Return all traces as of step - 1."""
        if self._opened is None:
            raise InternalError("the database is not open")
        states = dict(self._versions[self._opened[0]].traces)
        for segment in self._held:
            states.update(self.states_before(step, segment, ()))
        if not self._held and step != self._base_step:
            raise UnavailableError(f"no step up to the checkpoint was run: step={step} base={self._base_step}")
        return states

    def _report(self, version: int, traces: States, before: States) -> CommitReport:
        """Count the chunks of this version that the version before does not have."""
        now, old = _refs(traces), _refs(before)
        fresh = now[~np.isin(now[:, ID], old[:, ID])]
        return CommitReport(
            version=version,
            chunks_written=len(fresh),
            bytes_written=int(fresh[:, NBYTES].sum()),
            state_bytes=int(now[:, NBYTES].sum()),
        )

    def get(self, table: str, key: bytes) -> bytes | None:
        """Return a value of the small tables, or None."""
        return self._table.get((table, key))

    def put(self, epoch: int, table: str, key: bytes, value: bytes | None) -> None:
        """Write a small value (None deletes it); the next commit includes it."""
        with self._lock:
            self.check(epoch)
            if value is None:
                self._table.pop((table, key), None)
            else:
                self._table[(table, key)] = bytes(value)

    def get_step(self) -> int:
        """Return the next step to apply."""
        return self._step

    def set_step(self, epoch: int, step: int) -> None:
        """Set the next step to apply; the next commit includes it."""
        with self._lock:
            self.check(epoch)
            self._step = step

    def _newest(self) -> States:
        """Return every trace as of the newest finished step of its segment."""
        states = dict(self._versions[self._opened[0]].traces) if self._opened else {}
        for held in self._held.values():
            states.update(held[max(held)])
        return states

    def state_bytes(self) -> int:
        """Return the bytes of all chunks to which the newest state refers."""
        with self._lock:
            return sum(state_bytes(state) for state in self._newest().values())

    @contextmanager
    def read_trace(self, trace: TraceSpec) -> Iterator[Spine]:
        """Open the trace as of the newest finished step of its segment."""
        with self._lock:
            state = self._newest().get(trace.id, SpineState())
            lease = self._lease([state])
        try:
            yield Spine(trace.arrangement, state, self.chunks)
        finally:
            self._release(lease)

    def lease(self, epoch: int, step: int, traces: Sequence[TraceSpec]) -> MemoryLease:
        """Return a lease on the traces as of the end of step `step - 1`."""
        with self._lock:
            self.check(epoch)
            found = self._cut(step)
            states = {trace.id: found.get(trace.id, SpineState()) for trace in traces}
            return MemoryLease(self, epoch, states, self._lease(list(states.values())))

    @contextmanager
    def read_version(self, version: int) -> Iterator[VersionView]:
        """Open the traces of a version for slicing."""
        with self._lock:
            if version not in self._versions:
                raise UnavailableError(f"no such version: version={version} versions={sorted(self._versions)}")
            found = self._versions[version]
            lease = self._lease(list(found.traces.values()))
        try:
            yield VersionView(checkpoint=found.checkpoint, traces=found.traces, chunks=self.chunks)
        finally:
            self._release(lease)

    @contextmanager
    def read_cut(self, version: int, cut: CheckpointId) -> Iterator[VersionView]:
        """Open the traces of the cut that was pinned for `version`, for slicing."""
        with self._lock:
            self.check(cut.epoch)
            found = self._cut_for(version, cut)
            lease = self._lease(list(found.traces.values()))
        try:
            yield VersionView(checkpoint=cut, traces=found.traces, chunks=self.chunks)
        finally:
            self._release(lease)

    def _cut_for(self, version: int, cut: CheckpointId) -> _Version:
        """Return the pinned cut; raise `UnavailableError` if there is none for this version and checkpoint."""
        found = self._pinned.get(version)
        if found is None or found.checkpoint != cut:
            raise UnavailableError(f"no cut is pinned for this version: version={version} step={cut.step}")
        return found

    def adopt(
        self,
        version: int,
        checkpoint: CheckpointId,
        make: Callable[[ChunkStore], Mapping[int, SpineState]],
        cut: CheckpointId | None = None,
    ) -> CommitReport:
        """Make `version` from the states that `make` builds; version - 1 is kept if it exists."""
        with self._lock:
            self.raise_epoch(checkpoint.epoch)
            done = self._versions.get(version)
            if done is not None and done.checkpoint == checkpoint and done.report is not None:
                return done.report
            if max(self._versions, default=version) > version:
                raise UnavailableError(f"a later version is held: version={version} versions={sorted(self._versions)}")
            warm = [ref for refs in self._warm.values() for ref in refs]
            traces = dict(make(self.chunks))
            kept = self._versions.get(version - 1)
            source = kept if cut is None else self._cut_for(version, cut)
            before = {**(source.traces if source else {}), -1: SpineState(entries=(StoredBatch.of(warm),))}
            report = self._report(version, traces, before=before)
            made = _Version(
                checkpoint=checkpoint,
                step=checkpoint.step,
                traces=traces,
                table=source.table if source else {},
                report=report,
                sliced=True,
            )
            self._versions = ({version - 1: kept} if kept else {}) | {version: made}
            if cut is None:  # with a cut, other workers still read the pinned cut here, until `open`
                self._opened, self._held, self._pinned = None, {}, {}
            self._warm, self._warms = {}, False
            self._sweep(force=True)
            return report

    @property
    def chunk_bytes_max(self) -> int:
        """Return the approximate largest size of a chunk in bytes."""
        return self.chunks.chunk_bytes_max

    def warm_chunks(self) -> Warm:
        """Return the chunks of the parts that a warm-up copied, by the keys of the parts."""
        with self._lock:
            return dict(self._warm)

    def touch_warm(self) -> None:
        """Do nothing: all chunks are in memory."""

    def take_warm(self, epoch: int, layout_version: int, opened: bool, parts: Sequence[tuple[bytes, Batch]]) -> int:
        """Keep the rows of these parts as chunks to which no version refers; return their bytes."""
        with self._lock:
            if epoch != self._epoch:
                raise FencedError(f"a newer epoch owns this database: epoch={epoch} newest={self._epoch}")
            if opened:
                self.check(epoch)
            self._begin_warm(layout_version)
            made = {key: tuple(store(batch, self.chunks)) for key, batch in parts}
            self._warm |= made
            return sum(ref.nbytes for refs in made.values() for ref in refs)

    def _begin_warm(self, layout_version: int) -> None:
        """Drop the parts of an earlier layout's warm-up; raise `UnavailableError` if this warm-up has ended."""
        newest = self._warm_try
        if newest is None or newest < layout_version:
            self._warm, self._warm_try, self._warms = {}, layout_version, True
        elif newest > layout_version or not self._warms:
            story = f"layout_version={layout_version} newest={newest}"
            raise UnavailableError(f"this warm-up is over: {story}", "ask for the rescale again")

    def hold_merges(self, epoch: int, layout_version: int, cuts: Sequence[int]) -> None:
        """Make merges of existing chunks wait, and end new chunks at the key hashes `cuts`."""
        with self._lock:
            self.check(epoch)
            newest, over = self._hold_try
            if newest > layout_version or (newest == layout_version and over):
                story = f"layout_version={layout_version} newest={newest}"
                raise UnavailableError(f"this warm-up is over: {story}", "ask for the rescale again")
            if newest < layout_version:
                self._hold_try = (layout_version, False)
                self._kept_below, self._cuts = self.chunks.next_number, tuple(cuts)

    def end_hold(self, epoch: int, layout_version: int) -> None:
        """Let merges proceed, unless they wait for a later layout."""
        with self._lock:
            self.check(epoch)
            if self._hold_try[0] <= layout_version:
                self._hold_try, self._kept_below, self._cuts = (layout_version, True), 0, ()

    def forget_warm(self, epoch: int, layout_version: int) -> None:
        """Drop the parts that were copied for this layout or earlier ones."""
        with self._lock:
            if epoch < self._epoch:
                raise FencedError(f"a newer epoch owns this database: epoch={epoch} newest={self._epoch}")
            if self._warm_try is None or self._warm_try <= layout_version:
                self._warm, self._warm_try, self._warms = {}, layout_version, False
                self._sweep(force=True)

    def close(self) -> None:
        """Drop the steps since the last commit."""
        with self._lock:
            self._opened, self._opened_in, self._held = None, None, {}

    def _lease(self, states: list[SpineState]) -> int:
        """Keep the chunks of these states until `_release`; return the number of the lease."""
        number = max(self._leases, default=0) + 1
        self._leases[number] = states
        return number

    def _release(self, number: int) -> None:
        """End a lease."""
        with self._lock:
            self._leases.pop(number, None)

    def _sweep(self, force: bool = False) -> None:
        """Drop unreferenced chunks when enough bytes have gathered, or if forced (invariant 12)."""
        if not (force or self.chunks.due()):
            return
        roots = [version.traces for version in (*self._versions.values(), *self._pinned.values())]
        roots += [states for held in self._held.values() for states in held.values()]
        ids = [chunk_ids(state) for states in roots for state in states.values()]
        ids += [chunk_ids(state) for lease in self._leases.values() for state in lease]
        ids += [refs_of(refs)[:, ID] for refs in self._warm.values()]
        self.chunks.keep(ids)


def _refs(traces: States) -> Refs:
    """Return all chunk references of several traces."""
    return np.concatenate([chunk_refs(SpineState()), *(chunk_refs(state) for state in traces.values())])


class MemoryTransaction:
    """A step transaction in memory; see `dbsp.store.StepTransaction`."""

    def __init__(
        self,
        database: MemoryDatabase,
        epoch: int,
        step: int,
        segment: int,
        traces: tuple[TraceSpec, ...],
        shared: Mapping[int, Sequence[TraceSpec]] = NOTHING_SHARED,
    ) -> None:
        """Look up the states; nothing is written before `finish`."""
        self._database = database
        self._key = (epoch, step, segment)
        self._appended: dict[int, Appended] = {}
        self._traces = {trace.id for trace in traces}
        with database._lock:
            database.check(epoch)
            self.done = database._is_done(step, segment)
            self._states = dict(database.states_before(step, segment, self._traces))
            for of, found in shared.items():
                self._states |= database.states_before(step, of, {trace.id for trace in found})
        self._lease: int | None = None

    def __enter__(self) -> Self:
        """Begin reading: keep the chunks of the states."""
        with self._database._lock:
            self._lease = self._database._lease(list(self._states.values()))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End reading, and drop appends that were not finished."""
        if self._lease is not None:
            self._database._release(self._lease)
        self._appended = {}

    def spine(self, trace: TraceSpec) -> Spine:
        """Return the trace as of step - 1."""
        return Spine(trace.arrangement, self._states.get(trace.id, SpineState()), self._database.chunks)

    def append(self, trace: TraceSpec, batch: Batch, retention: RetentionBound | None = None) -> None:
        """Add an arranged batch to the trace, visible from step + 1 on; rows below the retention bound may be dropped."""
        check_append(trace, batch, self._traces, self._appended)
        self._appended[trace.id] = (trace, batch, retention)

    def finish(self) -> None:
        """Write all appended batches."""
        epoch, step, segment = self._key
        self._database._write(epoch, step, segment, self._traces, list(self._appended.values()))


class MemoryLease:
    """A lease on a database in memory; see `dbsp.store.Lease`."""

    def __init__(self, database: MemoryDatabase, epoch: int, states: States, number: int) -> None:
        """Hold the states under the number that the database gave them."""
        self._database, self._epoch, self._states, self._number = database, epoch, states, number
        self._over = False

    def state(self, trace: TraceSpec) -> SpineState:
        """Return the manifest of a leased trace."""
        return self._states[trace.id]

    @contextmanager
    def reading(self) -> Iterator[ChunkStore]:
        """Yield the chunks; a chunk that was read stays valid, because it is an object of its own."""
        if self._over or self._database._epoch != self._epoch:
            raise UnavailableError("the rows that were read are no longer held", "read again")
        yield self._database.chunks

    def end(self) -> None:
        """End the lease."""
        if self._over:
            return
        self._over = True
        self._database._release(self._number)


def step_is_open(step: int, held: Collection[int], base_step: int) -> bool:
    """Return True if a step can run or run again: the state before is held, and no later step would be undone."""
    before = step - 1 in held or step == base_step
    return before and (not held or step in held or step == max(held) + 1)


def check_append(trace: TraceSpec, batch: Batch, traces: set[int], appended: Mapping[int, object]) -> None:
    """Raise `InternalError` for an append that the contract rules out."""
    if trace.id not in traces or trace.id in appended:
        raise InternalError(f"a trace is appended to once per step, by its own segment: trace={trace.id}")
    if batch.arrangement != trace.arrangement:
        raise InternalError(f"the batch is not arranged as its trace: trace={trace.id} rows={len(batch)}")

"""The two-version database of one worker, on LMDB: a durable implementation of `dbsp.store.Database`.

The worker's folder contains:

- `durable/`: versions, synced
- `scratch-<epoch>-<boot>/`: steps since the opened version, never synced
- `writers/`: notes of the processes that are inside a write transaction

Many processes use one folder, one after another or at once. One of them opens a version, which makes the scratch of
its epoch, and the others attach to that scratch.

Invariants: 1, 3, 6, 8, 12 of ARCHITECTURE.md; at most two versions; a crash at any moment leaves v, or v and v + 1.

**Example**

>>> import tempfile
>>> from pathlib import Path
>>> from dbsp.store import CheckpointId, TraceSpec
>>> from dbsp.zset.batch import Batch, arrange
>>> from dbsp.zset.schema import INT64, Arrangement, Schema
>>> schema = Schema.of({"key": INT64})
>>> trace = TraceSpec(id=0, arrangement=Arrangement(schema=schema, key=("key",)))
>>> empty = CheckpointId(run="r", epoch=1, step=0, layout_version=1, fingerprint="f")
>>> home = Path(tempfile.mkdtemp()) / "worker-0"
>>> database = WorkerDatabase.create(home, empty)
>>> database.open(0, epoch=1).step
0
>>> with database.begin(1, 0, 0, [trace]) as step:
...     step.append(trace, arrange(Batch.from_rows(schema, [((7,), 2)]), trace.arrangement))
...     step.finish()
>>> later = CheckpointId(run="r", epoch=1, step=1, layout_version=1, fingerprint="f")
>>> database.commit(1, later).chunks_written
1
>>> database.close()
>>> [info.version for info in WorkerDatabase(home).versions()]
[0, 1]
"""

from __future__ import annotations

import errno
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from dbsp.disk import PRIVATE_FOLDER, make_folder, sync_path
from dbsp.errors import ConfigError, DataError, InternalError, UnavailableError
from dbsp.processes import noted
from dbsp.storage import behind, leases, registry, warm, warm_chunks
from dbsp.storage.adopting import adopt_version
from dbsp.storage.chunkfile import CHUNK_BYTES_MAX
from dbsp.storage.committing import copy_version, pin_cut, pinned_cut
from dbsp.storage.copies import WorkerCopies
from dbsp.storage.durable import NUMBERS, Durable, reading_version
from dbsp.storage.environment import MAP_SIZE_BYTES
from dbsp.storage.far_standby import Offer, Settled, offer, piece
from dbsp.storage.leases import WorkerLease
from dbsp.storage.records import Record, table_key
from dbsp.storage.scratch import Rubbish, Scratch, Start
from dbsp.storage.standby import DURABLE, WRITERS, Standby
from dbsp.storage.tables import Txn
from dbsp.storage.transaction import StateReader, Transaction
from dbsp.storage.transfers import Numbers, outgoing
from dbsp.storage.verify import VerifyReport, verify_database
from dbsp.store import (
    NOTHING_SHARED,
    CheckpointId,
    CommitReport,
    LeaseNames,
    Shipment,
    TraceSpec,
    VersionInfo,
    VersionView,
)
from dbsp.trace.chunks import ChunkStore
from dbsp.trace.manifest import SpineState, state_bytes
from dbsp.trace.slicing import HashRange, Warm
from dbsp.trace.spine import Spine
from dbsp.zset.batch import Batch


class WorkerDatabase:
    """The database of one worker, in a folder.

    **State**: two environments, opened when first needed; any number of these objects may exist for one folder.

    **Cost**: opening a version costs nothing per row. A commit copies the chunks made since the last one. Reading
    copies nothing, and reads only touched pages from disk.

    **Limit**: `map_size_bytes` is address space, not disk. The map doubles when it is full, if no thread reads at
    that moment.
    """

    def __init__(
        self,
        path: Path | str,
        map_size_bytes: int = MAP_SIZE_BYTES,
        chunk_bytes_max: int = CHUNK_BYTES_MAX,
        standbys: Sequence[Path] = (),
        copies: WorkerCopies | None = None,
    ) -> None:
        """Use the database in this folder; raise `DataError` if there is none, or its file is broken.

        Each folder of `standbys` holds a copy of the versions, and so does the place of `copies`: see the modules
        `standby` and `copies`.
        """
        self.path = Path(path)
        self._standbys = [Standby(folder, map_size_bytes) for folder in standbys]
        self._followers: list[Standby | WorkerCopies] = [*self._standbys, *([] if copies is None else [copies])]
        self._map_size_bytes = map_size_bytes
        self._chunk_bytes_max = chunk_bytes_max
        if not (self.path / DURABLE).is_dir():
            hint = "create it, or restore it from a standby or a backup"
            raise DataError(f"there is no database here: folder={self.path / DURABLE}", hint)
        (self.path / WRITERS).mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
        self._durable: Durable | None = self._opened_disk()
        self._closed = False
        self._scratch: Scratch | None = None
        self._rubbish: Rubbish | None = None
        self._base_step = 0

    @classmethod
    def create(
        cls,
        path: Path | str,
        checkpoint: CheckpointId,
        version: int | None = 0,
        map_size_bytes: int = MAP_SIZE_BYTES,
        chunk_bytes_max: int = CHUNK_BYTES_MAX,
        standbys: Sequence[Path] = (),
        copies: WorkerCopies | None = None,
    ) -> WorkerDatabase:
        """Make a database that holds `version`, empty (None: no version at all, for a worker that joins).

        The creation is atomic: the database is made in another folder, synced, then renamed into place. Raise
        `ConfigError` if the folder has a database, even one that another process makes meanwhile.
        """
        home = Path(path)
        make_folder(home.parent)
        hint = "use the database that is there, or remove the folder"
        taken = ConfigError(f"the folder of a new database is not empty: folder={home}", hint)
        if home.exists() and any(home.iterdir()):
            raise taken
        temporary = home.with_name(f"{home.name}.new-{uuid.uuid4().hex}")
        temporary.mkdir(mode=PRIVATE_FOLDER)
        Durable.create(temporary / DURABLE, checkpoint, version, map_size_bytes)
        (temporary / WRITERS).mkdir(mode=PRIVATE_FOLDER)
        sync_path(temporary)
        try:
            temporary.rename(home)
        except OSError as error:
            shutil.rmtree(temporary, ignore_errors=True)
            if error.errno == errno.ENOENT:
                raise UnavailableError(
                    f"a new database was taken away before it was in place: folder={home}"
                ) from error
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            raise taken from error
        sync_path(home.parent)
        return cls(
            home, map_size_bytes=map_size_bytes, chunk_bytes_max=chunk_bytes_max, standbys=standbys, copies=copies
        )

    def _both(self) -> tuple[Scratch, Durable]:
        """Return both sides; raise `UnavailableError` before a version is opened or a scratch attached."""
        durable = self._disk()  # first: if another process replaced the folder, this releases the scratch as well
        if self._scratch is None:
            raise UnavailableError(f"no version is open: folder={self.path}", "open a version, or attach to its epoch")
        return self._scratch, durable

    def _disk(self) -> Durable:
        """Return the durable side; open it again if another process has replaced the folder.

        The files of a replaced or deleted folder are released at once, because deleted files take space while they are
        open. If there is no new folder, this call fails, and the next call checks again.
        """
        if self._closed:
            raise UnavailableError(f"the database is closed: folder={self.path}")
        if self._durable is not None and not registry.is_current(self._durable.environment, self._durable.folder):
            self._let_go()
        if self._durable is None:
            self._durable = self._opened_disk()
        return self._durable

    def _opened_disk(self) -> Durable:
        """Open the durable side."""
        return Durable(self.path / DURABLE, self.path / WRITERS, self._map_size_bytes)

    def holds_deleted(self) -> bool:
        """Return whether a file is open that another process has deleted, and no thread of this process uses it now.

        **Cost** two system calls.
        """
        opened = [side for side in (self._durable, self._scratch) if side is not None]
        if all(registry.is_current(side.environment, side.folder) for side in opened):
            return False
        return not any(side.environment.in_use for side in opened)

    def versions(self) -> tuple[VersionInfo, ...]:
        """Return the versions that can be opened, oldest first."""
        durable = self._disk()
        with durable.environment.reading() as txn:
            return durable.versions(txn)

    def raise_epoch(self, epoch: int) -> None:
        """Make `epoch` the newest, durably; end writers of older epochs that are stopped in the middle of a write."""
        durable = self._disk()
        durable.raise_epoch(epoch)
        for standby in self._standbys:
            standby.raise_epoch(durable, epoch)

    def open(self, version: int, epoch: int) -> CheckpointId:
        """Discard other versions and all steps since: the state is that of `version`.

        A repeat in one epoch does nothing.
        """
        durable = self._disk()
        durable.raise_epoch(epoch)
        self._detach()
        self._settle_rubbish()
        for follower in self._followers:  # first: a follower may need versions that the database is about to discard
            follower.open(durable, version, epoch)
        rubbish: list[Path] = []

        def begin(record: Record, next_chunk: int) -> None:
            start = Start(
                epoch=epoch, version=version, base_step=record.checkpoint.step, step=record.step,
                next_chunk=next_chunk, rests=record.sliced,
            )  # fmt: skip
            rubbish[:] = Scratch.create(self.path, start, self._map_size_bytes)

        record = durable.keep_only(epoch, version, begin)
        self._rubbish = Rubbish(rubbish) if rubbish else None
        self._base_step = record.checkpoint.step
        self.attach(epoch)
        return record.checkpoint

    def attach(self, epoch: int) -> None:
        """Use the scratch that this or another process opened in `epoch`; do nothing if it is in use here."""
        self._disk()
        scratch = self._scratch
        if scratch is None or scratch.epoch != epoch or not scratch.is_current():
            self._detach()
            self._scratch = Scratch(self.path, epoch, self._map_size_bytes)

    def _detach(self) -> None:
        """Release the scratch."""
        if self._scratch is not None:
            self._scratch.close()
            self._scratch = None

    def _of_epoch(self, epoch: int) -> tuple[Scratch, Durable]:
        """Return both sides, for a caller of this epoch; release the scratch of another epoch."""
        durable = self._disk()
        scratch = self._scratch
        if scratch is not None and scratch.epoch == epoch and scratch.is_current():
            return scratch, durable
        with durable.environment.reading() as txn:
            durable.check_epoch(txn, epoch)
        self.attach(epoch)
        return self._both()

    def begin(
        self,
        epoch: int,
        step: int,
        segment: int,
        traces: Sequence[TraceSpec],
        shared: Mapping[int, Sequence[TraceSpec]] = NOTHING_SHARED,
    ) -> Transaction:
        """Return a transaction for (step, segment); raise `UnavailableError` if step - 1 of that segment is not held."""
        scratch, durable = self._of_epoch(epoch)
        if self._rubbish is not None and step > self._base_step:
            self._rubbish.delete()
        return Transaction(scratch, durable, step, segment, traces, self._chunk_bytes_max, shared)

    def pin(self, version: int, checkpoint: CheckpointId) -> None:
        """Keep the state after step `checkpoint.step - 1` for `copy`, so that steps may go on before and while it runs."""
        scratch, durable = self._of_epoch(checkpoint.epoch)
        pin_cut(scratch, durable, version, checkpoint)

    def copy(self, version: int, checkpoint: CheckpointId, bytes_max: int | None = None) -> CommitReport | None:
        """Copy about `bytes_max` bytes of a pinned cut (None: all); return the report once `version` is held, else None.

        With standbys and copies the report is returned once they hold the version too.
        """
        scratch, durable = self._of_epoch(checkpoint.epoch)
        report = copy_version(scratch, durable, version, checkpoint, bytes_max)
        if report is None:
            return None
        held = [follower.follow(durable, version, checkpoint.epoch, bytes_max) for follower in self._followers]
        return report if all(held) else None

    def copy_behind(
        self,
        copies: WorkerCopies,
        epoch: int,
        version: int,
        checkpoint: CheckpointId,
        needed_from: int,
        bytes_max: int | None = None,
    ) -> int:
        """Copy about `bytes_max` bytes of a committed version; return the bytes that the copies still lack: see `behind`.

        **Errors** as `WorkerCopies.follow_behind`; `UnavailableError` also if the version is gone.
        """
        scratch, durable = self._of_epoch(epoch)
        held = behind.hold_version(scratch, durable, version, checkpoint, needed_from)
        return copies.follow_behind(durable, held, epoch, bytes_max)

    def outputs_needed_from(self, epoch: int) -> int:
        """Return the first step whose output progress a rollback to the copies needs; 0 if this is not known yet."""
        scratch, _ = self._of_epoch(epoch)
        return behind.needed_from(scratch)

    def commit(self, version: int, checkpoint: CheckpointId) -> CommitReport:
        """Make the state after step `checkpoint.step - 1` version `version`; a repeat does nothing."""
        if not self._holds(version, checkpoint):
            self.pin(version, checkpoint)
        report = self.copy(version, checkpoint)
        if report is None:
            raise InternalError(f"a commit without a limit is not whole: version={version} folder={self.path}")
        return report

    def _holds(self, version: int, checkpoint: CheckpointId) -> bool:
        """Return whether the version was made of this checkpoint already."""
        return VersionInfo(version=version, checkpoint=checkpoint) in self.versions()

    def get(self, table: str, key: bytes) -> bytes | None:
        """Return a small value, as put since the opened version or before; None if it is absent or deleted."""
        scratch, durable = self._both()
        name = table_key(table, key)
        with scratch.environment.reading() as txn, durable.environment.reading() as durable_txn:
            there, value = scratch.value(txn, name)
            return value if there else durable.value(durable_txn, scratch.opened(txn), name)

    def put(self, epoch: int, table: str, key: bytes, value: bytes | None) -> None:
        """Write (None: delete) a small value, as a part of the next commit."""
        name = table_key(table, key)
        self._write_scratch(epoch, lambda scratch, txn: scratch.put_value(txn, name, value))

    def get_step(self) -> int:
        """Return the next step to apply."""
        scratch, _ = self._both()
        with scratch.environment.reading() as txn:
            return scratch.step(txn)

    def set_step(self, epoch: int, step: int) -> None:
        """Set the next step to apply, as a part of the next commit."""
        self._write_scratch(epoch, lambda scratch, txn: scratch.set_step(txn, step))

    def _write_scratch(self, epoch: int, work: Callable[[Scratch, Txn], None]) -> None:
        """Run a small write on the scratch, in a transaction that compares the epoch."""
        scratch, durable = self._of_epoch(epoch)

        def checked(txn: Txn) -> None:
            with durable.environment.reading() as durable_txn:
                durable.check_epoch(durable_txn, epoch)
            work(scratch, txn)

        with noted(durable.writers_folder, epoch):
            scratch.environment.write(checked)

    @contextmanager
    def _reading(self) -> Iterator[StateReader]:
        """Read both sides: yield a `StateReader`, and end it after the block."""
        scratch, durable = self._both()
        reading = StateReader(scratch, durable, self._chunk_bytes_max)
        try:
            yield reading
        finally:
            reading.end()

    def state_bytes(self) -> int:
        """Return the bytes of all chunks to which the newest state refers."""
        with self._reading() as reading:
            return sum(state_bytes(state) for state in reading.newest().values())

    def file_bytes(self) -> Mapping[str, int]:
        """Return the sizes of the files in bytes; sizes far above `state_bytes` mean that a reader holds old pages."""
        sizes = {DURABLE: self._disk().environment.file_bytes()}
        return sizes if self._scratch is None else sizes | {"scratch": self._scratch.environment.file_bytes()}

    @contextmanager
    def read_trace(self, trace: TraceSpec) -> Iterator[Spine]:
        """Yield the trace as of the newest finished step of its segment; it is valid inside the block only."""
        with self._reading() as reading:
            yield Spine(trace.arrangement, reading.newest().get(trace.id, SpineState()), reading.chunks)

    def lease(self, epoch: int, step: int, traces: Sequence[TraceSpec]) -> WorkerLease:
        """Return a lease on the traces as of the end of step `step - 1`: see the module `leases`."""
        scratch, durable = self._of_epoch(epoch)
        return WorkerLease.grant(scratch, durable, step, traces, self._chunk_bytes_max)

    def grant_named(
        self, epoch: int, names: LeaseNames, step: int, traces: Sequence[TraceSpec]
    ) -> Mapping[int, SpineState]:
        """Grant a named lease, end the leases that are over, and return the manifests: see the module `leases`."""
        return leases.grant_named(*self._of_epoch(epoch), names, step, traces)

    def end_named(self, epoch: int, names: LeaseNames) -> None:
        """End the named leases that are over."""
        leases.end_named(*self._of_epoch(epoch), names)

    def named_lease(self, epoch: int, name: int, traces: Sequence[TraceSpec]) -> WorkerLease:
        """Return a named lease, for these traces; `UnavailableError` if it has ended."""
        scratch, durable = self._of_epoch(epoch)
        return WorkerLease.named(scratch, durable, name, traces, self._chunk_bytes_max)

    @contextmanager
    def read_version(self, version: int) -> Iterator[VersionView]:
        """Yield the traces of a version, to be sliced; they are valid inside the block only."""
        with reading_version(self._disk(), version) as view:
            yield view

    def ship(self, version: int, ranges: Sequence[HashRange], held: Numbers, bytes_max: int) -> Shipment:
        """Return a piece of a version for a target on another host: see the module `transfers`."""
        return outgoing(self._disk(), version, ranges, held, bytes_max)

    def offer(self, version: int) -> Offer:
        """Return the offer of a version to a standby on another host: see the module `far_standby`."""
        return offer(self._disk(), version)

    def piece(self, version: int, settled: Settled, bytes_max: int) -> Shipment:
        """Return a piece of a version for a standby on another host."""
        return piece(self._disk(), version, settled, bytes_max)

    @contextmanager
    def read_cut(self, version: int, cut: CheckpointId) -> Iterator[VersionView]:
        """Yield the traces of a cut that was pinned for `version`, to be sliced; they are valid inside the block only."""
        scratch, durable = self._of_epoch(cut.epoch)
        record = pinned_cut(scratch, version, cut)
        reading = StateReader(scratch, durable, self._chunk_bytes_max)
        try:
            yield VersionView(checkpoint=cut, traces=record.traces, chunks=reading.chunks)
        finally:
            reading.end()

    def adopt(
        self,
        version: int,
        checkpoint: CheckpointId,
        make: Callable[[ChunkStore], Mapping[int, SpineState]],
        cut: CheckpointId | None = None,
    ) -> CommitReport:
        """Make `version` out of states that `make` builds; keep the existing version - 1 next to it.

        With `cut`, which is pinned for `version`, the states may refer to its chunks, and its small values are the
        version's. The database does not hold `version` until the last transaction has landed. The caller opens a
        version afterwards.
        """
        scratch: Scratch | None = None
        if cut is None:
            self._detach()
            durable = self._disk()
        else:
            scratch, durable = self._of_epoch(cut.epoch)
            pinned_cut(scratch, version, cut)
        report = adopt_version(durable, version, checkpoint, make, self._chunk_bytes_max, scratch)
        for follower in self._followers:
            follower.follow(durable, version, checkpoint.epoch)
        return report

    @property
    def chunk_bytes_max(self) -> int:
        """Return the approximate size limit of a chunk, in bytes."""
        return self._chunk_bytes_max

    def warm_chunks(self) -> Warm:
        """Return the parts of slices that were taken in ahead of a version, by their keys."""
        with self._disk().environment.reading() as txn:
            return warm_chunks.chunks(txn)

    def take_warm(self, epoch: int, layout_version: int, opened: bool, parts: Sequence[tuple[bytes, Batch]]) -> int:
        """Store the rows of these parts as chunks that no version refers to yet; return the bytes written."""
        durable = self._disk()

        def first_number() -> int:
            with durable.environment.reading() as txn:
                first = durable.next_chunk(txn)
            if not opened:
                return first
            scratch, _ = self._of_epoch(epoch)
            with noted(durable.writers_folder, epoch):
                return scratch.skip_numbers(NUMBERS, first)

        return warm.take(durable, epoch, layout_version, parts, self._chunk_bytes_max, first_number)

    def touch_warm(self) -> None:
        """Request those pages of warm chunks that are not in memory, without waiting for them."""
        warm.touch(self._disk())

    def hold_merges(self, epoch: int, layout_version: int, cuts: Sequence[int]) -> None:
        """Hold merges of existing chunks, and end new chunks at `cuts`, until `end_hold` or the next `open`."""
        self._write_scratch(epoch, lambda scratch, txn: scratch.hold_merges(txn, layout_version, cuts))

    def end_hold(self, epoch: int, layout_version: int) -> None:
        """Let merges go on, unless a later layout's warm-up holds them."""
        self._write_scratch(epoch, lambda scratch, txn: scratch.end_hold(txn, layout_version))

    def forget_warm(self, epoch: int, layout_version: int) -> None:
        """Delete the warm chunks of this layout or earlier ones."""
        warm.forget(self._disk(), epoch, layout_version)

    def verify(self) -> VerifyReport:
        """Read every chunk of every version and compare all checksums; a `DataError` names the first broken chunk."""
        return verify_database(self._disk())

    def close(self) -> None:
        """Release the files; uncommitted state is lost when the next epoch opens a version."""
        self._closed = True
        self._let_go()
        self._settle_rubbish()

    def _let_go(self) -> None:
        """Release the files of both sides."""
        self._detach()
        if self._durable is not None:
            self._durable.close()
            self._durable = None

    def _settle_rubbish(self) -> None:
        """Wait until the files of older epochs' scratches are deleted."""
        if self._rubbish is not None:
            self._rubbish.settle()
            self._rubbish = None

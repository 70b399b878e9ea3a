"""The durable environment of a worker: epoch, versions, their chunks, small values. Every commit is synced.

Tables:

- `meta`: the epoch, the next chunk number, and other single values
- `versions`: version -> record
- `chunks`
- `values`: small values, with one entry for each version in which they changed
- `changed`: version -> the keys that changed in it
- `loose`: copied chunks to which no version refers, not yet or not any more
- `warm`: see the module `warm`

Invariants:

1. At most two versions. A commit adds chunks in bounded transactions, and no version refers to them yet. One last small
   transaction adds the version and drops the version before the last. It also deletes the chunks to which only the dropped
   version referred (invariants 8, 12).
2. The epoch is compared inside each write transaction (invariant 6).
3. A writer registers itself before it begins (`dbsp.processes`). Raising the epoch first ends registered writers of older epochs.
4. A task may run again, and late, in the same epoch, while its first attempt goes on. So every decision is checked again inside
   its transaction. A version is opened once per epoch, lands once, and never below another; a chunk number is given out once.
5. A write changes only the file that is in the folder: a transaction on a file that another process has replaced is refused.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from dbsp.errors import DataError, FencedError, UnavailableError
from dbsp.lmdb_environments import data_file
from dbsp.processes import end_older, noted
from dbsp.storage import records, registry, warm_chunks
from dbsp.storage.chunkfile import ReadChunks, Shelf
from dbsp.storage.environment import DATABASE, DatabaseEnvironment, create_environment
from dbsp.storage.records import Record, number_key, number_of
from dbsp.storage.tables import Txn
from dbsp.store import CheckpointId, VersionInfo, VersionView
from dbsp.trace.manifest import ID, NBYTES, Refs, SpineState, chunk_refs

T = TypeVar("T")

COPY_BYTES = 16 << 20
"""Maximum bytes that one transaction copies in, unless a single chunk is larger."""

NUMBERS = 1 << 40
"""The number of chunk numbers reserved at once: more than any caller uses, and a small part of 2**64."""

_EPOCH, _NEXT_CHUNK, _OPENED, _LIFE = b"epoch", b"next chunk", b"opened", b"life"


@dataclass(frozen=True, slots=True, kw_only=True)
class Root:
    """The content of a commit's last transaction.

    These are the version and its record, its small values, the chunks to keep for running steps, and the flag that
    ends a warm-up.
    """

    version: int
    record: Record
    values: Mapping[bytes, bytes | None]
    keep: npt.NDArray[np.uint64]
    ends_warm: bool = False


def fill_new(checkpoint: CheckpointId, version: int | None) -> Callable[[Txn], None]:
    """Return a function that fills a new durable environment: epoch, life, and an empty version (None: no version)."""

    def fill(txn: Txn) -> None:
        txn.put("meta", _EPOCH, number_key(checkpoint.epoch))
        txn.put("meta", _LIFE, _new_life())
        txn.put("meta", _NEXT_CHUNK, number_key(1))
        if version is not None:
            record = Record(checkpoint=checkpoint, step=checkpoint.step, traces={})
            txn.put("versions", number_key(version), records.encode_record(record))

    return fill


def _new_life() -> bytes:
    """Return a random name that no other database has, not even a later database in the same folder."""
    return uuid.uuid4().hex.encode()


class Durable:
    """A worker's durable side, opened in this process."""

    def __init__(self, folder: Path, writers_folder: Path, map_size_bytes: int) -> None:
        """Open the durable environment in `folder`; raise `DataError` if it is missing, broken or cut short."""
        DATABASE.check(folder)
        self.folder = folder
        self.writers_folder = writers_folder
        self.environment = registry.acquire(folder, lambda: DatabaseEnvironment(folder, map_size_bytes, sync=True))

    @staticmethod
    def create(folder: Path, checkpoint: CheckpointId, version: int | None, map_size_bytes: int) -> None:
        """Make a new durable environment. This is not atomic: the caller renames the folder into place."""
        create_environment(folder, map_size_bytes, sync=True, fill=fill_new(checkpoint, version))

    def close(self) -> None:
        """Release the environment."""
        registry.release(self.environment)

    # ---- epoch

    def epoch(self, txn: Txn) -> int:
        """Return the newest epoch that this database has seen."""
        value = txn.get("meta", _EPOCH)
        if value is None:
            raise DataError(f"the database has no epoch: file={data_file(self.folder)}", "restore it from a backup")
        return number_of(value)

    def check_epoch(self, txn: Txn, epoch: int) -> None:
        """Refuse an epoch that is not the newest."""
        newest = self.epoch(txn)
        if epoch < newest:
            raise FencedError(f"a newer epoch owns this database: epoch={epoch} newest={newest} folder={self.folder}")
        if epoch > newest:
            raise UnavailableError(f"this epoch was not announced to the database: epoch={epoch} newest={newest}")

    def write(self, epoch: int, work: Callable[[Txn], T]) -> T:
        """Run `work` in one synced transaction of the newest epoch, on the file that is in the folder.

        **Errors** `FencedError` for an older epoch, `UnavailableError` where another process has replaced the file.
        """

        def checked(txn: Txn) -> T:
            self.check_epoch(txn, epoch)
            self.check_place()
            return work(txn)

        with noted(self.writers_folder, epoch):
            return self.environment.write(checked)

    def check_place(self) -> None:
        """Raise `UnavailableError` if the opened file is not in its folder any more.

        A process that removes a database does it inside a transaction on its file, so the check holds until this
        transaction ends.
        """
        if not registry.is_current(self.environment, self.folder):
            raise UnavailableError(f"the database was replaced or taken away: folder={self.folder}")

    def raise_epoch(self, epoch: int) -> None:
        """Make `epoch` the newest epoch, after ending writers of older epochs; raise `FencedError` for an older epoch."""
        with self.environment.reading() as txn:
            newest = self.epoch(txn)
        if epoch < newest:
            raise FencedError(f"a newer epoch owns this database: epoch={epoch} newest={newest} folder={self.folder}")
        end_older(self.writers_folder, epoch)
        if epoch == newest:
            return

        def raised(txn: Txn) -> None:
            if epoch < self.epoch(txn):
                raise FencedError(f"a newer epoch owns this database: epoch={epoch} newest={self.epoch(txn)}")
            self.check_place()
            txn.put("meta", _EPOCH, number_key(epoch))

        with noted(self.writers_folder, epoch):
            self.environment.write(raised)

    def life(self, epoch: int) -> str:
        """Return the random name of this database, its *life*, which differs from that of a later database in its folder.

        A database made by an earlier version of dbsp has no life, and gets one here.
        """
        with self.environment.reading() as txn:
            there = txn.get("meta", _LIFE)
            return bytes(there).decode() if there is not None else self.write(epoch, self._named)

    def _named(self, txn: Txn) -> str:
        """Return the database's life (its random name); draw one if no process has done so."""
        if not txn.has("meta", _LIFE):
            txn.put("meta", _LIFE, _new_life())
        return bytes(txn.get("meta", _LIFE) or b"").decode()

    def is_called(self, txn: Txn, life: str | None) -> bool:
        """Return whether this database has the given life."""
        return life is not None and bytes(txn.get("meta", _LIFE) or b"") == life.encode()

    # ---- versions

    def versions(self, txn: Txn) -> tuple[VersionInfo, ...]:
        """Return the versions that are held, oldest first."""
        found = []
        for key, value in txn.items("versions"):
            record = records.decode_record(bytes(value), self._where(number_of(key)))
            found.append(VersionInfo(version=number_of(key), checkpoint=record.checkpoint))
        return tuple(found)

    def find(self, txn: Txn, version: int) -> Record | None:
        """Return a version's record, or None if it is not held; no version is below 0."""
        if version < 0:
            return None
        value = txn.get("versions", number_key(version))
        return None if value is None else records.decode_record(bytes(value), self._where(version))

    def record(self, txn: Txn, version: int) -> Record:
        """Return a version's record; raise `UnavailableError` if it is not held."""
        found = self.find(txn, version)
        if found is None:
            held = [info.version for info in self.versions(txn)]
            raise UnavailableError(f"no such version: version={version} versions={held} folder={self.folder}")
        return found

    def _where(self, version: int) -> str:
        """Return the words with which errors name a record."""
        return f"file={data_file(self.folder)} version={version}"

    def chunks(self, txn: Txn) -> ReadChunks:
        """Return the chunks of all versions, as a store that checks each chunk when it is first touched."""
        return ReadChunks((self.shelf(txn),))

    def shelf(self, txn: Txn) -> Shelf:
        """Return the durable side as a source of chunks whose bytes are checked."""
        return Shelf(environment=self.environment, txn=txn, check=True)

    # ---- committing

    def has_chunk(self, txn: Txn, number: int) -> bool:
        """Return whether a chunk was copied in."""
        return txn.has("chunks", number_key(number))

    def lacking(self, refs: Refs, bytes_max: int | None) -> tuple[list[int], bool]:
        """Return about `bytes_max` bytes of the chunks that are not copied in yet, and whether these are the last ones."""
        found, size = list[int](), 0
        with self.environment.reading() as txn:
            for number, nbytes in zip(refs[:, ID].tolist(), refs[:, NBYTES].tolist(), strict=True):
                if self.has_chunk(txn, number):
                    continue
                if bytes_max is not None and found and size + nbytes > bytes_max:
                    return found, False
                found.append(number)
                size += nbytes
        return found, True

    def copy_in(self, epoch: int, values: Iterable[tuple[int, Any]]) -> tuple[int, int]:
        """Add chunks that no version refers to yet, in bounded transactions; return the numbers of chunks and of bytes.

        A chunk that exists already is left alone: another attempt has copied it in, and a version may refer to it by now.
        """
        count = size = 0
        group: list[tuple[int, Any]] = []
        waiting = 0
        for number, value in values:
            group.append((number, value))
            waiting += len(value)
            if waiting >= COPY_BYTES:
                self._copy_group(epoch, group)
                count, size, group, waiting = count + len(group), size + waiting, [], 0
        if group:
            self._copy_group(epoch, group)
        return count + len(group), size + waiting

    def _copy_group(self, epoch: int, group: list[tuple[int, Any]]) -> None:
        """Write one group of chunks in one transaction, as loose chunks."""

        def copied(txn: Txn) -> None:
            for number, value in group:
                if self.has_chunk(txn, number):
                    continue
                txn.put("chunks", number_key(number), value)
                txn.put("loose", number_key(number), b"")

        self.write(epoch, copied)

    def land(self, root: Root, epoch: int | None = None) -> Record:
        """Make the version in a commit's last transaction; return its record, or that of the first attempt.

        `epoch` is the epoch of the writer, if it differs from the checkpoint's epoch.

        **Errors** `UnavailableError` where a later version is held: this attempt is late.
        """
        writes = root.record.checkpoint.epoch if epoch is None else epoch
        return self.write(writes, lambda txn: self._land(txn, root))

    def _land(self, txn: Txn, root: Root) -> Record:
        """Add the version, drop all versions except the one before it, delete chunks that are not referred to any more."""
        version = root.version
        there = self.find(txn, version)
        if there is not None and there.checkpoint == root.record.checkpoint:
            return there
        held = [info.version for info in self.versions(txn)]
        if max(held, default=version) > version:
            raise UnavailableError(f"a later version is held: version={version} versions={held} folder={self.folder}")
        dropped = [number for number in held if number < version - 1]
        gone = [self.record(txn, number) for number in dropped] + ([there] if there else [])
        if there is not None:
            self._drop_values(txn, version)
        kept = self.find(txn, version - 1)
        if root.ends_warm:
            self._check_there(txn, root.record, kept)
        txn.put("versions", number_key(version), records.encode_record(root.record))
        for number in dropped:
            txn.delete("versions", number_key(number))
        self._put_values(txn, version, root.values)
        for number in (info.version for info in self.versions(txn)):
            if number < version:
                self.forget_before(txn, number)
        referred = ids_of([root.record, *([kept] if kept else [])])
        if root.ends_warm:
            warm_chunks.clear(txn)
        self._settle_loose(txn, referred, np.union1d(root.keep, warm_chunks.numbers(txn)), ids_of(gone))
        txn.put("meta", _NEXT_CHUNK, number_key(self._next_number(txn, referred)))
        return root.record

    def _check_there(self, txn: Txn, record: Record, kept: Record | None) -> None:
        """Raise `UnavailableError` if chunks of the version were deleted, which happens to a late attempt after a warm-up."""
        fresh = np.setdiff1d(ids_of([record]), ids_of([kept] if kept else []))
        gone = [number for number in fresh.tolist() if not self.has_chunk(txn, number)]
        if gone:
            story = f"chunks={len(gone)} first={gone[0]} folder={self.folder}"
            raise UnavailableError(f"copied chunks no longer exist: {story}")

    def _next_number(self, txn: Txn, referred: npt.NDArray[np.uint64]) -> int:
        """Return a chunk number above all used so far."""
        return max(self.next_chunk(txn), int(referred.max()) + 1 if len(referred) else 1)

    def next_chunk(self, txn: Txn) -> int:
        """Return the first chunk number that no version has used."""
        stored = txn.get("meta", _NEXT_CHUNK)
        last = txn.last_before("chunks", b"", b"\xff" * 8)
        return max(number_of(stored) if stored is not None else 1, number_of(last) + 1 if last is not None else 1)

    def reserve(self, txn: Txn, least: int = 1) -> int:
        """Reserve `NUMBERS` chunk numbers, none below `least`, for the caller alone; return the first."""
        first = max(least, self.next_chunk(txn))
        txn.put("meta", _NEXT_CHUNK, number_key(first + NUMBERS))
        return first

    def _settle_loose(
        self,
        txn: Txn,
        referred: npt.NDArray[np.uint64],
        keep: npt.NDArray[np.uint64],
        gone: npt.NDArray[np.uint64],
    ) -> None:
        """Delete loose and dropped chunks that nothing refers to; chunks that only running steps refer to stay loose."""
        listed = np.array([number_of(key) for key in txn.keys("loose")], np.uint64)
        candidates = np.setdiff1d(np.union1d(listed, gone), referred)
        wanted = set(keep.tolist())
        for number in candidates.tolist():
            key = number_key(number)
            if number in wanted:
                txn.put("loose", key, b"")
            else:
                txn.delete("chunks", key)
                txn.delete("loose", key)
                self.environment.verified.forget(number)
        for number in np.intersect1d(listed, referred).tolist():
            txn.delete("loose", number_key(number))

    def keep_only(
        self, epoch: int, version: int, begin: Callable[[Record, int], None] = lambda _record, _next_chunk: None
    ) -> Record:
        """Discard all other versions and their chunks, once per epoch; a repeat does nothing.

        `begin(record, next_chunk)` runs inside this transaction, and again if the transaction is repeated.

        **Errors** `UnavailableError` where another version was opened in this epoch, or this one is not held any
        more.
        """

        def opened(txn: Txn) -> Record:
            if self._was_opened(txn, epoch, version):
                return self.record(txn, version)
            record = self._discard_others(txn, version)
            begin(record, self.next_chunk(txn))
            self._mark_opened(txn, epoch, version)
            return record

        return self.write(epoch, opened)

    def opened_in(self, txn: Txn) -> tuple[int, int] | None:
        """Return (epoch, version) of the last opening; None if there was none, or an earlier version of dbsp did it."""
        value = txn.get("meta", _OPENED)
        return None if value is None else (number_of(value[:8]), number_of(value[8:]))

    def _mark_opened(self, txn: Txn, epoch: int, version: int) -> None:
        """Note that this version was opened in this epoch."""
        txn.put("meta", _OPENED, number_key(epoch) + number_key(version))

    def _was_opened(self, txn: Txn, epoch: int, version: int) -> bool:
        """Return whether this version was opened in this epoch; raise `UnavailableError` if another version was."""
        last = self.opened_in(txn)
        if last is None or last[0] != epoch:
            return False
        if last[1] != version:
            story = f"epoch={epoch} version={version} opened={last[1]} folder={self.folder}"
            raise UnavailableError(f"another version was opened in this epoch: {story}", "open it in a new epoch")
        return True

    def _discard_others(self, txn: Txn, version: int) -> Record:
        """Discard other versions, and every chunk to which this version does not refer; return the version's record."""
        record = self.record(txn, version)
        for info in self.versions(txn):
            if info.version > version:
                self._drop_values(txn, info.version)
            if info.version != version:
                txn.delete("versions", number_key(info.version))
        self.forget_before(txn, version)
        after = self.next_chunk(txn)
        self.sweep(txn, set(ids_of([record]).tolist()))
        warm_chunks.open_anew(txn)
        txn.put("meta", _NEXT_CHUNK, number_key(after))
        return record

    def sweep(self, txn: Txn, referred: Collection[int]) -> None:
        """Delete every chunk except these; no chunk is loose afterwards."""
        for key in txn.keys("chunks"):
            if number_of(key) not in referred:
                txn.delete("chunks", key)
                self.environment.verified.forget(number_of(key))
        for key in txn.keys("loose"):
            txn.delete("loose", key)

    def drop(self, txn: Txn, version: int, undo: bool) -> None:
        """Forget a version but not its chunks; with `undo`, delete its small values, so that older versions keep theirs."""
        if undo:
            self._drop_values(txn, version)
        txn.delete("versions", number_key(version))

    # ---- small values

    def value(self, txn: Txn, version: int, key: bytes) -> bytes | None:
        """Return a small value as of a version; None if it is absent or deleted."""
        place = txn.last_before("values", key, number_key(version))
        value = None if place is None else txn.get("values", place)
        return bytes(value[1:]) if value is not None and bytes(value[:1]) == b"\x01" else None

    def _put_values(self, txn: Txn, version: int, values: Mapping[bytes, bytes | None]) -> None:
        """Write the small values that changed since the version before."""
        for key, value in values.items():
            txn.put("values", key + number_key(version), b"\x00" if value is None else b"\x01" + value)
            txn.put("changed", number_key(version) + key, b"")

    def value_keys(self, txn: Txn) -> list[bytes]:
        """Return the keys of all small values of any version."""
        return sorted({key[:-8] for key in txn.keys("values")})

    def changed(self, txn: Txn, version: int) -> list[bytes]:
        """Return the keys that changed in a version."""
        return [key[8:] for key in txn.keys("changed", number_key(version))]

    def _drop_values(self, txn: Txn, version: int) -> None:
        """Delete the small values that a discarded version wrote."""
        for key in self.changed(txn, version):
            txn.delete("values", key + number_key(version))
            txn.delete("changed", number_key(version) + key)

    def forget_before(self, txn: Txn, version: int) -> None:
        """Delete the small values that this version, now the oldest, has overwritten."""
        for key in self.changed(txn, version):
            for entry in txn.keys("values", key):
                if number_of(entry[-8:]) < version:
                    txn.delete("values", entry)
            now = txn.get("values", key + number_key(version))
            if now is not None and bytes(now) == b"\x00":
                txn.delete("values", key + number_key(version))
            txn.delete("changed", number_key(version) + key)


@contextmanager
def reading_version(durable: Durable, version: int) -> Iterator[VersionView]:
    """Yield the traces of a version for slicing; their arrays are invalid after the block."""
    with durable.environment.reading() as txn:
        record = durable.record(txn, version)
        chunks = durable.chunks(txn)
        try:
            yield VersionView(checkpoint=record.checkpoint, traces=record.traces, chunks=chunks)
        finally:
            chunks.end()


def ids_of(of: Iterable[Record]) -> npt.NDArray[np.uint64]:
    """Return the numbers of all chunks that these records refer to, sorted, each once."""
    parts = [chunk_refs(state)[:, ID] for record in of for state in record.traces.values()]
    return np.unique(np.concatenate(parts)) if parts else np.empty(0, np.uint64)


def refs_of_states(states: Iterable[SpineState]) -> Refs:
    """Return all chunk references of several states, each once."""
    parts = [chunk_refs(SpineState()), *(chunk_refs(state) for state in states)]
    together = np.concatenate(parts)
    return together[np.unique(together[:, ID], return_index=True)[1]]

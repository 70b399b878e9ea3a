"""The durable environment of a worker: epoch, versions, their chunks, small values. Every commit is synced.

Tables: `meta` (epoch, next chunk number), `versions` (version -> record), `chunks`, `values` (small values, one entry per
version in which they changed), `changed` (version -> the keys that changed in it), `loose` (chunks copied in that no version
refers to yet, or any more), `warm` (see the module `warm`).

Invariants:
1. At most two versions. A commit adds chunks in bounded transactions; nobody refers to them until one last small
   transaction adds the version, drops the one before the last, and deletes what only that one referred to (invariants 8, 12).
2. The epoch is compared inside each write transaction (invariant 6).
3. Before a writer begins, it notes itself (`dbsp.processes`); raising the epoch first ends noted writers of older ones.
4. A task may run again, and late, in the same epoch, while its first attempt goes on. So whatever decides looks again inside
   its transaction: a version is opened once per epoch, lands once, and never below another; a chunk number is given out once.
5. A write changes the file that is in its place: a transaction on a file that another process has replaced is refused.
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
from dbsp.processes import end_older, noted
from dbsp.storage import records, registry, warm_chunks
from dbsp.storage.chunkfile import ReadChunks, Shelf
from dbsp.storage.environment import Environment, check_file, create_environment, data_file
from dbsp.storage.records import Record, number_key, number_of
from dbsp.storage.tables import Txn
from dbsp.store import CheckpointId, VersionInfo, VersionView
from dbsp.trace.manifest import ID, NBYTES, Refs, SpineState, chunk_refs

T = TypeVar("T")

COPY_BYTES = 16 << 20
"""How much one transaction copies in, unless a single chunk is larger."""

NUMBERS = 1 << 40
"""How many chunk numbers are given out at once: more than anybody uses, and few beside 2**64."""

_EPOCH, _NEXT_CHUNK, _OPENED, _LIFE = b"epoch", b"next chunk", b"opened", b"life"


@dataclass(frozen=True, slots=True, kw_only=True)
class Root:
    """What the last transaction of a commit does besides adding the version itself."""

    version: int
    record: Record
    values: Mapping[bytes, bytes | None]
    keep: npt.NDArray[np.uint64]
    ends_warm: bool = False


def fill_new(checkpoint: CheckpointId, version: int | None) -> Callable[[Txn], None]:
    """The first content of a durable environment: the epoch, its name, and an empty version unless None."""

    def fill(txn: Txn) -> None:
        txn.put("meta", _EPOCH, number_key(checkpoint.epoch))
        txn.put("meta", _LIFE, _new_life())
        txn.put("meta", _NEXT_CHUNK, number_key(1))
        if version is not None:
            record = Record(checkpoint=checkpoint, step=checkpoint.step, traces={})
            txn.put("versions", number_key(version), records.encode_record(record))

    return fill


def _new_life() -> bytes:
    """Draw a name that no other database has, also no later one in the same folder."""
    return uuid.uuid4().hex.encode()


class Durable:
    """A worker's durable side, opened in this process."""

    def __init__(self, folder: Path, writers_folder: Path, map_size_bytes: int) -> None:
        """Open it; `DataError` if it is missing, broken or cut short."""
        check_file(folder)
        self.folder = folder
        self.writers_folder = writers_folder
        self.environment = registry.acquire(folder, lambda: Environment(folder, map_size_bytes, sync=True))

    @staticmethod
    def create(folder: Path, checkpoint: CheckpointId, version: int | None, map_size_bytes: int) -> None:
        """Make a new one (not atomic: the caller renames)."""
        create_environment(folder, map_size_bytes, sync=True, fill=fill_new(checkpoint, version))

    def close(self) -> None:
        """Give the files back."""
        registry.release(self.environment)

    # ---- epoch

    def epoch(self, txn: Txn) -> int:
        """The newest epoch this database has seen."""
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
        """Run `work` in one synced transaction of the newest epoch, on the file that is in its place.

        **Errors** `FencedError` for an older epoch, `UnavailableError` where another process has replaced the file.
        """

        def checked(txn: Txn) -> T:
            self.check_epoch(txn, epoch)
            self.check_place()
            return work(txn)

        with noted(self.writers_folder, epoch):
            return self.environment.write(checked)

    def check_place(self) -> None:
        """Refuse to write into a file that is not in its folder any more.

        Whoever takes a database away does it inside a transaction on its file, so the answer holds until this one ends.
        """
        if not registry.is_current(self.environment, self.folder):
            raise UnavailableError(f"the database was replaced or taken away: folder={self.folder}")

    def raise_epoch(self, epoch: int) -> None:
        """Make `epoch` the newest, after ending writers of older ones."""
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
        """Return the name of this very database; name one that an earlier version of dbsp has made."""
        with self.environment.reading() as txn:
            there = txn.get("meta", _LIFE)
            return bytes(there).decode() if there is not None else self.write(epoch, self._named)

    def _named(self, txn: Txn) -> str:
        """Name the database, unless another process has."""
        if not txn.has("meta", _LIFE):
            txn.put("meta", _LIFE, _new_life())
        return bytes(txn.get("meta", _LIFE) or b"").decode()

    def is_called(self, txn: Txn, life: str | None) -> bool:
        """Return whether this is the database of that name."""
        return life is not None and bytes(txn.get("meta", _LIFE) or b"") == life.encode()

    # ---- versions

    def versions(self, txn: Txn) -> tuple[VersionInfo, ...]:
        """The versions held, oldest first."""
        found = []
        for key, value in txn.items("versions"):
            record = records.decode_record(bytes(value), self._where(number_of(key)))
            found.append(VersionInfo(version=number_of(key), checkpoint=record.checkpoint))
        return tuple(found)

    def find(self, txn: Txn, version: int) -> Record | None:
        """A version's record, if it is held; before version 0 there is none."""
        if version < 0:
            return None
        value = txn.get("versions", number_key(version))
        return None if value is None else records.decode_record(bytes(value), self._where(version))

    def record(self, txn: Txn, version: int) -> Record:
        """A version's record; `UnavailableError` if it is not held."""
        found = self.find(txn, version)
        if found is None:
            held = [info.version for info in self.versions(txn)]
            raise UnavailableError(f"no such version: version={version} versions={held} folder={self.folder}")
        return found

    def _where(self, version: int) -> str:
        """How errors name a record."""
        return f"file={data_file(self.folder)} version={version}"

    def chunks(self, txn: Txn) -> ReadChunks:
        """Chunks of any version, checked when first touched."""
        return ReadChunks((self.shelf(txn),))

    def shelf(self, txn: Txn) -> Shelf:
        """The durable side as a place to read chunks from."""
        return Shelf(environment=self.environment, txn=txn, check=True)

    # ---- committing

    def has_chunk(self, txn: Txn, number: int) -> bool:
        """Whether a chunk was copied in."""
        return txn.has("chunks", number_key(number))

    def lacking(self, refs: Refs, bytes_max: int | None) -> tuple[list[int], bool]:
        """The next of these chunks that were not copied in yet, some `bytes_max` of them, and whether they are the last."""
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
        """Add chunks that no version refers to yet, in bounded transactions; (chunks, bytes) written.

        A chunk that is there already stays: another attempt has copied it in, and a version may refer to it by now.
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
        """One bounded transaction of a commit."""

        def copied(txn: Txn) -> None:
            for number, value in group:
                if self.has_chunk(txn, number):
                    continue
                txn.put("chunks", number_key(number), value)
                txn.put("loose", number_key(number), b"")

        self.write(epoch, copied)

    def land(self, root: Root, epoch: int | None = None) -> Record:
        """The last transaction of a commit: the new version is there when it is. Its record, or that of who was first.

        `epoch` is that of whoever writes, where it is not that of the checkpoint.
        **Errors** `UnavailableError` where a later version is held: this is an attempt that comes too late.
        """
        writes = root.record.checkpoint.epoch if epoch is None else epoch
        return self.write(writes, lambda txn: self._land(txn, root))

    def _land(self, txn: Txn, root: Root) -> Record:
        """Add the version, drop all but the one before it, delete what nobody refers to any more."""
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
        """Refuse a version of chunks that were swept: another attempt of what ends a warm-up may come late."""
        fresh = np.setdiff1d(ids_of([record]), ids_of([kept] if kept else []))
        gone = [number for number in fresh.tolist() if not self.has_chunk(txn, number)]
        if gone:
            story = f"chunks={len(gone)} first={gone[0]} folder={self.folder}"
            raise UnavailableError(f"chunks that were copied in are there no more: {story}")

    def _next_number(self, txn: Txn, referred: npt.NDArray[np.uint64]) -> int:
        """A chunk number above all used so far."""
        return max(self.next_chunk(txn), int(referred.max()) + 1 if len(referred) else 1)

    def next_chunk(self, txn: Txn) -> int:
        """The first chunk number that no version has used."""
        stored = txn.get("meta", _NEXT_CHUNK)
        last = txn.last_before("chunks", b"", b"\xff" * 8)
        return max(number_of(stored) if stored is not None else 1, number_of(last) + 1 if last is not None else 1)

    def reserve(self, txn: Txn, least: int = 1) -> int:
        """The first of `NUMBERS` chunk numbers, none below `least`, that nobody else gets."""
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
        """Delete loose and dropped chunks that nobody refers to; what only running steps refer to stays loose."""
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
        """Discard other versions and every chunk that this one does not refer to, once per epoch; then a repeat does nothing.

        `begin(record, next_chunk)` runs inside the transaction that counts, and again if that one does.

        **Errors** `UnavailableError` where another version was opened in this epoch, or this one is held no more.
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
        """Return (epoch, version) of the last opening; None where there was none, or an earlier version of dbsp did it."""
        value = txn.get("meta", _OPENED)
        return None if value is None else (number_of(value[:8]), number_of(value[8:]))

    def _mark_opened(self, txn: Txn, epoch: int, version: int) -> None:
        """Note that this version was opened in this epoch."""
        txn.put("meta", _OPENED, number_key(epoch) + number_key(version))

    def _was_opened(self, txn: Txn, epoch: int, version: int) -> bool:
        """Return whether this version was opened in this epoch; refuse another one."""
        last = self.opened_in(txn)
        if last is None or last[0] != epoch:
            return False
        if last[1] != version:
            story = f"epoch={epoch} version={version} opened={last[1]} folder={self.folder}"
            raise UnavailableError(f"another version was opened in this epoch: {story}", "open it in a new epoch")
        return True

    def _discard_others(self, txn: Txn, version: int) -> Record:
        """Discard other versions and every chunk that this one does not refer to."""
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
        """Delete every chunk but these; none is loose any more."""
        for key in txn.keys("chunks"):
            if number_of(key) not in referred:
                txn.delete("chunks", key)
                self.environment.verified.forget(number_of(key))
        for key in txn.keys("loose"):
            txn.delete("loose", key)

    def drop(self, txn: Txn, version: int, undo: bool) -> None:
        """Forget a version, its chunks stay; `undo` what it wrote of small values, where older ones are still held."""
        if undo:
            self._drop_values(txn, version)
        txn.delete("versions", number_key(version))

    # ---- small values

    def value(self, txn: Txn, version: int, key: bytes) -> bytes | None:
        """A small value as of a version."""
        place = txn.last_before("values", key, number_key(version))
        value = None if place is None else txn.get("values", place)
        return bytes(value[1:]) if value is not None and bytes(value[:1]) == b"\x01" else None

    def _put_values(self, txn: Txn, version: int, values: Mapping[bytes, bytes | None]) -> None:
        """Write the small values that changed since the version before."""
        for key, value in values.items():
            txn.put("values", key + number_key(version), b"\x00" if value is None else b"\x01" + value)
            txn.put("changed", number_key(version) + key, b"")

    def value_keys(self, txn: Txn) -> list[bytes]:
        """The keys of all small values of any version."""
        return sorted({key[:-8] for key in txn.keys("values")})

    def changed(self, txn: Txn, version: int) -> list[bytes]:
        """The keys that changed in a version."""
        return [key[8:] for key in txn.keys("changed", number_key(version))]

    def _drop_values(self, txn: Txn, version: int) -> None:
        """Undo what a discarded version wrote."""
        for key in self.changed(txn, version):
            txn.delete("values", key + number_key(version))
            txn.delete("changed", number_key(version) + key)

    def forget_before(self, txn: Txn, version: int) -> None:
        """Delete entries that this version, now the oldest, has overwritten."""
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
    """The traces of a version, to be sliced; nothing of them may be kept after the block."""
    with durable.environment.reading() as txn:
        record = durable.record(txn, version)
        chunks = durable.chunks(txn)
        try:
            yield VersionView(checkpoint=record.checkpoint, traces=record.traces, chunks=chunks)
        finally:
            chunks.end()


def ids_of(of: Iterable[Record]) -> npt.NDArray[np.uint64]:
    """The numbers of all chunks that these records refer to."""
    parts = [chunk_refs(state)[:, ID] for record in of for state in record.traces.values()]
    return np.unique(np.concatenate(parts)) if parts else np.empty(0, np.uint64)


def refs_of_states(states: Iterable[SpineState]) -> Refs:
    """All chunk references of several states, each once."""
    parts = [chunk_refs(SpineState()), *(chunk_refs(state) for state in states)]
    together = np.concatenate(parts)
    return together[np.unique(together[:, ID], return_index=True)[1]]

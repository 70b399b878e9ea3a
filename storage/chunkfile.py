"""Chunks as LMDB values: a header of 48 bytes, then the encoded batch.

LMDB 0.9 puts a large value 16 bytes after the start of a page, and 16 + 48 = 64. The encoding aligns columns to 64
bytes. So they start on 64-byte boundaries of the map, and numpy reads them in place.

Invariants:

1. A value is used only if its header has the chunk number and checksum of the manifest's reference. Its size, its rows and its
   range of key hashes have to match too. So a chunk of another version or of another file is never mistaken for it.
2. A process computes the checksums of a durable chunk when it first touches the chunk, before it reads any row. The exception
   is a chunk that this process copied from its scratch, whose chunks were made since the machine booted.
3. Arrays over a chunk are invalid once the transaction in which they were read has ended.

The checksums are per block of 64 KiB, inside the encoding. The chunk's own checksum is that of the encoding's head.
The head contains the block checksums, so this checksum covers the whole content: two chunks have the same one only if
their rows are equal. The head's own checksum is not part of the bytes that it covers. Format 1 included it, so all
chunks had the same number.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dbsp.errors import DataError, InternalError
from dbsp.lmdb_environments import data_file
from dbsp.storage.environment import DatabaseEnvironment
from dbsp.storage.readahead import Paging, foresee_hashes, foresee_rows, will_need
from dbsp.storage.records import number_key
from dbsp.storage.tables import Txn
from dbsp.stored.format_numbers import check_format
from dbsp.trace.chunks import ChunkRef, Foresight
from dbsp.zset.batch import Batch
from dbsp.zset.encoding import Outline, check_encoding, decode, encode, head_checksum, outline
from dbsp.zset.schema import Arrangement

CHUNK_BYTES_MAX = 2 << 20
DECODED_MAX = 4096
"""The maximum number of decoded chunks that a reading keeps; each takes about 2.5 kB in addition to the map."""
_HEADER = struct.Struct("<4sHHQQQ16x")
_MAGIC = b"DBCH"
FORMAT = 2
HEADER_BYTES = _HEADER.size


def pack_chunk(number: int, batch: Batch) -> tuple[bytearray, int]:
    """Encode a batch as a chunk's value; return the value and its checksum."""
    value = encode(batch, room=HEADER_BYTES)
    payload = memoryview(value)[HEADER_BYTES:]
    checksum = head_checksum(payload)
    _HEADER.pack_into(value, 0, _MAGIC, FORMAT, 0, number, len(payload), checksum)
    return value, checksum


def check_formats(value: Any, where: str) -> None:
    """Refuse a chunk, or a batch in it, of another format.

    Accept a value that is no chunk at all: reading it fails later.
    """
    view = memoryview(value)
    if len(view) < HEADER_BYTES:
        return
    magic, version, *_ = _HEADER.unpack_from(view)
    if magic == _MAGIC:
        check_format("a chunk", where, version, FORMAT)
        check_encoding(view[HEADER_BYTES:], where)


def payload_of(value: Any, ref: ChunkRef, file: Path, verify: bool = True) -> memoryview:
    """Return the encoded batch inside a value; raise `DataError` with file and chunk if it is not the chunk of `ref`."""
    view = memoryview(value)
    if len(view) < HEADER_BYTES:
        raise DataError(f"a chunk is cut short: file={file} chunk={ref.id} bytes={len(view)}", _REMEDY)
    magic, version, _, number, length, checksum = _HEADER.unpack_from(view)
    if (magic, number) == (_MAGIC, ref.id):
        check_format("a chunk", f"file={file} chunk={ref.id}", version, FORMAT)
    found = (magic, number, length, len(view) - HEADER_BYTES, checksum)
    if found != (_MAGIC, ref.id, ref.nbytes, ref.nbytes, ref.checksum):
        raise DataError(f"a chunk is not the one its manifest names: file={file} chunk={ref.id}", _REMEDY)
    payload = view[HEADER_BYTES:]
    if verify and head_checksum(payload) != checksum:
        raise DataError(f"a chunk fails its checksum: file={file} chunk={ref.id} bytes={length}", _REMEDY)
    told = outline(payload)
    if told != Outline(rows=ref.rows, first=ref.first, last=ref.last):
        story = f"file={file} chunk={ref.id} rows={told.rows} expected={ref.rows}"
        raise DataError(f"a chunk holds other rows than its manifest tells: {story}", _REMEDY)
    return payload


_REMEDY = "restore this worker's database from a backup or a standby, or roll back to an older checkpoint"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shelf:
    """A source of chunks: an environment, a transaction on it, and the flag that says if its bytes must be checked."""

    environment: DatabaseEnvironment
    txn: Txn
    check: bool

    def raw(self, ref: ChunkRef) -> Any:
        """Return the whole value as a view of the map, of which at most one page was read; None if it is not here."""
        return self.txn.lying("chunks", number_key(ref.id))

    def checks(self, ref: ChunkRef) -> bool:
        """Return whether this process still has to compute the chunk's checksums."""
        return self.check and ref.id not in self.environment.verified

    def batch(self, ref: ChunkRef, arrangement: Arrangement) -> Batch | None:
        """Return the decoded chunk, or None if it is not in this environment."""
        value = self.raw(ref)
        if value is None:
            return None
        file, verify = data_file(self.environment.folder), self.checks(ref)
        if verify:
            will_need(value)
        payload = payload_of(value, ref, file, verify)
        try:
            batch = decode(payload, arrangement.schema, arrangement, verify=verify)
        except DataError as error:
            raise DataError(
                f"a chunk is broken: file={file} chunk={ref.id} cause={error.message}", error.hint or _REMEDY
            ) from error
        if verify:
            self.environment.verified.add([ref.id])
        return batch


class ReadChunks:
    """Chunks read in place: from the scratch side first, then from the durable side.

    **Limit**: at most `DECODED_MAX` chunks stay decoded. When that is reached, all are dropped and decoded again on
    demand.
    """

    def __init__(
        self, shelves: tuple[Shelf, ...], chunk_bytes_max: int = CHUNK_BYTES_MAX, paging: Paging | None = None
    ) -> None:
        """Read through these transactions; `paging` decides whether look-ups request their pages in advance."""
        self.chunk_bytes_max = chunk_bytes_max
        self.cuts: Sequence[int] = ()
        self.written = True
        self._paging = paging
        self._shelves: tuple[Shelf, ...] | None = shelves
        self._decoded: dict[int, Batch] = {}
        self._asked: set[int] = set()

    def get(self, ref: ChunkRef, arrangement: Arrangement) -> Batch:
        """Return the chunk as views of the map."""
        if self._shelves is None:
            raise InternalError(f"a trace is read after its transaction has ended: chunk={ref.id}")
        found = self._decoded.get(ref.id)
        if found is not None:
            return found
        for shelf in self._shelves:
            batch = shelf.batch(ref, arrangement)
            if batch is not None:
                if len(self._decoded) >= DECODED_MAX:
                    self._decoded, self._asked = {}, set()
                self._decoded[ref.id] = batch
                return batch
        files = [str(data_file(shelf.environment.folder)) for shelf in self._shelves]
        raise DataError(f"a chunk is missing: chunk={ref.id} files={files}", _REMEDY)

    def whole(self, ref: ChunkRef, arrangement: Arrangement) -> Batch:
        """Return a chunk of which every row will be read: the kernel reads its pages in large requests."""
        if ref.id not in self._asked:
            self._asked.add(ref.id)
            for shelf in self._shelves or ():
                value = shelf.raw(ref)
                if value is not None:
                    will_need(value)
                    break
        return self.get(ref, arrangement)

    def foresight(self) -> Foresight | None:
        """Return the read-ahead for look-ups; None where reading does not wait for the disk. See `ChunkStore`."""
        return _Ahead(self, self._paging) if self._paging is not None and self._paging.waits else None

    def payload(self, ref: ChunkRef) -> memoryview | None:
        """Return the encoded batch without reading its pages; None if the checksums will read the whole chunk anyway."""
        for shelf in self._shelves or ():
            value = shelf.raw(ref)
            if value is not None:
                return None if shelf.checks(ref) else value[HEADER_BYTES:]
        return None

    def put(self, chunk: Batch) -> ChunkRef:
        """Raise `InternalError`: this store is read-only."""
        raise InternalError(f"this trace is only read: rows={len(chunk)}")

    def end(self, shelves: tuple[Shelf, ...] | None = None) -> None:
        """Forget the decoded chunks; go on with other transactions, or refuse all reading (None)."""
        self._decoded, self._asked = {}, set()
        self._shelves = shelves


class _Ahead:
    """The read-ahead of one reading: it asks for pages before look-ups touch them."""

    def __init__(self, chunks: ReadChunks, paging: Paging) -> None:
        """Look ahead in the chunks of this reading."""
        self._chunks = chunks
        self._paging = paging

    def hashes(self, ref: ChunkRef, key_hash: npt.NDArray[np.uint64]) -> None:
        """Ask for the pages in which these hashes should be found. See `Foresight`."""
        payload = self._chunks.payload(ref)
        if payload is not None:
            self._paging.found_absent(foresee_hashes(payload, ref, key_hash))

    def rows(self, ref: ChunkRef, low: npt.NDArray[np.int64], high: npt.NDArray[np.int64]) -> None:
        """Ask for the pages of these rows. See `Foresight`."""
        payload = self._chunks.payload(ref)
        if payload is not None:
            self._paging.found_absent(foresee_rows(payload, ref, low, high))


class WriteChunks:
    """New chunks, held as encoded bytes until `take` selects the chunks to write.

    A step may make a chunk and merge it away again; such a chunk is never written.
    """

    def __init__(self, reading: ReadChunks, next_number: Callable[[], int], cuts: Sequence[int] = ()) -> None:
        """Read old chunks through `reading`; number new ones with `next_number`, and end them at `cuts`."""
        self.chunk_bytes_max = reading.chunk_bytes_max
        self.cuts = cuts
        self.written = True
        self._reading = reading
        self._next_number = next_number
        self._fresh: dict[int, bytearray] = {}

    def put(self, chunk: Batch) -> ChunkRef:
        """Encode a chunk, and return the reference to it."""
        number = self._next_number()
        value, checksum = pack_chunk(number, chunk)
        self._fresh[number] = value
        return ChunkRef.of(number, chunk, len(value) - HEADER_BYTES, checksum)

    def get(self, ref: ChunkRef, arrangement: Arrangement) -> Batch:
        """Return a new chunk, or an older one; a merge, the caller, reads all of it."""
        fresh = self._fresh.get(ref.id)
        if fresh is None:
            return self._reading.whole(ref, arrangement)
        return decode(memoryview(fresh)[HEADER_BYTES:], arrangement.schema, arrangement, verify=False)

    def foresight(self) -> None:
        """Do nothing: nothing looks up rows through this store."""

    def fresh_bytes(self) -> int:
        """Return how many bytes wait to be written."""
        return sum(map(len, self._fresh.values()))

    def take(self, wanted: set[int] | None = None) -> dict[int, bytearray]:
        """Return the values to write (only the `wanted` ones, if given), and forget all waiting chunks."""
        fresh, self._fresh = self._fresh, {}
        return fresh if wanted is None else {number: fresh[number] for number in fresh.keys() & wanted}

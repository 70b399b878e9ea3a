"""Chunks as LMDB values: 48 bytes of our own header, then the encoded batch.

LMDB 0.9 puts a large value 16 bytes behind the start of a page; 16 + 48 = 64, so the columns, which the encoding aligns to
64 bytes, lie on 64-byte boundaries of the map and numpy reads them where they are.

Invariants:
1. A value is used only if its header names the chunk and checksum that the manifest asked for, and its size, rows and range
   of key hashes are those the manifest tells, so a chunk of another version or another file is never taken for it.
2. The checksums of a durable chunk are computed when the chunk is first touched by a process, before any row is read, unless
   that process copied it from its scratch, whose chunks were made since the machine booted.
   (They are per block of 64 KiB, inside the encoding; the chunk's own checksum is that of the encoding's head, which
   holds the block checksums, so it stands for the whole content: equal only where the rows are. The head's own checksum
   is no part of what it is computed over. Format 1 took that in, and had one number for all chunks.)
3. Arrays over a chunk are dead when the transaction they were read in has ended.
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
from dbsp.formats import check_format
from dbsp.storage.environment import Environment, data_file
from dbsp.storage.readahead import Paging, foresee_hashes, foresee_rows, will_need
from dbsp.storage.records import number_key
from dbsp.storage.tables import Txn
from dbsp.trace.chunks import ChunkRef, Foresight
from dbsp.zset.batch import Batch
from dbsp.zset.encoding import Outline, check_encoding, decode, encode, head_checksum, outline
from dbsp.zset.schema import Arrangement

CHUNK_BYTES_MAX = 2 << 20
DECODED_MAX = 4096
"""How many chunks a reading keeps decoded: about 2.5 kB each, beside the map."""
_HEADER = struct.Struct("<4sHHQQQ16x")
_MAGIC = b"DBCH"
FORMAT = 2
HEADER_BYTES = _HEADER.size


def pack_chunk(number: int, batch: Batch) -> tuple[bytearray, int]:
    """A chunk's value and its checksum."""
    value = encode(batch, room=HEADER_BYTES)
    payload = memoryview(value)[HEADER_BYTES:]
    checksum = head_checksum(payload)
    _HEADER.pack_into(value, 0, _MAGIC, FORMAT, 0, number, len(payload), checksum)
    return value, checksum


def check_formats(value: Any, where: str) -> None:
    """Refuse a chunk, or a batch in it, of another format; one that is none at all is found broken when it is read."""
    view = memoryview(value)
    if len(view) < HEADER_BYTES:
        return
    magic, version, *_ = _HEADER.unpack_from(view)
    if magic == _MAGIC:
        check_format("a chunk", where, version, FORMAT)
        check_encoding(view[HEADER_BYTES:], where)


def payload_of(value: Any, ref: ChunkRef, file: Path, verify: bool = True) -> memoryview:
    """The encoded batch inside a value; `DataError` names the file and the chunk if it is not the one asked for."""
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
    """A place to read chunks from: an environment, a transaction on it, and whether its bytes must be checked."""

    environment: Environment
    txn: Txn
    check: bool

    def raw(self, ref: ChunkRef) -> Any:
        """The whole value, if it is here; hardly any of it is read yet."""
        return self.txn.lying("chunks", number_key(ref.id))

    def checks(self, ref: ChunkRef) -> bool:
        """Whether the chunk's checksums are still to be computed by this process."""
        return self.check and ref.id not in self.environment.verified

    def batch(self, ref: ChunkRef, arrangement: Arrangement) -> Batch | None:
        """The chunk, if it is here."""
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
    """Chunks read where they lie: the scratch side first, then the durable one.

    **Limit**: `DECODED_MAX` chunks stay decoded; with more than that all are decoded anew when they are asked for again.
    """

    def __init__(
        self, shelves: tuple[Shelf, ...], chunk_bytes_max: int = CHUNK_BYTES_MAX, paging: Paging | None = None
    ) -> None:
        """Read through these transactions; `paging` says whether look-ups are worth foreseeing."""
        self.chunk_bytes_max = chunk_bytes_max
        self.cuts: Sequence[int] = ()
        self.written = True
        self._paging = paging
        self._shelves: tuple[Shelf, ...] | None = shelves
        self._decoded: dict[int, Batch] = {}
        self._asked: set[int] = set()

    def get(self, ref: ChunkRef, arrangement: Arrangement) -> Batch:
        """The chunk, as views of the map."""
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
        """The chunk, of which every row will be read: its pages come in large reads."""
        if ref.id not in self._asked:
            self._asked.add(ref.id)
            for shelf in self._shelves or ():
                value = shelf.raw(ref)
                if value is not None:
                    will_need(value)
                    break
        return self.get(ref, arrangement)

    def foresight(self) -> Foresight | None:
        """See `ChunkStore`."""
        return _Ahead(self, self._paging) if self._paging is not None and self._paging.waits else None

    def payload(self, ref: ChunkRef) -> memoryview | None:
        """The encoded batch, not looked at yet; None where computing its checksums is about to read all of it."""
        for shelf in self._shelves or ():
            value = shelf.raw(ref)
            if value is not None:
                return None if shelf.checks(ref) else value[HEADER_BYTES:]
        return None

    def put(self, chunk: Batch) -> ChunkRef:
        """Reading only."""
        raise InternalError(f"this trace is only read: rows={len(chunk)}")

    def end(self, shelves: tuple[Shelf, ...] | None = None) -> None:
        """Forget what was read; go on with other transactions, or refuse all reading."""
        self._decoded, self._asked = {}, set()
        self._shelves = shelves


class _Ahead:
    """Has pages read in before look-ups touch them; lives as long as one reading."""

    def __init__(self, chunks: ReadChunks, paging: Paging) -> None:
        """For the chunks of this reading."""
        self._chunks = chunks
        self._paging = paging

    def hashes(self, ref: ChunkRef, key_hash: npt.NDArray[np.uint64]) -> None:
        """See `Foresight`."""
        payload = self._chunks.payload(ref)
        if payload is not None:
            self._paging.found_absent(foresee_hashes(payload, ref, key_hash))

    def rows(self, ref: ChunkRef, low: npt.NDArray[np.int64], high: npt.NDArray[np.int64]) -> None:
        """See `Foresight`."""
        payload = self._chunks.payload(ref)
        if payload is not None:
            self._paging.found_absent(foresee_rows(payload, ref, low, high))


class WriteChunks:
    """Chunks to be written: kept as bytes, and nothing else, until `take` says which of them are still wanted.

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
        """Encode a chunk."""
        number = self._next_number()
        value, checksum = pack_chunk(number, chunk)
        self._fresh[number] = value
        return ChunkRef.of(number, chunk, len(value) - HEADER_BYTES, checksum)

    def get(self, ref: ChunkRef, arrangement: Arrangement) -> Batch:
        """A chunk made just now, or an older one; whoever merges reads all of it."""
        fresh = self._fresh.get(ref.id)
        if fresh is None:
            return self._reading.whole(ref, arrangement)
        return decode(memoryview(fresh)[HEADER_BYTES:], arrangement.schema, arrangement, verify=False)

    def foresight(self) -> None:
        """Nobody looks up through this."""

    def fresh_bytes(self) -> int:
        """Bytes waiting to be written."""
        return sum(map(len, self._fresh.values()))

    def take(self, wanted: set[int] | None = None) -> dict[int, bytearray]:
        """The values to write (only the `wanted` ones), after which nothing waits any more."""
        fresh, self._fresh = self._fresh, {}
        return fresh if wanted is None else {number: fresh[number] for number in fresh.keys() & wanted}

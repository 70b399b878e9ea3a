"""Store runs as chunks: numbered, immutable pieces of bounded size.

A run of any length is stored as chunks of at most `chunk_bytes_max` bytes in plain form (`Batch.nbytes`; encoded
chunks are smaller). So merging, copying to the durable database and slicing for a rescale are bounded pieces of work.
A reference contains the fences: key hash and order code of the chunk's first and last row. With the fences, a reader
loads only the chunks that can contain its rows, also within a group of many chunks.

Invariants:
1. A chunk is arranged, has no zero weight and no row twice, and never changes (invariant 1 of ARCHITECTURE.md).
2. Rows with three equal sort words (key hash, order code, row hash) are never divided between two chunks of one batch.
   So merging piece by piece consolidates the same rows as merging whole batches.

Source: docs/concepts/data.md and docs/concepts/storage.md.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
import numpy.typing as npt

from dbsp.errors import InternalError
from dbsp.trace.words import lower_bound, words_at
from dbsp.zset.batch import Batch
from dbsp.zset.schema import Arrangement, fits_a_word

CHUNK_BYTES_MAX_MEMORY = 32 << 20
OWN_NUMBERS = 1 << 63
"""First chunk number of a `MemoryChunks` above another store; the other store's own numbers never grow so large."""
_OFFSET_BYTES = 4
CUT_SHARE = 32
"""At a shard boundary, a chunk is cut only if both sides have at least 1/32 of the largest size of a chunk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkRef:
    """Reference to a chunk: its number, and the facts that are known without reading it.

    `first` and `last` are the key hashes of the first and last row. `first_code` and `last_code` are their order
    codes, or 0 if the arrangement has no order. `checksum` is 0 if chunks are not stored as bytes.
    """

    id: int
    rows: int
    first: int
    last: int
    nbytes: int
    checksum: int
    first_code: int
    last_code: int

    @staticmethod
    def of(number: int, chunk: Batch, nbytes: int, checksum: int = 0) -> ChunkRef:
        """Return the reference to an arranged batch that is stored under `number`.

        **Errors** `InternalError` for a batch that is not arranged, or empty.
        """
        key_hash, code = chunk.key_hash, chunk.order_code
        if key_hash is None or len(chunk) == 0:
            raise InternalError(f"a chunk must be arranged and not empty: rows={len(chunk)}")
        codes = (0, 0) if code is None else (int(code[0]), int(code[-1]))
        return ChunkRef(
            id=number, rows=len(chunk), first=int(key_hash[0]), last=int(key_hash[-1]), nbytes=nbytes, checksum=checksum,
            first_code=codes[0], last_code=codes[1],
        )  # fmt: skip

    @property
    def begins(self) -> tuple[int, int]:
        """Return the key hash and the order code of the first row."""
        return self.first, self.first_code

    @property
    def ends(self) -> tuple[int, int]:
        """Return the key hash and the order code of the last row."""
        return self.last, self.last_code


class Foresight(Protocol):
    """Receiver of hints about the next reads of a chunk, for stores whose reads may wait for a disk."""

    def hashes(self, ref: ChunkRef, key_hash: npt.NDArray[np.uint64]) -> None:
        """Expect a look-up of these sorted hashes in the chunk."""
        ...

    def rows(self, ref: ChunkRef, low: npt.NDArray[np.int64], high: npt.NDArray[np.int64]) -> None:
        """Expect a read of the rows from each `low` to before its `high`."""
        ...


class ChunkStore(Protocol):
    """Store of chunks; `get` may return views that are valid only while the store's transaction is open.

    `cuts` are ascending key hashes at which chunks end if possible: the first hashes of the shards of future owners.
    `written` is True if a chunk becomes bytes of a file, so that storing costs more than keeping the batch in memory.
    """

    chunk_bytes_max: int
    cuts: Sequence[int]
    written: bool

    def put(self, chunk: Batch) -> ChunkRef:
        """Store an arranged, non-empty batch of at most about `chunk_bytes_max` bytes."""
        ...

    def get(self, ref: ChunkRef, arrangement: Arrangement) -> Batch:
        """Return the stored batch."""
        ...

    def foresight(self) -> Foresight | None:
        """Return the receiver of read hints, or None if reads never wait."""
        ...


def plain_size(rows: int, nbytes: int, arrangement: Arrangement) -> int:
    """Return the least number of bytes in plain form of `rows` rows that take `nbytes` bytes as stored.

    Size limits count plain bytes, because encoded sizes say little about the rows.
    """
    return max(nbytes, rows * _row_bytes_min(arrangement))


@lru_cache(maxsize=1024)
def _row_bytes_min(arrangement: Arrangement) -> int:
    """Return the plain bytes of the smallest row: sort words, weights and values, with empty texts."""
    words = 1 + bool(arrangement.order) + arrangement.hashes_rows
    widths = (_OFFSET_BYTES if not fits_a_word(c.type) else c.type.bit_width // 8 for c in arrangement.schema)
    return 8 * (words + arrangement.weights) + sum(widths)


def split(batch: Batch, chunk_bytes_max: int) -> Iterator[Batch]:
    """Cut an arranged batch into pieces of at most `chunk_bytes_max` bytes, never inside equal sort words.

    **Limit**: rows with equal sort words stay in one piece, however many there are.
    """
    if len(batch) == 0:
        return
    size = batch.nbytes
    if size <= chunk_bytes_max or len(batch) == 1:
        yield batch
        return
    rows = max(1, len(batch) * chunk_bytes_max // size)
    pieces = -(-len(batch) // rows)
    start = 0
    for piece in range(1, pieces + 1):
        stop = len(batch) if piece == pieces else cut_after(batch, len(batch) * piece // pieces)
        if stop <= start:
            continue
        part = batch.slice(start, stop)
        if start == 0 and stop == len(batch):
            yield part
        elif part.nbytes > chunk_bytes_max * 5 // 4 and len(part) > 1:
            yield from _halves(part, chunk_bytes_max)
        else:
            yield part
        start = stop


def divided(batch: Batch, cuts: Sequence[int], bytes_min: int) -> Iterator[Batch]:
    """Cut an arranged batch at the key hashes `cuts`, into pieces of at least about `bytes_min` bytes."""
    key_hash = batch.key_hash
    if not cuts or key_hash is None or len(batch) == 0:
        yield batch
        return
    rows_min, start = max(1, len(batch) * bytes_min // batch.nbytes), 0
    for stop in key_hash.searchsorted(np.array(cuts, np.uint64)).tolist():
        if min(stop - start, len(batch) - stop) >= rows_min:
            yield batch.slice(start, stop)
            start = stop
    yield batch.slice(start, len(batch))


def _halves(batch: Batch, chunk_bytes_max: int) -> Iterator[Batch]:
    """Yield the pieces of a batch, halved until each has at most 5/4 of `chunk_bytes_max` bytes.

    `split` cuts by row counts, which makes pieces that are too large if rows differ much in size.
    """
    middle = cut_after(batch, len(batch) // 2)
    if middle >= len(batch) or batch.nbytes <= chunk_bytes_max * 5 // 4:
        yield batch
        return
    yield from _halves(batch.slice(0, middle), chunk_bytes_max)
    yield from _halves(batch.slice(middle, len(batch)), chunk_bytes_max)


def cut_after(batch: Batch, position: int) -> int:
    """Return the first position from `position` on whose sort words differ from those of the row before."""
    if position <= 0 or position >= len(batch):
        return max(0, min(position, len(batch)))
    return lower_bound(batch, words_at(batch, position - 1), after=True)


class MemoryChunks:
    """Store of chunks as objects in this process.

    With `below`, chunks that are not here are read from that store. Numbers of new chunks begin at `OWN_NUMBERS` then.

    **Cost**: `put` and `get` are one dictionary access; nothing is copied.
    """

    def __init__(self, chunk_bytes_max: int = CHUNK_BYTES_MAX_MEMORY, below: ChunkStore | None = None) -> None:
        """Create an empty store."""
        self.chunk_bytes_max = chunk_bytes_max
        self._below = below
        self.cuts: Sequence[int] = ()
        self.written = False
        self._chunks: dict[int, Batch] = {}
        self._next = 1 if below is None else OWN_NUMBERS
        self._fresh_bytes = 0
        self._kept_bytes = 0
        self._lock = threading.Lock()

    def put(self, chunk: Batch) -> ChunkRef:
        """Keep the batch under a new number."""
        with self._lock:
            ref = ChunkRef.of(self._next, chunk, chunk.nbytes)
            self._next += 1
            self._chunks[ref.id] = chunk
            self._fresh_bytes += ref.nbytes
        return ref

    def get(self, ref: ChunkRef, arrangement: Arrangement) -> Batch:
        """Return the chunk from this store or from the store below; raise `InternalError` if the chunk was dropped."""
        found = self._chunks.get(ref.id)
        if found is not None:
            return found
        if self._below is None or ref.id >= OWN_NUMBERS:
            raise InternalError(f"chunk is gone: chunk={ref.id} rows={ref.rows}")
        return self._below.get(ref, arrangement)

    def foresight(self) -> None:
        """Return None: reads never wait."""

    @property
    def next_number(self) -> int:
        """Return the number of the next chunk."""
        return self._next

    def __len__(self) -> int:
        """Return the number of chunks."""
        return len(self._chunks)

    def due(self) -> bool:
        """Return True if enough bytes were put since the last `keep` that collecting garbage pays."""
        return self._fresh_bytes > max(16 << 20, self._kept_bytes // 4)

    def keep(self, ids: Iterable[npt.NDArray[np.uint64]]) -> None:
        """Drop every chunk whose number is not in `ids`."""
        wanted: set[int] = set()
        for some in ids:
            wanted.update(some.tolist())
        with self._lock:
            for number in [n for n in self._chunks if n not in wanted]:
                del self._chunks[number]
            self._kept_bytes = sum(chunk.nbytes for chunk in self._chunks.values())
            self._fresh_bytes = 0


class EndingAt:
    """Store that ends new chunks at the key hashes `cuts`, and keeps them in another store."""

    def __init__(self, chunks: ChunkStore, cuts: Sequence[int]) -> None:
        """Keep chunks in `chunks`, with `cuts` in place of its own cuts."""
        self._chunks = chunks
        self.chunk_bytes_max, self.cuts, self.written = chunks.chunk_bytes_max, cuts, chunks.written

    def put(self, chunk: Batch) -> ChunkRef:
        """Store the chunk in the other store."""
        return self._chunks.put(chunk)

    def get(self, ref: ChunkRef, arrangement: Arrangement) -> Batch:
        """Return the stored batch."""
        return self._chunks.get(ref, arrangement)

    def foresight(self) -> Foresight | None:
        """Return the receiver of read hints of the other store."""
        return self._chunks.foresight()

"""Read one sorted run, and find the chunks that a look-up must load.

The fences of a run are the key hash and the order code of each chunk's first and last row.
So a look-up of a range of codes loads only the chunks that the range touches.
In a group of many chunks, the work depends on the look-ups, not on the size of the group.

Source: docs/concepts/storage.md (the manifest holds the fences).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from dbsp.trace.chunks import ChunkRef, Foresight
from dbsp.trace.live_starts import LiveStarts
from dbsp.zset.batch import Batch
from dbsp.zset.kernels import equal_ranges, expand_ranges
from dbsp.zset.kernels.ranges import overlap_fences
from dbsp.zset.runs import begins

U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]
Asked = slice | I64
"""Ascending query numbers: a slice for neighbouring queries, or an array of numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SortedRun:
    """A sorted run as readers see it: the fences of its chunks, and a function that loads a chunk.

    Reading begins at chunk `start`. `first` and `last` are the hashes of the `fences`, copied for searching.
    Rows before the `live_starts` cancel out with rows of the other runs.
    `ahead` and `ref` (of a chunk) are set if reading may wait for a disk.
    """

    first: U64
    last: U64
    fences: U64
    start: int
    load: Callable[[int], Batch]
    live_starts: LiveStarts = field(default_factory=LiveStarts)
    ahead: Foresight | None = None
    ref: Callable[[int], ChunkRef] | None = None

    @staticmethod
    def of(batch: Batch) -> SortedRun:
        """Return a batch in memory as a run of one chunk."""
        key_hash = batch.key_hash if batch.key_hash is not None else np.empty(0, np.uint64)
        first, last, code = key_hash[:1], key_hash[-1:], batch.order_code
        codes = (first, last) if code is None else (code[:1], code[-1:])
        fences = np.stack([first, codes[0], last, codes[1]], axis=1)
        return SortedRun(first=first, last=last, fences=fences, start=0, load=lambda _: batch)

    def begin(self, key_hash: U64, first: U64) -> U64:
        """Return the order code to read each hash from: `first`, or the live start if it is greater."""
        return np.maximum(first, self.live_starts.of(key_hash)) if len(self.live_starts) else first

    def touched(self, key_hash: U64) -> Iterator[tuple[slice, int]]:
        """Yield (queries, chunk) for every chunk that can contain rows of these hashes, in order."""
        for asked, chunk in self._touched(key_hash):
            self._announce(chunk, key_hash[asked])
            yield asked, chunk

    def overlapped(self, key_hash: U64, first: U64, last: U64) -> Iterator[tuple[Asked, int]]:
        """Yield (queries, chunk) for every chunk that can contain rows of these hashes with codes from `first` to `last`."""
        if len(self.first) - self.start <= 1:  # most runs of a small state: one chunk, so the codes cannot exclude any
            yield from self.touched(key_hash)
            return
        query, chunk = expand_ranges(*self.span(key_hash, first, last))
        yield from self.by_chunk(key_hash, query, chunk)

    def span(self, key_hash: U64, first: U64, last: U64) -> tuple[I64, I64]:
        """Return the first chunk, and the chunk after the last, of each range of codes."""
        lows, highs = np.empty(len(key_hash), np.int64), np.empty(len(key_hash), np.int64)
        overlap_fences(lows, highs, key_hash, first, last, self.fences, self.start)
        return lows, highs

    def by_chunk(self, key_hash: U64, query: I64, chunk: I64) -> Iterator[tuple[I64, int]]:
        """Yield (queries, chunk) for every chunk that some query needs; `query` is ascending."""
        order = np.argsort(chunk, kind="stable")
        query, chunk = query[order], chunk[order]
        for begin, end in pairwise([*np.flatnonzero(begins(chunk)).tolist(), len(chunk)]):
            at = int(chunk[begin])
            self._announce(at, key_hash[query[begin:end]])
            yield query[begin:end], at

    def find(self, chunk: int, rows: Batch, key_hash: U64) -> tuple[I64, I64]:
        """Return the range of rows of each of these sorted hashes in a loaded chunk."""
        low, high = equal_ranges(key_hash, rows.words[0])
        if self.ahead is not None and self.ref is not None:
            self.ahead.rows(self.ref(chunk), low, high)
        return low, high

    def _announce(self, chunk: int, key_hash: U64) -> None:
        """Tell the foresight about the look-up, if reading may wait for a disk."""
        if self.ahead is not None and self.ref is not None:
            self.ahead.hashes(self.ref(chunk), key_hash)

    def _touched(self, key_hash: U64) -> Iterator[tuple[slice, int]]:
        """Yield the pairs of `touched` without announcing the look-up."""
        first, last = self.first[self.start :], self.last[self.start :]
        if len(first) == 1:  # most runs of a small state: two scalar searches are faster than arrays of bounds
            low, high = int(key_hash.searchsorted(first[0], "left")), int(key_hash.searchsorted(last[0], "right"))
            if low < high:
                yield slice(low, high), self.start
            return
        if len(key_hash) < len(first):
            lows, highs = last.searchsorted(key_hash, "left"), first.searchsorted(key_hash, "right")
            chunks = np.unique(expand_ranges(lows, np.maximum(lows, highs))[1])
        else:
            chunks = np.arange(len(first))
        begin, end = key_hash.searchsorted(first[chunks], "left"), key_hash.searchsorted(last[chunks], "right")
        some = np.flatnonzero(begin < end)
        for low, high, chunk in zip(begin[some].tolist(), end[some].tolist(), chunks[some].tolist(), strict=True):
            yield slice(low, high), chunk + self.start


def numbers(asked: Asked) -> I64:
    """Return `asked` as an array of query numbers."""
    return np.arange(asked.start, asked.stop) if isinstance(asked, slice) else asked

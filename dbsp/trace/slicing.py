"""Slicing a trace by shard, and putting slices of several workers together: what a rescale does to state.

A shard is one contiguous range of key hashes (design, section 3), so of every run it is one range of chunks; only the chunks
at its edges are read and cut. Slices of different workers never overlap, because every key has one owner (invariant 2), so
runs of different workers are laid side by side in hash order and nothing is merged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dbsp.trace.chunks import ChunkRef, ChunkStore
from dbsp.trace.manifest import Cursor, SpineState, StoredBatch
from dbsp.trace.merging import store
from dbsp.trace.rows import end_to_end
from dbsp.zset.batch import Batch
from dbsp.zset.schema import Arrangement

HashRange = tuple[int, int]
"""Key hashes from the first (included) to the second (excluded, at most 2**64)."""

_HASH_MAX = (1 << 64) - 1


def joined_ranges(ranges: Sequence[HashRange]) -> list[HashRange]:
    """The same hashes in order, neighbouring ranges made one, empty ones left out."""
    out: list[HashRange] = []
    for low, high in sorted(ranges):
        if low >= high:
            continue
        if out and low <= out[-1][1]:
            out[-1] = (out[-1][0], max(high, out[-1][1]))
        else:
            out.append((low, high))
    return out


@dataclass(frozen=True, slots=True, kw_only=True)
class Slices:
    """Some hash ranges of one trace; `shared` says that the target already holds the chunks of `chunks`."""

    state: SpineState
    ranges: Sequence[HashRange]
    chunks: ChunkStore
    shared: bool = False

    def runs(self) -> list[tuple[StoredBatch, Cursor]]:
        """The sorted runs that readers read, oldest first, each from a position on."""
        found: list[tuple[StoredBatch, Cursor]] = []
        for entry in self.state.entries:
            if isinstance(entry, StoredBatch):
                found.append((entry, Cursor()))
            else:
                found += [(entry.done, Cursor()), (entry.left, entry.left_pos), (entry.right, entry.right_pos)]
        return [(run, cursor) for run, cursor in found if cursor.chunk < len(run)]


def slice_shards(
    state: SpineState,
    ranges: Sequence[HashRange],
    arrangement: Arrangement,
    source: ChunkStore,
    target: ChunkStore,
    shared: bool = False,
) -> SpineState:
    """The rows of these hash ranges as a state in `target`; see `gather_slices`."""
    return gather_slices([Slices(state=state, ranges=ranges, chunks=source, shared=shared)], arrangement, target)


def gather_slices(sources: Sequence[Slices], arrangement: Arrangement, target: ChunkStore) -> SpineState:
    """One state of slices whose hash ranges do not overlap: run n is everybody's n-th newest run, in hash order.

    **Cost**: whole chunks are copied (when `shared`: only referred to); chunks at an edge are read and cut; small pieces
    that follow each other are joined, also those of different sources.
    """
    runs = [source.runs() for source in sources]
    depth = max(map(len, runs), default=0)
    pieces = sorted((low, high, n) for n, source in enumerate(sources) for low, high in joined_ranges(source.ranges))
    entries: list[StoredBatch] = []
    for level in range(depth, 0, -1):
        packer = _Packer(arrangement, target)
        for low, high, n in pieces:
            if level <= len(runs[n]):
                packer.take(sources[n], *runs[n][-level], (low, high))
        gathered = packer.finish()
        if len(gathered):
            entries.append(gathered)
    return SpineState(entries=tuple(entries))


class _Packer:
    """Builds one run out of whole chunks and pieces of chunks, keeping neighbouring pieces together."""

    def __init__(self, arrangement: Arrangement, target: ChunkStore) -> None:
        """Nothing taken yet."""
        self._arrangement, self._target = arrangement, target
        self._refs: list[ChunkRef] = []
        self._loose: list[Batch] = []
        self._loose_bytes = 0

    def take(self, source: Slices, run: StoredBatch, cursor: Cursor, wanted: HashRange) -> None:
        """Add the wanted rows of a run, from a position on; ranges come in order."""
        low, high = wanted
        begin = int(run.last.searchsorted(np.uint64(low), "left"))
        end = len(run) if high > _HASH_MAX else int(run.first.searchsorted(np.uint64(high), "left"))
        for index in range(max(begin, cursor.chunk), end):
            ref, row = run.ref(index), cursor.row if index == cursor.chunk else 0
            if source.shared and row == 0 and low <= ref.first and ref.last < high:
                self._flush()
                self._refs.append(ref)
            else:
                self._take_piece(source.chunks.get(ref, self._arrangement), row, wanted)

    def _take_piece(self, chunk: Batch, row: int, wanted: HashRange) -> None:
        """Add the wanted rows of one chunk, from `row` on."""
        low, high = wanted
        hashes = chunk.words[0]
        start = max(row, int(hashes.searchsorted(np.uint64(low), "left")))
        stop = len(chunk) if high > _HASH_MAX else int(hashes.searchsorted(np.uint64(high), "left"))
        if start >= stop:
            return
        part = chunk.slice(start, stop)
        self._loose.append(part)
        self._loose_bytes += part.nbytes
        if self._loose_bytes >= self._target.chunk_bytes_max // 2:
            self._flush()

    def _flush(self) -> None:
        """Store the pieces collected."""
        if self._loose:
            self._refs += store(end_to_end(self._loose, self._arrangement), self._target)
            self._loose, self._loose_bytes = [], 0

    def finish(self) -> StoredBatch:
        """The run."""
        self._flush()
        return StoredBatch.of(self._refs)

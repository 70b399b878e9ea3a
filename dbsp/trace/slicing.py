"""Slicing a trace by shard, and putting slices of several workers together: what a rescale does to state.

A shard is one contiguous range of key hashes (design, section 3), so of every run it is one range of chunks; only the chunks
at its edges are read and cut. Slices of different workers never overlap, because every key has one owner (invariant 2), so
runs of different workers are laid side by side in hash order and nothing is merged.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dbsp.trace.chunks import ChunkRef, ChunkStore
from dbsp.trace.manifest import FIRST, Cursor, SpineState, StoredBatch
from dbsp.trace.merging import store
from dbsp.trace.rows import end_to_end
from dbsp.zset.batch import Batch
from dbsp.zset.schema import Arrangement

HashRange = tuple[int, int]
"""Key hashes from the first (included) to the second (excluded, at most 2**64)."""


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


def slice_shards(
    state: SpineState,
    ranges: Sequence[HashRange],
    arrangement: Arrangement,
    source: ChunkStore,
    target: ChunkStore,
    shared: bool = False,
) -> SpineState:
    """The rows of these hash ranges as a state in `target`; `shared`: target already holds the source's chunks.

    **Cost**: whole chunks are copied (when `shared`: only referred to); chunks at an edge are read and cut.
    """
    wanted = joined_ranges(ranges)
    entries: list[StoredBatch] = []
    for entry in state.entries:
        runs = (
            [(entry, Cursor())]
            if isinstance(entry, StoredBatch)
            else [(entry.done, Cursor()), (entry.left, entry.left_pos), (entry.right, entry.right_pos)]
        )
        for run, cursor in runs:
            packer = _Packer(arrangement, source, target, shared)
            for index in range(cursor.chunk, len(run)):
                packer.take(run.ref(index), cursor.row if index == cursor.chunk else 0, wanted)
            sliced = packer.finish()
            if len(sliced):
                entries.append(sliced)
    return SpineState(entries=tuple(entries))


class _Packer:
    """Builds one run out of whole chunks and pieces of chunks, keeping the pieces together."""

    def __init__(self, arrangement: Arrangement, source: ChunkStore, target: ChunkStore, shared: bool) -> None:
        """Nothing taken yet."""
        self._arrangement, self._source, self._target, self._shared = arrangement, source, target, shared
        self._refs: list[ChunkRef] = []
        self._loose: list[Batch] = []

    def take(self, ref: ChunkRef, row: int, wanted: Sequence[HashRange]) -> None:
        """Add the wanted rows of a chunk, from `row` on."""
        touching = [(low, high) for low, high in wanted if low <= ref.last and ref.first < high]
        if not touching:
            return
        whole = row == 0 and touching[0][0] <= ref.first and ref.last < touching[0][1]
        if whole and self._shared:
            self._flush()
            self._refs.append(ref)
            return
        chunk = self._source.get(ref, self._arrangement)
        for low, high in touching:
            start = row if low <= ref.first else max(row, _position(chunk, low))
            stop = len(chunk) if high > ref.last else _position(chunk, high)
            if start < stop:
                self._loose.append(chunk.slice(start, stop))
        if sum(part.nbytes for part in self._loose) >= self._target.chunk_bytes_max // 2:
            self._flush()

    def _flush(self) -> None:
        """Store the pieces collected."""
        if self._loose:
            self._refs += store(end_to_end(self._loose, self._arrangement), self._target)
            self._loose = []

    def finish(self) -> StoredBatch:
        """The run."""
        self._flush()
        return StoredBatch.of(self._refs)


def _position(chunk: Batch, bound: int) -> int:
    """The first row whose key hash is not below `bound`."""
    return 0 if chunk.key_hash is None else int(chunk.key_hash.searchsorted(np.uint64(bound), "left"))


def side_by_side(states: Sequence[SpineState]) -> SpineState:
    """One state of several that hold disjoint hash ranges: run n consists of everybody's n-th newest run, in hash order."""
    depth = max((len(state.entries) for state in states), default=0)
    runs: list[StoredBatch] = []
    for level in range(depth, 0, -1):
        refs = [
            entry.refs
            for state in states
            if level <= len(state.entries)
            for entry in [state.entries[-level]]
            if isinstance(entry, StoredBatch)
        ]
        together = np.concatenate(refs)
        runs.append(StoredBatch(together[np.argsort(together[:, FIRST], kind="stable")]))
    return SpineState(entries=tuple(runs))

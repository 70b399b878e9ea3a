"""Slice a trace by shard, and join slices of several workers: the work of a rescale on state.

A shard is one contiguous range of key hashes (docs/concepts/data.md), so it is one range of chunks of every run.
Only the chunks at the edges of a range are read and cut.
Slices of different workers never overlap, because every key has one owner (invariant 2).
So runs of different workers are put side by side in hash order, without merging.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from types import MappingProxyType

import numpy as np

from dbsp.trace.chunks import ChunkRef, ChunkStore
from dbsp.trace.manifest import ID, Cursor, Refs, SpineState, StoredBatch, chunk_refs
from dbsp.trace.merging import store
from dbsp.trace.rows import end_to_end
from dbsp.zset.batch import Batch
from dbsp.zset.schema import Arrangement

HashRange = tuple[int, int]
"""Key hashes from the first (included) to the second (excluded, at most 2**64)."""

Warm = Mapping[bytes, Sequence[ChunkRef]]
"""The parts that a warm-up has copied to a target: for the key of each part, the chunks that contain its rows."""

NOTHING_WARM: Warm = MappingProxyType({})
_HASH_MAX = (1 << 64) - 1


def joined_ranges(ranges: Sequence[HashRange]) -> list[HashRange]:
    """Return the same hashes as sorted ranges: touching ranges joined, empty ranges omitted.

    >>> joined_ranges([(4, 8), (0, 2), (2, 3), (9, 9)])
    [(0, 3), (4, 8)]
    """
    out: list[HashRange] = []
    for low, high in sorted(ranges):
        if low >= high:
            continue
        if out and low <= out[-1][1]:
            out[-1] = (out[-1][0], max(high, out[-1][1]))
        else:
            out.append((low, high))
    return out


def shared_ranges(left: Sequence[HashRange], right: Sequence[HashRange]) -> list[HashRange]:
    """Return the hashes that are in both of two lists of disjoint ranges.

    >>> shared_ranges([(0, 10), (20, 30)], [(5, 25)])
    [(5, 10), (20, 25)]
    """
    pairs = ((max(a[0], b[0]), min(a[1], b[1])) for a in left for b in right)
    return [(first, last) for first, last in pairs if first < last]


@dataclass(frozen=True, slots=True, kw_only=True)
class Slices:
    """Hash ranges of one trace of one source worker.

    `shared` is True if the target already has the chunks of `chunks`.
    `source_worker` is the number of the source worker; no two slices of one slicing have the same number.
    """

    state: SpineState
    ranges: Sequence[HashRange]
    chunks: ChunkStore
    shared: bool = False
    source_worker: int = 0


def runs_of(state: SpineState) -> list[tuple[StoredBatch, Cursor]]:
    """Return the sorted runs that readers read, oldest first, each with the cursor to begin at."""
    found: list[tuple[StoredBatch, Cursor]] = []
    for entry in state.entries:
        if isinstance(entry, StoredBatch):
            found.append((entry, Cursor()))
        else:
            found += entry.read()
    return [(run, cursor) for run, cursor in found if cursor.chunk < len(run)]


def refs_within(states: Iterable[SpineState], ranges: Sequence[HashRange]) -> Refs:
    """Return the references of all chunks with rows of these hash ranges that readers of the states read.

    Each chunk appears once, ordered by number.

    **Law** `plan_slices` of these states and ranges reads no other chunk, and names no other.
    """
    found = [chunk_refs(SpineState())]
    for run, cursor in (each for state in states for each in runs_of(state)):
        for wanted in joined_ranges(ranges):
            begin, end = _span(run, wanted)
            found.append(run.refs[max(begin, cursor.chunk) : end])
    together = np.concatenate(found)
    return together[np.unique(together[:, ID], return_index=True)[1]]


def _span(run: StoredBatch, wanted: HashRange) -> tuple[int, int]:
    """Return the first chunk, and the chunk after the last, that may have rows of a hash range."""
    low, high = wanted
    begin = int(run.last.searchsorted(np.uint64(low), "left"))
    return begin, len(run) if high > _HASH_MAX else int(run.first.searchsorted(np.uint64(high), "left"))


@dataclass(frozen=True, slots=True)
class SlicePiece:
    """Rows `start` to before `stop` of a chunk of the source at index `source`."""

    source: int
    ref: ChunkRef
    start: int
    stop: int

    @property
    def nbytes(self) -> int:
        """Return the approximate stored bytes of these rows."""
        return self.ref.nbytes * (self.stop - self.start) // max(1, self.ref.rows)


@dataclass(frozen=True, slots=True)
class SlicePart:
    """Pieces that follow each other in hash order and are stored together in the target.

    A large piece is a part by itself, so that its part does not depend on the rows before it in its run. Therefore a
    slice of the trace's next version has the same part for each large chunk that still exists.
    """

    pieces: tuple[SlicePiece, ...]

    @property
    def nbytes(self) -> int:
        """Return the approximate stored bytes of all pieces."""
        return sum(piece.nbytes for piece in self.pieces)

    def key(self, sources: Sequence[Slices], layout_version: int) -> bytes:
        """Return 16 bytes that identify the part's pieces and the layout.

        Chunks never change, and a worker does not reuse their numbers. The key uses the source worker's number.
        The worker's index among the sources would differ in another layout.
        """
        words = [
            (sources[piece.source].source_worker, piece.ref.id, piece.start, piece.stop, layout_version)
            for piece in self.pieces
        ]
        return blake2b(np.array(words, "<u8").tobytes(), digest_size=16).digest()

    def rows(self, sources: Sequence[Slices], arrangement: Arrangement) -> Batch:
        """Return the rows in order; a single piece is a view of the source's chunk."""
        return end_to_end([_rows(piece, sources, arrangement) for piece in self.pieces], arrangement)


def _rows(piece: SlicePiece, sources: Sequence[Slices], arrangement: Arrangement) -> Batch:
    chunk = sources[piece.source].chunks.get(piece.ref, arrangement)
    return chunk if piece.stop - piece.start == len(chunk) else chunk.slice(piece.start, piece.stop)


def slice_shards(
    state: SpineState,
    ranges: Sequence[HashRange],
    arrangement: Arrangement,
    source: ChunkStore,
    target: ChunkStore,
    shared: bool = False,
) -> SpineState:
    """Return the rows of these hash ranges as a state in `target`; see `gather_slices`."""
    return gather_slices([Slices(state=state, ranges=ranges, chunks=source, shared=shared)], arrangement, target)


def gather_slices(
    sources: Sequence[Slices],
    arrangement: Arrangement,
    target: ChunkStore,
    warm: Warm = NOTHING_WARM,
    layout_version: int = 0,
) -> SpineState:
    """Return one state of slices whose hash ranges do not overlap.

    Run n consists of the n-th oldest run of every source, in hash order. So a new run of a source does not change the
    parts of older runs. Parts that a warm-up copied stay valid for slices of the source's next version.

    **Law** the rows, runs and bounds of chunks do not depend on `warm`.
    The parts in `warm` only save copying what the target already has for the layout of this version.
    **Cost**: whole chunks are copied, or only referred to if `shared`. Chunks at an edge are read and cut.
    Small pieces that follow each other are joined, also pieces of different sources.
    """
    entries: list[StoredBatch] = []
    for run in plan_slices(sources, arrangement, target.chunk_bytes_max):
        refs: list[ChunkRef] = []
        for item in run:
            if isinstance(item, ChunkRef):
                refs.append(item)
                continue
            there = warm.get(item.key(sources, layout_version)) if warm else None
            refs += there if there is not None else store(item.rows(sources, arrangement), target)
        if refs:
            entries.append(StoredBatch.of(refs))
    return SpineState(entries=tuple(entries))


def plan_slices(
    sources: Sequence[Slices], arrangement: Arrangement, chunk_bytes_max: int
) -> Iterator[list[ChunkRef | SlicePart]]:
    """Yield the runs of `gather_slices`, oldest first: references to chunks, and parts to copy.

    **Cost**: reads the chunks at the edges of the ranges, and none of the chunks that are taken whole.
    """
    runs = [runs_of(source.state) for source in sources]
    depth = max(map(len, runs), default=0)
    pieces = sorted((low, high, n) for n, source in enumerate(sources) for low, high in joined_ranges(source.ranges))
    for level in range(depth):
        packer = _Packer(sources, arrangement, chunk_bytes_max)
        for low, high, n in pieces:
            if level < len(runs[n]):
                packer.take(n, *runs[n][level], (low, high))
        yield packer.finish()


class _Packer:
    """Planner of one run from whole chunks and pieces of chunks; small neighbouring pieces become one part."""

    def __init__(self, sources: Sequence[Slices], arrangement: Arrangement, chunk_bytes_max: int) -> None:
        """Start with no pieces."""
        self._sources, self._arrangement = sources, arrangement
        self._large, self._enough = chunk_bytes_max // 4, chunk_bytes_max // 2
        self._items: list[ChunkRef | SlicePart] = []
        self._loose: list[SlicePiece] = []
        self._loose_bytes = 0

    def take(self, source: int, run: StoredBatch, cursor: Cursor, wanted: HashRange) -> None:
        """Add the wanted rows of a run, from a cursor on; calls must pass the ranges in hash order."""
        low, high = wanted
        begin, end = _span(run, wanted)
        shared = self._sources[source].shared
        for index in range(max(begin, cursor.chunk), end):
            ref, row = run.ref(index), cursor.row if index == cursor.chunk else 0
            whole = low <= ref.first and ref.last < high
            if shared and row == 0 and whole:
                self._flush()
                self._items.append(ref)
            elif whole:
                self._add(SlicePiece(source, ref, row, ref.rows))
            else:
                self._add_edge(source, ref, row, wanted)

    def _add_edge(self, source: int, ref: ChunkRef, row: int, wanted: HashRange) -> None:
        """Add the wanted rows of a chunk at an edge of the range, from `row` on."""
        low, high = wanted
        hashes = self._sources[source].chunks.get(ref, self._arrangement).words[0]
        start = max(row, int(hashes.searchsorted(np.uint64(low), "left")))
        stop = ref.rows if high > _HASH_MAX else int(hashes.searchsorted(np.uint64(high), "left"))
        if start < stop:
            self._add(SlicePiece(source, ref, start, stop))

    def _add(self, piece: SlicePiece) -> None:
        """Add a piece to the collected pieces; a large piece becomes a part alone."""
        size = piece.nbytes
        if size >= self._large:
            self._flush()
        self._loose.append(piece)
        self._loose_bytes += size
        if size >= self._large or self._loose_bytes >= self._enough:
            self._flush()

    def _flush(self) -> None:
        """Make one part of the collected pieces."""
        if self._loose:
            self._items.append(SlicePart(tuple(self._loose)))
            self._loose, self._loose_bytes = [], 0

    def finish(self) -> list[ChunkRef | SlicePart]:
        """Return the planned run."""
        self._flush()
        return self._items

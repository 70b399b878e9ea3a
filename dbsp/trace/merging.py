"""Merge neighbouring runs chunk by chunk, with a bounded amount of work at a time.

A piece of work reads the next rows of each run, its window, and merges them up to a cut. The cut is the least last sort
word of the windows after which their run has more rows. Beyond the cut, a run may have unread rows that precede rows of
the other windows. A cut never divides rows with equal words, because such rows must be consolidated together.
The windows share one chunk's bytes, so a piece costs about the same for runs of any length.

Invariants:
1. `done`, followed by the unread rest of the runs, contains exactly the rows of all runs, at every moment.
2. Every sort word in `done` is below every unread sort word.
3. Whole chunks of fair size that no other run overlaps are passed on by reference.

**Cost**: each row is read and written once per merge of its run; `dbsp.trace.spine` bounds the number of merges.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dbsp.trace.chunks import CUT_SHARE, ChunkRef, ChunkStore, divided, plain_size, split
from dbsp.trace.manifest import ROWS, Cursor, PendingMerge, StoredBatch, refs_of
from dbsp.trace.retention import RetentionBound, retained
from dbsp.trace.rows import end_to_end
from dbsp.trace.words import lower_bound, words_at
from dbsp.zset.batch import Batch
from dbsp.zset.merge import merge_all
from dbsp.zset.schema import Arrangement


@dataclass(frozen=True, slots=True, kw_only=True)
class RunWindow:
    """The next rows of one run; `ends` is True if no rows of the run follow."""

    rows: Batch
    ends: bool


def advance(
    pending: PendingMerge, arrangement: Arrangement, chunks: ChunkStore, retention: RetentionBound | None = None
) -> PendingMerge | StoredBatch:
    """Do one piece of work and charge its rows to the credit; return the finished run if nothing is left.

    Rows below the retention bound are dropped.
    """
    sides = [
        n for n, (run, place) in enumerate(zip(pending.runs, pending.places, strict=True)) if place.chunk < len(run)
    ]
    if not sides:
        return pending.done
    if len(pending.runs) == 1 and retention is not None:
        return _clean_piece(pending, arrangement, chunks, retention)
    if len(sides) == 1:
        return _finish(pending, sides[0], arrangement, chunks)
    return _pass_on(pending, sides, arrangement, chunks) or _merge_piece(pending, sides, arrangement, chunks, retention)


def _clean_piece(
    pending: PendingMerge, arrangement: Arrangement, chunks: ChunkStore, retention: RetentionBound
) -> PendingMerge:
    """Rewrite the next rows of a run that is merged alone, without the rows below the retention bound."""
    window = _window(pending.runs[0], pending.places[0], arrangement, chunks, chunks.chunk_bytes_max // 2)
    done = emit(pending.done, retained(window.rows, retention), arrangement, chunks)
    return _moved_on(pending, {0: len(window.rows)}, done)


def _finish(pending: PendingMerge, side: int, arrangement: Arrangement, chunks: ChunkStore) -> StoredBatch:
    """Append the rest of the last unfinished run: whole chunks by reference, a started chunk rewritten."""
    run, place = pending.runs[side], pending.places[side]
    done, start = pending.done, place.chunk
    if place.row:
        tail = chunks.get(run.ref(start), arrangement)
        done = emit(done, tail.slice(place.row, len(tail)), arrangement, chunks)
        start += 1
    return StoredBatch(np.concatenate([done.refs, run.refs[start:]]))


def _pass_on(
    pending: PendingMerge, sides: Sequence[int], arrangement: Arrangement, chunks: ChunkStore
) -> PendingMerge | None:
    """Pass on the next chunk of one run unread, or return None.

    The chunk must be unstarted, at least a quarter of the largest size, and end before the other runs begin.
    Smaller chunks are merged, so that a run does not decay into small chunks.
    """
    heads = {n: pending.runs[n].ref(pending.places[n].chunk) for n in sides}
    side = min(sides, key=lambda n: heads[n].ends)
    head = heads[side]
    size = plain_size(head.rows, head.nbytes, arrangement)
    if pending.places[side].row or size < chunks.chunk_bytes_max // 4:
        return None
    if any(head.ends >= other.begins for n, other in heads.items() if n != side):
        return None
    done = StoredBatch(np.concatenate([pending.done.refs, refs_of([head])]))
    places = list(pending.places)
    places[side] = Cursor(chunk=places[side].chunk + 1)
    return replace(pending, done=done, places=tuple(places))


def _window(run: StoredBatch, place: Cursor, arrangement: Arrangement, chunks: ChunkStore, bytes_min: int) -> RunWindow:
    """Return the next rows of a run, by whole chunks: at least about `bytes_min` bytes, or all rows."""
    parts: list[Batch] = []
    size, row, index = 0, place.row, place.chunk
    while index < len(run) and (not parts or size < bytes_min):
        chunk = chunks.get(run.ref(index), arrangement)
        parts.append(chunk.slice(row, len(chunk)) if row else chunk)
        size += plain_size(len(chunk), run.ref(index).nbytes, arrangement) * len(parts[-1]) // len(chunk)
        row = 0
        index += 1
    return RunWindow(rows=end_to_end(parts, arrangement), ends=index == len(run))


def _merge_piece(
    pending: PendingMerge,
    sides: Sequence[int],
    arrangement: Arrangement,
    chunks: ChunkStore,
    retention: RetentionBound | None,
) -> PendingMerge:
    """Merge the next windows up to a common cut."""
    share = chunks.chunk_bytes_max // len(sides)
    windows = {n: _window(pending.runs[n], pending.places[n], arrangement, chunks, share) for n in sides}
    lasts = [words_at(window.rows, len(window.rows) - 1) for window in windows.values() if not window.ends]
    rows = {n: len(window.rows) for n, window in windows.items()}
    if lasts:
        rows = {n: lower_bound(window.rows, min(lasts), after=True) for n, window in windows.items()}
    merged = retained(merge_all([window.rows.slice(0, rows[n]) for n, window in windows.items()]), retention)
    return _moved_on(pending, rows, emit(pending.done, merged, arrangement, chunks))


def _moved_on(pending: PendingMerge, rows: Mapping[int, int], done: StoredBatch) -> PendingMerge:
    """Return the merge with its cursors advanced by `rows`, `done` replaced and the credit charged."""
    places = zip(pending.runs, pending.places, strict=True)
    moved = tuple(_moved(run, place, rows.get(n, 0)) for n, (run, place) in enumerate(places))
    return replace(pending, places=moved, done=done, credit=pending.credit - sum(rows.values()))


def _moved(side: StoredBatch, cursor: Cursor, rows: int) -> Cursor:
    """Return the cursor advanced by `rows` rows, over as many chunks as needed."""
    index, row = cursor.chunk, cursor.row + rows
    while index < len(side) and row >= int(side.refs[index, ROWS]):
        row -= int(side.refs[index, ROWS])
        index += 1
    return Cursor(chunk=index, row=row)


def emit(done: StoredBatch, batch: Batch, arrangement: Arrangement, chunks: ChunkStore) -> StoredBatch:
    """Append rows to a finished part; rewrite a small last chunk together with the rows."""
    if len(batch) == 0:
        return done
    kept = done.refs
    if len(done):
        last = done.ref(len(done) - 1)
        if plain_size(last.rows, last.nbytes, arrangement) + batch.nbytes <= chunks.chunk_bytes_max // 2:
            batch = end_to_end([chunks.get(last, arrangement), batch], arrangement)
            kept = kept[:-1]
    return StoredBatch(np.concatenate([kept, refs_of(store(batch, chunks))]))


def store(batch: Batch, chunks: ChunkStore) -> list[ChunkRef]:
    """Store an arranged batch as chunks and return their references."""
    pieces = divided(batch, chunks.cuts, chunks.chunk_bytes_max // CUT_SHARE)
    return [chunks.put(part) for piece in pieces for part in split(piece, chunks.chunk_bytes_max)]


def read_all(batch: StoredBatch, arrangement: Arrangement, chunks: ChunkStore) -> Batch:
    """Return a whole run as one batch in memory; for small runs only."""
    parts: Sequence[Batch] = [chunks.get(ref, arrangement) for ref in batch]
    return end_to_end(parts, arrangement)

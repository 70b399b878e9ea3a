"""Merging two runs chunk by chunk, with a bounded amount of work at a time.

A piece takes the next window of each side, cuts both behind the lesser of their last sort words (a cut never divides rows
with equal words), merges the two parts and emits chunks. So a piece costs at most about two windows, whatever the runs'
sizes, and what is merged so far is complete up to its last words.

Invariants:
1. `done`, then what is left of both sides, holds exactly the rows of both, at every moment.
2. Every sort word in `done` is below every one still to be read.
3. Whole chunks that the other side does not overlap are passed on by reference.

**Cost**: each row is read and written once per merge it takes part in; runs at least double, so a row takes part in about
log2(rows of the trace / rows of an append) merges.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dbsp.trace.chunks import CUT_SHARE, ChunkRef, ChunkStore, divided, split
from dbsp.trace.floor import Floor, above
from dbsp.trace.manifest import ROWS, Cursor, PendingMerge, StoredBatch, refs_of
from dbsp.trace.rows import end_to_end
from dbsp.trace.words import lower_bound, words_at
from dbsp.zset.batch import Batch, merge
from dbsp.zset.schema import Arrangement


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The next rows of one side: the chunks read, the rows of them still to merge, whether they are the side's last."""

    chunks: tuple[int, ...]
    rows: Batch
    ends: bool


def advance(
    pending: PendingMerge, arrangement: Arrangement, chunks: ChunkStore, floor: Floor | None = None
) -> PendingMerge | StoredBatch:
    """Do one piece of work and charge it; the finished run when nothing is left. Rows below the floor are dropped."""
    left_ends, right_ends = pending.left_pos.chunk >= len(pending.left), pending.right_pos.chunk >= len(pending.right)
    if left_ends and right_ends:
        return pending.done
    if len(pending.right) == 0 and floor is not None:
        return _clean_piece(pending, arrangement, chunks, floor)
    if left_ends or right_ends:
        return _finish(pending, arrangement, chunks)
    return _pass_on(pending, chunks) or _merge_piece(pending, arrangement, chunks, floor)


def _clean_piece(pending: PendingMerge, arrangement: Arrangement, chunks: ChunkStore, floor: Floor) -> PendingMerge:
    """Rewrite the next rows of a run that is merged with nothing."""
    window = _window(pending.left, pending.left_pos, arrangement, chunks)
    rows = len(window.rows)
    return replace(
        pending,
        done=emit(pending.done, above(window.rows, floor), arrangement, chunks),
        left_pos=_moved(pending.left, pending.left_pos, rows),
        credit=pending.credit - rows,
    )


def _finish(pending: PendingMerge, arrangement: Arrangement, chunks: ChunkStore) -> StoredBatch:
    """One side has ended: the rest of the other follows, whole chunks by reference."""
    side, cursor = (
        (pending.left, pending.left_pos)
        if pending.left_pos.chunk < len(pending.left)
        else (pending.right, pending.right_pos)
    )
    done, start = pending.done, cursor.chunk
    if cursor.row:
        tail = chunks.get(side.ref(start), arrangement)
        done = emit(done, tail.slice(cursor.row, len(tail)), arrangement, chunks)
        start += 1
    return StoredBatch(np.concatenate([done.refs, side.refs[start:]]))


def _pass_on(pending: PendingMerge, chunks: ChunkStore) -> PendingMerge | None:
    """Hand on the next chunk of one side unread, if it is whole, of fair size and ends before the other side begins."""
    left, right = pending.left.ref(pending.left_pos.chunk), pending.right.ref(pending.right_pos.chunk)
    enough = chunks.chunk_bytes_max // 4
    if pending.left_pos.row == 0 and left.nbytes >= enough and left.ends < right.begins:
        done = StoredBatch(np.concatenate([pending.done.refs, refs_of([left])]))
        return replace(pending, done=done, left_pos=Cursor(chunk=pending.left_pos.chunk + 1))
    if pending.right_pos.row == 0 and right.nbytes >= enough and right.ends < left.begins:
        done = StoredBatch(np.concatenate([pending.done.refs, refs_of([right])]))
        return replace(pending, done=done, right_pos=Cursor(chunk=pending.right_pos.chunk + 1))
    return None


def _window(side: StoredBatch, cursor: Cursor, arrangement: Arrangement, chunks: ChunkStore) -> Window:
    """The next rows of a side: at least half of `chunk_bytes_max` bytes of them, if there are so many."""
    parts: list[Batch] = []
    size, row = 0, cursor.row
    index = cursor.chunk
    while index < len(side) and (not parts or size < chunks.chunk_bytes_max // 2):
        chunk = chunks.get(side.ref(index), arrangement)
        parts.append(chunk.slice(row, len(chunk)) if row else chunk)
        size += side.ref(index).nbytes * len(parts[-1]) // len(chunk)
        row = 0
        index += 1
    read = tuple(range(cursor.chunk, index))
    return Window(chunks=read, rows=end_to_end(parts, arrangement), ends=index == len(side))


def _merge_piece(
    pending: PendingMerge, arrangement: Arrangement, chunks: ChunkStore, floor: Floor | None
) -> PendingMerge:
    """Merge the next windows up to a common cut."""
    left = _window(pending.left, pending.left_pos, arrangement, chunks)
    right = _window(pending.right, pending.right_pos, arrangement, chunks)
    lasts = [words_at(window.rows, len(window.rows) - 1) for window in (left, right) if not window.ends]
    left_rows, right_rows = len(left.rows), len(right.rows)
    if lasts:
        cut = min(lasts)
        left_rows, right_rows = lower_bound(left.rows, cut, after=True), lower_bound(right.rows, cut, after=True)
    merged = above(merge(left.rows.slice(0, left_rows), right.rows.slice(0, right_rows)), floor)
    return replace(
        pending,
        done=emit(pending.done, merged, arrangement, chunks),
        left_pos=_moved(pending.left, pending.left_pos, left_rows),
        right_pos=_moved(pending.right, pending.right_pos, right_rows),
        credit=pending.credit - left_rows - right_rows,
    )


def _moved(side: StoredBatch, cursor: Cursor, rows: int) -> Cursor:
    """The position `rows` rows further on."""
    index, row = cursor.chunk, cursor.row + rows
    while index < len(side) and row >= int(side.refs[index, ROWS]):
        row -= int(side.refs[index, ROWS])
        index += 1
    return Cursor(chunk=index, row=row)


def emit(done: StoredBatch, batch: Batch, arrangement: Arrangement, chunks: ChunkStore) -> StoredBatch:
    """Add rows behind a run; a last chunk that is small is joined with them, so that chunks do not crumble."""
    if len(batch) == 0:
        return done
    kept = done.refs
    if len(done):
        last = done.ref(len(done) - 1)
        if last.nbytes + batch.nbytes <= chunks.chunk_bytes_max // 2:
            batch = end_to_end([chunks.get(last, arrangement), batch], arrangement)
            kept = kept[:-1]
    return StoredBatch(np.concatenate([kept, refs_of(store(batch, chunks))]))


def store(batch: Batch, chunks: ChunkStore) -> list[ChunkRef]:
    """Put an arranged batch, cut into chunks."""
    pieces = divided(batch, chunks.cuts, chunks.chunk_bytes_max // CUT_SHARE)
    return [chunks.put(part) for piece in pieces for part in split(piece, chunks.chunk_bytes_max)]


def read_all(batch: StoredBatch, arrangement: Arrangement, chunks: ChunkStore) -> Batch:
    """A whole run in memory (only for small ones)."""
    parts: Sequence[Batch] = [chunks.get(ref, arrangement) for ref in batch]
    return end_to_end(parts, arrangement)

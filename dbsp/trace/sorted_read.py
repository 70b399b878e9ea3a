"""Read leased traces in the order of their sort words, piece by piece, while steps run.

One trace is read from the leases of several workers at once. A piece is the sum of the rows of all runs up to a common
cut. So each row is returned once, with its whole weight, whichever runs and workers store parts of the weight. The
order does not depend on the number of workers.

Each piece reads at most one chunk of each run, and only of runs that overlap the piece. The fences decide this without
reading. A piece is used inside a short read of the databases, and the position moves on only after that. So a failed
piece may be tried again.

Invariants:
1. The pieces are disjoint and ascending in their sort words; rows with equal words are in one piece.
2. The next piece has all rows above the last piece and up to its own last words.

**Cost**: each row is read and merged once. Memory: one chunk of each run that overlaps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np

from dbsp.store import Lease, TraceSpec
from dbsp.trace.chunks import ChunkStore
from dbsp.trace.manifest import FIRST_CODE, LAST_CODE, Entry, StoredBatch
from dbsp.trace.words import lower_bound, words_at
from dbsp.zset.batch import Batch
from dbsp.zset.merge import merge_all

WORD_MAX = (1 << 64) - 1

T = TypeVar("T")


class Span(NamedTuple):
    """The sort words from (`first_hash`, `first_code`) to (`last_hash`, `last_code`), both included.

    The codes are order codes. They are ignored if the arrangement has no order.
    """

    first_hash: int = 0
    first_code: int = 0
    last_hash: int = WORD_MAX
    last_code: int = WORD_MAX


WHOLE = Span()
Place: TypeAlias = tuple[tuple[int, int], ...]
"""The position at which a read continues: (next chunk, row in the chunk) of each run, in the order of the manifests."""


@dataclass(slots=True)
class _Side:
    """The unread rest of a run: from a row of a chunk on."""

    lease: int
    run: StoredBatch
    chunk: int
    row: int

    @property
    def begins(self) -> tuple[int, int]:
        """Return the key hash and the order code of the current chunk's first row."""
        return int(self.run.first[self.chunk]), int(self.run.refs[self.chunk, FIRST_CODE])

    @property
    def ends(self) -> tuple[int, int]:
        """Return the key hash and the order code of the current chunk's last row."""
        return int(self.run.last[self.chunk]), int(self.run.refs[self.chunk, LAST_CODE])


class SortedRead:
    """The rows of one trace in several leases whose key hash and order code are in a span."""

    def __init__(
        self, leases: Sequence[Lease], trace: TraceSpec, span: Span = WHOLE, after: Place | None = None
    ) -> None:
        """Begin before the first row, or after the last piece of a read of the same leases; nothing is read yet."""
        self._leases, self._arrangement, self._span = leases, trace.arrangement, span
        self._last = (span.last_hash, span.last_code if trace.arrangement.order else WORD_MAX)
        self._sides = [
            side
            for number, lease in enumerate(leases)
            for entry in lease.state(trace).entries
            for side in self._of(number, entry)
        ]
        self.read_up_to = 0
        """Key hash below which all rows have been read; rows of this hash itself may have been read in part."""
        if after is not None:
            for side, (chunk, row) in zip(self._sides, after, strict=True):
                side.chunk, side.row = chunk, row

    @property
    def place(self) -> Place:
        """Return the chunk and row of each run at which the next piece begins."""
        return tuple((side.chunk, side.row) for side in self._sides)

    def _of(self, lease: int, entry: Entry) -> list[_Side]:
        """Return the sides of a run, or of the parts of a merge."""
        if isinstance(entry, StoredBatch):
            return [self._side(lease, entry, 0, 0)]
        return [self._side(lease, run, place.chunk, place.row) for run, place in entry.read()]

    def _side(self, lease: int, run: StoredBatch, chunk: int, row: int) -> _Side:
        """Return a run from a position on, without the chunks that end before the span."""
        begins = int(run.last.searchsorted(np.uint64(self._span.first_hash))) if self._span.first_hash else 0
        if self._span.first_code and self._arrangement.order:
            same = int(run.last.searchsorted(np.uint64(self._span.first_hash), "right"))
            begins += int(run.refs[begins:same, LAST_CODE].searchsorted(np.uint64(self._span.first_code)))
        return _Side(lease, run, chunk, row) if begins <= chunk else _Side(lease, run, begins, 0)

    def piece(self, use: Callable[[Batch], T]) -> T | None:
        """Return `use` of the next piece, which may have no rows; None after the last piece.

        The piece is arranged. Its arrays are invalid after `use`, so `use` returns copies.
        """
        live = [side for side in self._sides if side.chunk < len(side.run) and side.begins <= self._last]
        if not live:
            return None
        end = min(side.ends for side in live)
        some = [side for side in live if side.begins <= end]
        with ExitStack() as stack:
            stores = {n: stack.enter_context(self._leases[n].reading()) for n in sorted({s.lease for s in some})}
            windows = [self._window(side, stores[side.lease]) for side in some]
            # A chunk whose rows are all below or above the span has no window. Then it ends above the span, too.
            lasts = [words_at(rows, len(rows) - 1) for _, rows in windows if len(rows)]
            counts = [lower_bound(rows, min(lasts), after=True) if len(rows) else 0 for _, rows in windows]
            parts = [rows.slice(0, count) for (_, rows), count in zip(windows, counts, strict=True) if count]
            found = use(merge_all(parts) if parts else windows[0][1])
            self.read_up_to = int(min(lasts)[0]) if lasts else end[0]
        for side, (start, rows), count in zip(some, windows, counts, strict=True):
            side.row = start + count
            if count == len(rows):
                side.chunk, side.row = side.chunk + 1, 0
        return found

    def _window(self, side: _Side, chunks: ChunkStore) -> tuple[int, Batch]:
        """Return the unread rows of a side's current chunk that are in the span, and the place of the first."""
        chunk = chunks.get(side.run.ref(side.chunk), self._arrangement)
        start, stop = side.row, len(chunk)
        if self._span.first_hash or self._span.first_code:
            start = max(start, _place(chunk, self._span.first_hash, self._span.first_code, "left"))
        if self._last < (WORD_MAX, WORD_MAX):
            stop = _place(chunk, *self._last, "right")
        whole = start == 0 and stop == len(chunk)
        return start, chunk if whole else chunk.slice(start, max(start, stop))


def _place(chunk: Batch, key_hash: int, code: int, side: Literal["left", "right"]) -> int:
    """Return the place of a key hash and an order code among the rows of a chunk, before or after equal ones."""
    hashes = chunk.words[0]
    if chunk.order_code is None:
        return int(hashes.searchsorted(np.uint64(key_hash), side))
    low, high = (int(hashes.searchsorted(np.uint64(key_hash), edge)) for edge in ("left", "right"))
    return low + int(chunk.order_code[low:high].searchsorted(np.uint64(code), side))

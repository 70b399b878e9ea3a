"""Read the first rows of many keys at once from several sorted runs, without and with a change.

Each run yields its first m rows of each key. A run with more rows is *truncated* at the last row that it yields.
Of a truncated run, only rows before the order code of that row are known completely.
So over all runs, only rows below the least such code are trusted.
If fewer than k trusted rows have a positive sum, m grows for these keys alone.

Words alone choose the rows, of all runs at once. Columns are read to confirm that rows with equal words are equal,
and that rows with a key's hash belong to the key. Columns are gathered only of the rows that a reader takes.
If a key's hash or a row's words are shared, the key is read in full: all its rows are summed.

The last rows are the first rows of runs that are read backwards, so one trace serves both ends of an order.

If rows have several weights, the first weight is read: it says whether a row is present
(`dbsp.zset.schema.Arrangement`).

**Law**: the rows of a key on either side are exactly the rows of the consolidated trace up to some order code.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dbsp.errors import CapacityError, InternalError
from dbsp.trace.rows import empty
from dbsp.trace.source import SortedRun, numbers
from dbsp.zset.arrays import gather, gather_all, no_rows
from dbsp.zset.batch import Batch, concat, rearrange, take_all
from dbsp.zset.batch_rows import equal_rows
from dbsp.zset.coded import plain
from dbsp.zset.equality import equal_columns
from dbsp.zset.hashing import hash_decides
from dbsp.zset.kernels import OVERFLOW_HINT, equal_ranges, expand_ranges, partition_by, run_starts
from dbsp.zset.kernels.first_rows import AFTER, CHUNK, POSITION, QUERY, WEIGHT, collect_first_rows, settle_first_rows
from dbsp.zset.kernels.ranges import cut_ranges
from dbsp.zset.runs import begins
from dbsp.zset.schema import Arrangement

U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_FIRST_ROWS_MIN, _ROWS_FACTOR = 4, 4
_ROOM_MIN = 256
_NO_LIMIT = np.uint64(0xFFFF_FFFF_FFFF_FFFF)
_NO_ROWS = np.empty(0, np.int64)
_NO_CODES = np.empty(0, np.uint64)


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstRows:
    """The first rows of the queries, each row once, ordered by (query, sort words), with its weights before and after a change.

    Read backwards, these are the last rows, with falling words. `before[i]` is 0 if row i is not among the first rows
    before the change; `after[i]` likewise. Columns are gathered only for rows that `take` or `column` asks for.
    """

    arrangement: Arrangement
    key_hash: U64
    chunks: Sequence[Batch]
    query: I64
    chunk: I64
    position: I64
    before: I64
    after: I64
    code: U64
    row: U64

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.query)

    def column(self, name: str) -> pa.Array:
        """Return a column of all rows."""
        index = self.arrangement.schema.index(name)
        if not len(self):
            return no_rows(self.arrangement.schema.columns[index].type)
        return plain(_column(self.chunks, index, *_places(len(self.chunks), self.chunk, self.position)))

    def take(self, rows: I64, weights: I64) -> Batch:
        """Return some rows with these weights, as a loose batch with its words."""
        if not len(rows):
            return empty(self.arrangement)
        places = _places(len(self.chunks), self.chunk.take(rows), self.position.take(rows))
        return Batch(
            schema=self.arrangement.schema,
            columns=tuple(_column(self.chunks, index, *places) for index in range(len(self.arrangement.schema))),
            weights=np.ascontiguousarray(weights).reshape(-1, 1),
            key_hash=self.key_hash.take(self.query.take(rows)),
            order_code=self.code.take(rows),
            row_hash=self.row.take(rows) if self.arrangement.hashes_rows else None,
        )

    def changed(self, weights: I64) -> Batch:
        """Return the rows with a weight other than zero, arranged; `weights` has one weight per row."""
        rows = np.flatnonzero(weights)
        taken = self.take(rows, weights.take(rows))
        hashes, codes, hashed = taken.words
        if codes is None:
            raise InternalError("rows of an ordered trace carry their codes")
        # If two queries share a key hash, the rows are ordered by query, and so not by their words.
        shared = (self.key_hash[1:] == self.key_hash[:-1]).any()
        if not shared and begins(hashes, codes, codes if hashed is None else hashed).all():
            return taken.but(arrangement=self.arrangement)
        return rearrange(taken, self.arrangement)

    def side(self, weights: I64) -> tuple[I64, Batch]:
        """Return the rows with a weight other than zero, and the query of each row."""
        rows = np.flatnonzero(weights)
        return self.query.take(rows), self.take(rows, weights.take(rows))


Places = tuple[list[tuple[int, I64]], I64 | None]
"""(chunk, positions) of the chunks with rows, and the permutation that restores the rows' order; None if in order."""


def _places(chunks: int, chunk: I64, position: I64) -> Places:
    """Return the positions by chunk, and the order that restores the given order of the rows."""
    order, bounds = partition_by(chunk, chunks)
    dealt = position.take(order)
    parts = [(index, dealt[low:high]) for index, (low, high) in enumerate(pairwise(bounds.tolist())) if low < high]
    if len(parts) == 1:
        return parts, None
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order))
    return parts, places


def _column(chunks: Sequence[Batch], index: int, parts: list[tuple[int, I64]], places: I64 | None) -> pa.Array:
    """Return one column of the rows at these places; there must be at least one row."""
    columns = [chunks[chunk].held[index] for chunk, _ in parts]
    if places is None:
        return gather(columns[0], parts[0][1])
    return gather(gather_all(columns, [at for _, at in parts]), places)


def read_first_rows(
    sources: Sequence[SortedRun],
    arrangement: Arrangement,
    key_hash: U64,
    k: int,
    keys: Batch | None,
    delta: Batch | None = None,
    backwards: bool = False,
) -> FirstRows:
    """Return the rows of `Spine.first_rows` and `Spine.first_rows_twice`; with `backwards`, the last rows."""
    reading = _Reading(sources, arrangement, key_hash, k, keys, delta, backwards)
    alone = np.ones(len(key_hash), np.bool_)
    same = key_hash[1:] == key_hash[:-1]
    if same.any():
        alone[1:] &= ~same
        alone[:-1] &= ~same
    active, shared = np.flatnonzero(alone), [np.flatnonzero(~alone)]
    rows_max = max(_FIRST_ROWS_MIN, 2 * k)
    while len(active):
        ready, doubtful = reading.round(active, rows_max)
        shared.append(active[doubtful])
        active = active[~(ready | doubtful)]
        rows_max *= _ROWS_FACTOR
    reading.in_full(np.sort(np.concatenate(shared)))
    return reading.first_rows()


class _Reading:
    """A read of first rows: the queries, and the rows found so far."""

    def __init__(
        self,
        sources: Sequence[SortedRun],
        arrangement: Arrangement,
        key_hash: U64,
        k: int,
        keys: Batch | None,
        delta: Batch | None,
        backwards: bool,
    ) -> None:
        """Start with no rows found."""
        self.backwards = backwards
        self.sources = sources
        self.arrangement = arrangement
        self.key_hash = key_hash
        self.k = k
        self.keys = keys
        self.delta = delta if delta is not None and len(delta) else None
        self.chunks: list[Batch] = []
        self.kept: list[I64] = []
        self.words: list[U64] = []

    def first_rows(self) -> FirstRows:
        """Return all rows found, in order of the queries."""
        if len(self.kept) == 1:
            return self._first_rows(self.kept[0], self.words[0])
        kept = np.concatenate([np.empty((AFTER + 1, 0), np.int64), *self.kept], axis=1)
        words = np.concatenate([np.empty((2, 0), np.uint64), *self.words], axis=1)
        order = np.argsort(kept[QUERY], kind="stable")
        return self._first_rows(kept.take(order, axis=1), words.take(order, axis=1))

    def _first_rows(self, kept: I64, words: U64) -> FirstRows:
        """Return found rows as `FirstRows`."""
        words = ~words if self.backwards else words
        return FirstRows(
            arrangement=self.arrangement, key_hash=self.key_hash, chunks=self.chunks, query=kept[QUERY], chunk=kept[CHUNK],
            position=kept[POSITION], before=kept[WEIGHT], after=kept[AFTER], code=words[0], row=words[1],
        )  # fmt: skip

    def round(self, active: I64, rows_max: int) -> tuple[Mask, Mask]:
        """Read up to `rows_max` rows of each run for these queries.

        Return two masks: the queries that are answered, and the queries that must be read in full.
        """
        found = _Candidates(self.key_hash.take(active), rows_max, self.chunks, self.backwards)
        for source in self.sources:
            found.read(source)
        cut, limit, delta = found.cut, found.limit, -1
        if self.delta is not None:
            cut, limit, delta = cut.copy(), limit.copy(), len(self.chunks)
            found.read(SortedRun.of(self.delta))
        kept, words, same, ready = found.settled(self.k, delta, cut, limit)
        doubtful = np.zeros(len(active), np.bool_)
        doubtful[found.differing(same)] = True
        query = kept[QUERY].copy()
        kept[QUERY] = active.take(query)
        doubtful[query[self._strangers(kept, words, delta)]] = True
        if doubtful.any():
            sure = np.flatnonzero(~doubtful[query])
            kept, words = kept.take(sure, axis=1), words.take(sure, axis=1)
        self.kept.append(kept)
        self.words.append(words)
        return ready, doubtful

    def _strangers(self, kept: I64, words: U64, delta: int) -> I64:
        """Return the rows that have the hash of their query's key but belong to another key.

        If the keys are unknown, return the rows whose key differs from that of the query's first row.
        The queries contain all keys of the chunk `delta`, so its rows need no check if the keys are known.
        """
        names = self.arrangement.key
        chunks = [[chunk.held_column(name) for name in names] for chunk in self.chunks]
        if not kept.shape[1] or all(map(hash_decides, chunks)):
            return _NO_ROWS
        query, position = kept[QUERY], kept[POSITION]
        if self.keys is None:
            keys = [_first_of_each(self._first_rows(kept, words), name) for name in names]
            query, delta = np.cumsum(begins(query)) - 1, -1
        else:
            keys = [self.keys.held_column(name) for name in names]
        order, bounds = partition_by(kept[CHUNK], len(chunks))
        wrong = []
        for index, (low, high) in enumerate(pairwise(bounds.tolist())):
            if low < high and index != delta:
                rows = order[low:high]
                wrong.append(rows[~equal_columns(keys, query.take(rows), chunks[index], position.take(rows))])
        return np.concatenate(wrong) if wrong else _NO_ROWS

    def in_full(self, queries: I64) -> None:
        """Find the first rows of these queries by reading and summing all rows of their hashes."""
        if not len(queries):
            return
        asked = self.key_hash.take(queries)
        hashes = asked.take(run_starts(asked))
        parts = [part for source in self.sources for part in _all_rows(source, hashes)]
        rows = [_weighing(take_all(parts, words=True), 1, 1)] if parts else []
        changed = [] if self.delta is None else list(_all_rows(SortedRun.of(self.delta), hashes))
        if changed:
            rows.append(_weighing(take_all(changed, words=True), 0, 1))
        if not rows:
            return
        whole = rearrange(concat(rows, words=True), replace(self.arrangement, weights=2))
        query, position = expand_ranges(*equal_ranges(asked, whole.words[0]))
        if self.keys is not None:
            same = equal_rows(self.keys, queries.take(query), whole, position, self.arrangement.key)
            query, position = query[same], position[same]
        if self.backwards:
            query, position = query[::-1], position[::-1]
            order = np.argsort(query, kind="stable")
            query, position = query.take(order), position.take(order)
        chunk = np.full(len(query), len(self.chunks))
        self.chunks.append(whole)
        self.kept.append(np.stack([queries.take(query), chunk, position, *whole.weights.take(position, axis=0).T]))
        words = (whole.words[1], whole.words[1] if whole.words[2] is None else whole.words[2])
        found = np.stack([word.take(position) for word in words if word is not None])
        self.words.append(~found if self.backwards else found)


def _first_weight(rows: Batch) -> I64:
    """Return the weight of each row that says whether the row is present."""
    return rows.weight if rows.width == 1 else np.ascontiguousarray(rows.weights[:, 0])


def _weighing(rows: Batch, before: int, after: int) -> Batch:
    """Return the rows with `before` and `after` times their first weight as the weights of the two sides."""
    return rows.but(weights=rows.weights[:, :1] * np.array([before, after]))


def _all_rows(source: SortedRun, hashes: U64) -> Iterator[tuple[Batch, I64]]:
    """Yield (chunk, positions) of all rows of these hashes in a run."""
    for asked, index in source.touched(hashes):
        chunk = source.load(index)
        position = expand_ranges(*source.find(index, chunk, hashes[asked]))[1]
        if len(position):
            yield chunk, position


def _first_of_each(first_rows: FirstRows, name: str) -> pa.Array:
    """Return a column of the first row of each query that has rows."""
    return gather(first_rows.column(name), np.flatnonzero(begins(first_rows.query)))


class _Candidates:
    """The first rows of each query in every run read so far, and the limit up to which they are known completely."""

    def __init__(self, hashes: U64, rows_max: int, chunks: list[Batch], backwards: bool) -> None:
        """Start with no rows read; `read` appends to `chunks`."""
        self.backwards = backwards
        self.hashes = hashes
        self.rows_max = rows_max
        self.chunks = chunks
        self.cut = np.zeros(len(hashes), np.bool_)
        self.limit = np.full(len(hashes), _NO_LIMIT)
        room = max(_ROOM_MIN, 2 * len(hashes))
        self.found = np.empty((room, WEIGHT + 1), np.int64)
        self.words = np.empty((room, 2), np.uint64)
        self.count = 0

    def read(self, source: SortedRun) -> None:
        """Read the first rows of each query in one run."""
        hashes = self.hashes
        taken, last = np.zeros(len(hashes), np.int64), np.empty(len(hashes), np.uint64)
        begin = end = _NO_CODES
        if len(source.live_starts):
            begin, end = source.begin(hashes, np.zeros(len(hashes), np.uint64)), np.full(len(hashes), _NO_LIMIT)
        some = False
        touched = source.overlapped(hashes, begin, end) if len(begin) else source.touched(hashes)
        for asked, index in reversed(list(touched)) if self.backwards else touched:
            queries = numbers(asked)
            if some and (taken[queries] >= self.rows_max).all():
                self.cut[queries], self.limit[queries] = True, np.minimum(self.limit[queries], last[queries])
                continue
            chunk = source.load(index)
            low, high = source.find(index, chunk, hashes[asked])
            if len(begin):
                cut_ranges(low, high, begin[asked], end[asked], chunk.order_code)
            self._collect(chunk, queries, low, high, taken, last)
            some = True

    def _collect(self, chunk: Batch, queries: I64, low: I64, high: I64, taken: I64, last: U64) -> None:
        """Collect the first rows of each query in these ranges of a chunk of the run."""
        _, codes, rows = chunk.words
        if codes is None:
            raise InternalError("a trace with an order stores order codes")
        weight = _first_weight(chunk)
        here = queries, low, high, codes, codes if rows is None else rows, weight, len(self.chunks), self.rows_max
        while True:
            known = taken, last, self.cut, self.limit, self.found, self.words
            count = collect_first_rows(*here, *known, self.count, self.backwards)
            if count >= 0:
                break
            more = max(-count, len(self.found))
            self.found = np.concatenate([self.found, np.empty((more, WEIGHT + 1), np.int64)])
            self.words = np.concatenate([self.words, np.empty((more, 2), np.uint64)])
        self.count = count
        self.chunks.append(chunk)

    def settled(self, k: int, delta: int, cut: Mask, limit: U64) -> tuple[I64, U64, I64, Mask]:
        """Return the first rows of each query; chunk `delta` is the change, and `cut` and `limit` are the limits without it.

        Return the rows as in `FirstRows`, their words, the pairs of candidates with equal words, and the mask of the
        answered queries.
        """
        rows, queries = self.count, len(self.hashes)
        order, scratch = np.empty(rows, np.int64), np.empty(rows, np.int64)
        ends, ready = np.zeros(queries + 1, np.int64), np.empty(queries, np.bool_)
        kept, words = np.empty((AFTER + 1, rows), np.int64), np.empty((2, rows), np.uint64)
        same = np.empty((2, rows), np.int64)
        count, pairs = settle_first_rows(
            self.found[:rows], self.words[:rows], delta, k, cut, limit, self.cut, self.limit, order, scratch, ends, ready,
            kept, words, same,
        )  # fmt: skip
        if count < 0:
            raise CapacityError("weight overflow: bits=64", OVERFLOW_HINT)
        return kept[:, :count], words[:, :count], same[:, :pairs], ready

    def differing(self, same: I64) -> I64:
        """Return the queries of the pairs of candidates whose rows differ although their words are equal."""
        if not same.shape[1]:
            return _NO_ROWS
        left, right = (self.found.take(side, axis=0) for side in same)
        columns = [
            [_column(self.chunks, index, *places) for index in range(len(self.chunks[0].held))]
            for places in (_places(len(self.chunks), side[:, CHUNK], side[:, POSITION]) for side in (left, right))
        ]
        every = np.arange(len(left))
        wrong = np.flatnonzero(~equal_columns(columns[0], every, columns[1], every))
        queries: I64 = left[:, QUERY].take(wrong)
        return queries

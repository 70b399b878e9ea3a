"""Read a trace as one relation and append batches to it with a bounded amount of merging.

A spine is a short list of sorted runs, oldest first. `append` adds a run and advances the merges under way.
`Spine` reads all runs together.

**Which runs merge.** The newest runs merge with an older run of n rows when (fan - 1) * n <= `SLACK` * (rows of all
newer runs). All runs from the oldest such run on merge at once. For equal appends and a fan of 4, four runs become
one run. Four such runs become the next one. So each row is written once per level, and a level holds at most three
runs. The number of levels is logarithmic in the rows of the trace. Neighbouring runs alone merge, so the list stays
ordered by age.
**Why each merge ends in time.** Every append of r rows gives each merge a credit of `fuel_for(r)` = 4 r + 8,192 rows.
A merge of n rows ends when its credits add up to n, so before n / 4 more rows arrive. Wide rows get half: n / 2.
An append that merges small runs in memory (`_absorb`) gives the merges only the fuel that this work leaves.
A piece may overdraw the credit by about a chunk; the merge then waits until later appends have paid.
An unfinished merge is part of the state. Readers read its finished part and the unread rest of its runs.

**Bounds.**

| constant | value | reason |
| --- | --- | --- |
| `FAN` | 4 | 16 equal appends are written twice, not four times as with a fan of 2 (design record 0005) |
| fan of 2 | 2 | mostly retractions, or an empty batch: cancelled rows leave the trace early |
| `WIDE_FAN`, `WIDE_BYTES` | 8, 128 bytes | writing a wide row to a file costs more than searching a further run |
| `SLACK` | 1.25 | appends of about one size differ a little; at a fan of 8, seven equal runs already suffice |
| `SHORT_ROWS` | 65,536 | below, a further run costs more in look-ups than the writing, so two runs merge |
| `RUNS_MAX` | 16 | bounds how many runs one merge reads |
| `WIDE_SHARE` | 2 | a step's merged chunks stay in memory and in the scratch until the step ends |
| `FUEL_FLOOR_ROWS` | 8,192 | merges advance also when appends are tiny |
| `KEPT_RUNS_MAX`, `KEPT_SHARE` | 48, 16 | from 48 entries on, merges up to 1/16 of the trace rewrite kept chunks too |

**Ordering rules.** Look-ups take a sorted array of key hashes and return the rows of all of them at once. Python
works per chunk, never per row. Results are not consolidated unless a method says so: a row appears once per run. Rows
of another key with the same hash appear too; callers compare the key columns.
This module does not store anything: see `dbsp.trace.memory` and `dbsp.storage`.

Invariants: 1 of ARCHITECTURE.md (runs), and those of `merging`. A state is a value: appending makes a new one.
Source: DBSP, section 4 (integration and delay are the trace); design record 0005;
docs/concepts/data.md and docs/concepts/storage.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from dbsp.errors import InternalError
from dbsp.trace.chunks import ChunkStore
from dbsp.trace.first_rows import FirstRows, read_first_rows
from dbsp.trace.live_starts import ROWS_MIN, LiveStarts, moved
from dbsp.trace.manifest import ID, NBYTES, Entry, PendingMerge, SpineState, StoredBatch, stored
from dbsp.trace.merging import advance, read_all, store
from dbsp.trace.neighbours import Positions, reach
from dbsp.trace.retention import RetentionBound, retained
from dbsp.trace.rows import empty
from dbsp.trace.source import Asked, SortedRun, numbers
from dbsp.zset.arrays import gather
from dbsp.zset.batch import Batch, take_all
from dbsp.zset.batch_rows import equal_rows
from dbsp.zset.hashing import hash_decides
from dbsp.zset.kernels import expand_ranges, scatter_add
from dbsp.zset.kernels.ranges import add_ranges, cut_ranges, narrow_ranges
from dbsp.zset.merge import merge_all
from dbsp.zset.schema import Arrangement

__all__ = ["FUEL_FLOOR_ROWS", "FUEL_PER_ROW", "Spine", "SpineState", "append", "fuel_for"]

FAN = 4
"""Merge fan-in: the number of runs of similar length that merge at once. See `_fan` for the appends with a fan of 2."""

WIDE_FAN, WIDE_BYTES = 8, 128
"""Fan-in for rows of at least `WIDE_BYTES` bytes: writing a wide row to a file costs more than searching a further run."""

SLACK = 1.25
"""Tolerance of the merge rule: a run merges although it is up to 1.25 times too long, because equal appends differ a little."""

SHORT_ROWS = 65_536
"""Below this many rows in total, two runs merge: searching a further run costs more than writing so few rows again."""

RUNS_MAX = 16
"""The maximum number of runs that one merge reads, the new batch included."""

WIDE_SHARE = 2
"""Divisor of the fuel for wide rows: all chunks that a step writes stay in memory and in the scratch until the step ends."""

FUEL_PER_ROW = 4
FUEL_FLOOR_ROWS = 8192
KEPT_RUNS_MAX, KEPT_SHARE = 48, 16
"""From 48 entries on, a merge that rewrites kept chunks waits only if it has more than 1/16 of the trace's rows (`_Policy`)."""

_LOOKED_AT = 256
_LAST_CODE = np.uint64(0xFFFF_FFFF_FFFF_FFFF)

U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
_Found = tuple[Asked, I64, I64, Batch]
"""(queries, first position of each query, position after the last of each query, chunk): the rows found in one chunk."""


def fuel_for(rows: int) -> int:
    """Return how many rows each merge may advance when `rows` rows are appended.

    **Law**: a merge of n rows ends before n / 4 more rows are appended (wide rows: n / 2), so runs never pile up.
    """
    return FUEL_PER_ROW * rows + FUEL_FLOOR_ROWS


def append(
    state: SpineState,
    batch: Batch,
    arrangement: Arrangement,
    chunks: ChunkStore,
    fuel_rows: int | None,
    retention: RetentionBound | None = None,
    *,
    kept_below: int = 0,
) -> SpineState:
    """Return the state with `batch` as one more run, after a bounded amount of merging.

    Each merge under way advances by at most about `fuel_rows` rows; None finishes every merge.
    Chunks with numbers below `kept_below` stay: merges of runs that contain such chunks wait. Newer runs merge among
    themselves meanwhile. From `KEPT_RUNS_MAX` entries on, only merges of a large part of the trace wait.
    Every merge drops the rows below `retention`. A run of which about half is below the bound is rewritten alone.

    **Cost**: storing the batch, and a bounded number of merge pieces. A piece may overdraw the fuel by the size of a
    chunk. Later appends pay the overdraft before the merge continues. A retention bound adds a sample of rows of each
    run. The rewriting of a run pays for itself in dropped rows.
    """
    entries = list(state.entries)
    live_starts = _live_starts(state, batch, arrangement, chunks)
    policy = _Policy(kept_below=kept_below, rows_max=_kept_rows_max(state), fan=_fan(batch, chunks))
    if retention is not None:
        entries = [_stale(entry, retention, arrangement, chunks) for entry in entries]
    if len(batch):
        spent, batch = _absorb(entries, batch, arrangement, chunks, fuel_rows, retention, policy)
        run = StoredBatch.of(store(batch, chunks))
        if len(run):
            entries.append(run)
        fuel_rows = None if fuel_rows is None else max(0, fuel_rows - spent)
    if fuel_rows is not None and policy.fan == WIDE_FAN:
        fuel_rows //= WIDE_SHARE
    fueled = [
        replace(e, credit=e.credit + (fuel_rows or 0)) if isinstance(e, PendingMerge) and not policy.holds(e) else e
        for e in entries
    ]
    entries = _work(fueled, arrangement, chunks, fuel_rows, retention, policy)
    return SpineState(entries=tuple(entries), live_starts=live_starts)


def _live_starts(state: SpineState, batch: Batch, arrangement: Arrangement, chunks: ChunkStore) -> LiveStarts:
    """Return the live starts of the trace with `batch`; empty for unordered traces and those below `ROWS_MIN` rows."""
    if not arrangement.order or state.rows < ROWS_MIN:
        return LiveStarts()
    if not len(batch):
        return state.live_starts
    after = Spine(arrangement, state, chunks, (batch,))
    return moved(state.live_starts, batch, state.rows, after.long, after.first_codes)


def _kept_rows_max(state: SpineState) -> int:
    """Return the size, in rows, up to which a merge may rewrite kept chunks; 0 below `KEPT_RUNS_MAX` entries."""
    return max(FUEL_FLOOR_ROWS, state.rows // KEPT_SHARE) if len(state.entries) >= KEPT_RUNS_MAX else 0


def _fan(batch: Batch, chunks: ChunkStore) -> int:
    """Return the merge fan-in for an append of `batch`."""
    if _retracts(batch):
        return 2
    return WIDE_FAN if chunks.written and batch.nbytes >= WIDE_BYTES * len(batch) else FAN


def _retracts(batch: Batch) -> bool:
    """Return True if at least an eighth of the rows are retractions, or the batch is empty."""
    return 8 * int(np.count_nonzero(batch.weights[:, 0] < 0)) >= len(batch)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Policy:
    """Merge policy of one append: the fan-in, and which merges have to wait.

    Chunks with numbers below `kept_below` are kept: during a warm-up, so that they are not copied again, and in the
    first step after a slicing. A merge waits if it reads a kept chunk, and more than `rows_max` rows in total. With
    `kept_below` 0 no merge waits.
    """

    kept_below: int
    rows_max: int
    fan: int

    def holds(self, *entries: Entry) -> bool:
        """Return True if a merge of these entries has to wait, because it would rewrite kept chunks and is too large."""
        if not self.kept_below or sum(entry.rows for entry in entries) <= self.rows_max:
            return False
        return any((run.refs[:, ID] < self.kept_below).any() for run in stored(*entries))


def _stale(entry: Entry, retention: RetentionBound, arrangement: Arrangement, chunks: ChunkStore) -> Entry:
    """Return `entry`, as a merge of this run alone if half its sampled rows are below the bound.

    The sample reads at most four chunks and some 256 rows of each, so the check costs the same for every length of
    run.
    """
    if isinstance(entry, PendingMerge) or not len(entry):
        return entry
    below = seen = 0
    for index in sorted({len(entry) * part // 8 for part in (1, 3, 5, 7)}):
        chunk = chunks.get(entry.ref(index), arrangement)
        column = gather(chunk.held_column(retention.column), np.arange(0, len(chunk), max(1, len(chunk) // _LOOKED_AT)))
        below, seen = below + int(retention.below(column).sum()), seen + len(column)
    return PendingMerge.of([entry]) if 2 * below >= seen else entry


def _absorb(
    entries: list[Entry],
    batch: Batch,
    arrangement: Arrangement,
    chunks: ChunkStore,
    fuel_rows: int | None,
    retention: RetentionBound | None,
    policy: _Policy,
) -> tuple[int, Batch]:
    """Merge the newest runs into the batch in memory if they are due and short.

    This saves storing the batch as a run of its own, only to read it back for the merge.

    Return the rows merged (0 if none) and the batch to store. The absorbed runs are removed from `entries`.
    """
    runs = _newest(entries, policy)
    for first in _due_places([*(run.rows for run in runs), len(batch)], policy.fan):
        rows = sum(run.rows for run in runs[first:]) + len(batch)
        stored_bytes = sum(int(run.refs[:, NBYTES].sum()) for run in runs[first:])
        if rows <= max(FUEL_FLOOR_ROWS, fuel_rows or 0) and stored_bytes <= chunks.chunk_bytes_max:
            del entries[len(entries) - len(runs) + first :]
            parts = [read_all(run, arrangement, chunks) for run in runs[first:]]
            return rows, retained(merge_all([*parts, batch]), retention)
    return 0, batch


def _newest(entries: Sequence[Entry], policy: _Policy) -> list[StoredBatch]:
    """Return the newest finished runs that may merge with the batch, oldest first; stop at a merge or a run that waits."""
    found: list[StoredBatch] = []
    for entry in reversed(entries):
        if not isinstance(entry, StoredBatch) or policy.holds(entry, *found):
            break
        found.append(entry)
    return found[::-1]


def _due_places(lengths: Sequence[int], fan: int) -> list[int]:
    """Return the places of the runs that are due to merge with all newer runs, oldest first.

    `lengths` are the rows of neighbouring runs, oldest first.

    >>> _due_places([90_000] * 3, 4), _due_places([90_000] * 4, 4), _due_places([360_000, *[90_000] * 4], 4)
    ([], [0], [1])
    >>> _due_places([90_000] * 2, 2), _due_places([900, 900], 4), _due_places([5000, 900, 900], 4)
    ([0], [0], [1])
    """
    newer, found = 0, []
    for place in range(len(lengths) - 1, max(len(lengths) - 1 - RUNS_MAX, -1), -1):
        enough = fan if newer + lengths[place] >= SHORT_ROWS else 2
        if newer and (enough - 1) * lengths[place] <= SLACK * newer:
            found.append(place)
        newer += lengths[place]
    return found[::-1]


def _work(
    entries: list[Entry],
    arrangement: Arrangement,
    chunks: ChunkStore,
    fuel: int | None,
    retention: RetentionBound | None,
    policy: _Policy,
) -> list[Entry]:
    """Advance every merge as far as its credit allows, and begin the merges that are due, newest first.

    At most one merge begins that this append cannot finish; other due merges begin at the next appends. Many merges
    may be due at once: a rescale gives up all merges under way, and the end of a warm-up frees those that waited.
    """
    end, may_begin = len(entries), True
    while end > 0:
        entry: Entry = entries[end - 1]
        if isinstance(entry, PendingMerge):
            entry = entry if policy.holds(entry) else _advanced(entry, arrangement, chunks, fuel, retention)
            entries[end - 1 : end] = [entry] if entry.rows else []
            if isinstance(entry, PendingMerge):
                end -= 1
                continue
        begin, end = _stretch(entries, end - 1)
        due = _due(entries[begin:end], policy)
        rows = sum(run.rows for run in due)
        if due and (may_begin or _is_short(rows, fuel)):
            may_begin = may_begin and _is_short(rows, fuel)
            entries[end - len(due) : end] = [PendingMerge.of(due, fuel or 0)]
            end += 1 - len(due)
        else:
            end = begin
    return entries


def _advanced(
    entry: Entry, arrangement: Arrangement, chunks: ChunkStore, fuel: int | None, retention: RetentionBound | None
) -> Entry:
    """Return the merge after it used its credit; a finished run if nothing is left to merge."""
    while isinstance(entry, PendingMerge) and (fuel is None or entry.credit > 0):
        entry = advance(entry, arrangement, chunks, retention)
    return entry


def _stretch(entries: Sequence[Entry], place: int) -> tuple[int, int]:
    """Return the bounds of the finished runs around `place`: the first place, and the place after the last."""
    begin = end = place
    while begin > 0 and isinstance(entries[begin - 1], StoredBatch):
        begin -= 1
    while end < len(entries) and isinstance(entries[end], StoredBatch):
        end += 1
    return begin, end


def _is_short(rows: int, fuel: int | None) -> bool:
    """Return True if a merge of `rows` rows ends in the append that begins it."""
    return fuel is None or rows <= fuel


def _due(stretch: Sequence[Entry], policy: _Policy) -> list[StoredBatch]:
    """Return the newest runs of `stretch` that are due to merge, oldest first; empty if none are."""
    runs = _newest(stretch, policy)
    places = _due_places([run.rows for run in runs], policy.fan)
    return runs[places[0] :] if places else []


class Spine:
    """The reading view of a trace: stored runs, and perhaps arranged batches of the running step that are not stored.

    **Example**

    >>> from dbsp.trace.chunks import MemoryChunks
    >>> from dbsp.zset.batch import Batch, arrange
    >>> from dbsp.zset.schema import INT64, STRING, Arrangement, Schema
    >>> schema = Schema.of({"key": INT64, "name": STRING})
    >>> by_key = Arrangement(schema=schema, key=("key",))
    >>> chunks, state = MemoryChunks(), SpineState()
    >>> first = arrange(Batch.from_rows(schema, [((1, "ann"), 1), ((2, "bob"), 1)]), by_key)
    >>> state = append(state, first, by_key, chunks, fuel_rows=None)
    >>> gone = arrange(Batch.from_rows(schema, [((1, "ann"), -1), ((3, "cy"), 1)]), by_key)
    >>> state = append(state, gone, by_key, chunks, fuel_rows=None)
    >>> sorted(row for part in Spine(by_key, state, chunks).parts() for row in part.to_rows())
    [((2, 'bob'), 1), ((3, 'cy'), 1)]
    """

    def __init__(
        self, arrangement: Arrangement, state: SpineState, chunks: ChunkStore, extra: tuple[Batch, ...] = ()
    ) -> None:
        """View `state`, whose chunks are in `chunks`; `extra` are arranged batches in memory."""
        self.arrangement = arrangement
        self.state = state
        self._chunks = chunks
        self._extra = tuple(batch for batch in extra if len(batch))

    @property
    def rows(self) -> int:
        """Return the number of stored rows; a row counts once per run that contains it."""
        return self.state.rows + sum(len(batch) for batch in self._extra)

    def with_batch(self, batch: Batch) -> Spine:
        """Return a view of the same trace with one more arranged batch; the stored runs are shared."""
        view = Spine(self.arrangement, self.state, self._chunks, (*self._extra, batch))
        view.__dict__["_stored_sources"] = self._stored_sources
        return view

    @cached_property
    def _stored_sources(self) -> tuple[SortedRun, ...]:
        """Return every stored sorted run that readers read, oldest first."""
        found: list[SortedRun] = []
        for entry in self.state.entries:
            if isinstance(entry, StoredBatch):
                found.append(self._source(entry))
            else:
                found += [self._source(run, place.chunk, place.row) for run, place in entry.read()]
        return tuple(found)

    def _source(self, run: StoredBatch, chunk: int = 0, row: int = 0) -> SortedRun:
        """Return the reader of a run from a position on."""

        def load(index: int) -> Batch:
            part = self._chunks.get(run.ref(index), self.arrangement)
            return part.slice(row, len(part)) if row and index == chunk else part

        ahead = self._chunks.foresight()
        return SortedRun(
            first=run.first, last=run.last, fences=run.fences, start=chunk, load=load, live_starts=self.state.live_starts,
            ahead=ahead, ref=run.ref,
        )  # fmt: skip

    def _sources(self) -> Iterator[SortedRun]:
        """Yield the stored runs, then the batches that are not stored."""
        yield from self._stored_sources
        for batch in self._extra:
            yield SortedRun.of(batch)

    def parts(self) -> Iterator[Batch]:
        """Yield every chunk of the trace, run by run; rows are not consolidated across runs."""
        for source in self._sources():
            for index in range(source.start, len(source.first)):
                yield source.load(index)

    def matches(self, key_hash: U64, *, words: bool = True) -> tuple[I64, Batch]:
        """Return all rows whose key hash is among `key_hash`.

        **Shape**: `key_hash` is sorted and may repeat. Return (query of each row, the rows as a loose batch); `words`
        adds their hashes. A row appears once per run. Only hashes are compared, not keys.
        **Cost**: per run, a merge-like search of the chunks that can match, and one gather of the matching rows.
        """
        found: list[_Found] = []
        for source in self._sources():
            for asked, index in source.touched(key_hash):
                chunk = source.load(index)
                found.append((asked, *source.find(index, chunk, key_hash[asked]), chunk))
        return self._gathered(found, words=words)

    def _gathered(self, found: Sequence[_Found], *, words: bool) -> tuple[I64, Batch]:
        """Return all rows of the ranges, and the query to which each row belongs.

        Expand the ranges and gather the columns of all chunks at once, because a small change finds few rows in each
        of many chunks.
        """
        if not found:
            return np.empty(0, np.int64), empty(self.arrangement)
        lows, highs = (np.concatenate([part[side] for part in found]) for side in (1, 2))
        asked, position = expand_ranges(lows, highs)
        if not len(asked):
            return np.empty(0, np.int64), empty(self.arrangement)
        queries = np.concatenate([numbers(some) for some, *_ in found])
        ends = asked.searchsorted(np.cumsum([len(low) for _, low, _, _ in found])).tolist()
        spans = zip((chunk for *_, chunk in found), [0, *ends[:-1]], ends, strict=True)
        parts = [(chunk, position[begin:end]) for chunk, begin, end in spans if begin < end]
        return queries[asked], take_all(parts, words=words)

    def sums(self, keys: Batch) -> npt.NDArray[np.int64]:
        """Return the weights stored for exactly these rows, summed over all runs; 0 for a row that is not stored.

        **Shape**: `keys` is arranged as the trace is; the result is int64 (n, d).
        **Cost**: like `matches`, but rows are gathered only if the hash does not decide equality.
        """
        key_hash, row_hash, code = keys.key_hash, keys.row_hash, keys.order_code
        if key_hash is None or (code is None) != (not self.arrangement.order):
            raise InternalError("sums needs rows arranged as the trace is")
        total = np.zeros((len(keys), self.arrangement.weights), np.int64)
        decided = hash_decides(keys.held)
        for source in self._sources():
            touched = source.touched(key_hash) if code is None else source.overlapped(key_hash, code, code)
            for asked, index in touched:
                chunk = source.load(index)
                low, high = source.find(index, chunk, key_hash[asked])
                if code is not None:
                    narrow_ranges(low, high, code[asked], chunk.order_code)
                if row_hash is not None:
                    narrow_ranges(low, high, row_hash[asked], chunk.row_hash)
                query, position = expand_ranges(low, high)
                if len(query) == 0:
                    continue
                query = numbers(asked)[query]
                if not (decided and hash_decides(chunk.held)):
                    same = equal_rows(keys, query, chunk, position)
                    query, position = query[same], position[same]
                scatter_add(total, query, chunk.weights_at(position))
        return total

    def ranges(self, key_hash: U64, first: U64, last: U64) -> tuple[I64, Batch]:
        """Return the rows of each key hash whose order code is between `first` and `last`, both included.

        **Shape**: `key_hash` is sorted and may repeat, with one range each. The result is as in `matches`: a row
        appears once per run.
        **Cost**: per run, two binary searches per query in the chunks that its range touches, and one gather of the
        rows found.
        """
        return self._gathered(list(self._cut(key_hash, first, last)), words=True)

    def first_code(self, key_hash: U64, code: int) -> int | None:
        """Return the least order code of these key hashes that is at least `code`, or None; the row may be retracted.

        **Cost**: like `ranges`, without a gather.
        """
        least: int | None = None
        first = np.full(len(key_hash), code, np.uint64)
        for _, low, high, chunk in self._cut(key_hash, first, np.full(len(key_hash), _LAST_CODE)):
            some = low[low < high]
            if len(some) and chunk.order_code is not None:
                found = int(chunk.order_code[some].min())
                least = found if least is None else min(least, found)
        return least

    def _cut(self, key_hash: U64, first: U64, last: U64) -> Iterator[_Found]:
        """Yield (queries, first position, position after the last, chunk) for every chunk that the ranges touch."""
        if not self.arrangement.order:
            raise InternalError("a range needs a trace with an order")
        for source in self._sources():
            begin = source.begin(key_hash, first)
            for asked, index in source.overlapped(key_hash, begin, last):
                chunk = source.load(index)
                low, high = source.find(index, chunk, key_hash[asked])
                cut_ranges(low, high, begin[asked], last[asked], chunk.order_code)
                yield asked, low, high, chunk

    def reach(self, asked: Positions, k: int, keys: Batch) -> U64:
        """Return the order code up to which each range must be read, from its chosen end, to see `k` rows of positive weight.

        **Shape**: `asked.key_hash` is sorted and may repeat; `keys` is a batch of the key columns, aligned with these
        hashes. The result is the order code of the k-th row from the chosen end, or the other end of a range with
        fewer rows.
        **Cost**: per run and query about k rows, and more if the newest runs retract rows of older runs there.
        """
        if not self.arrangement.order:
            raise InternalError("a reach needs a trace with an order")
        decided = hash_decides([keys.held_column(name) for name in self.arrangement.key])

        def same(query: I64, rows: Batch) -> tuple[I64, Batch]:
            if decided and hash_decides([rows.held_column(name) for name in self.arrangement.key]):
                return query, rows
            kept = np.flatnonzero(equal_rows(keys, query, rows, np.arange(len(rows)), self.arrangement.key))
            return query[kept], rows.take(kept, words=True)

        return reach(tuple(self._sources()), self.arrangement, asked, k, same)

    def long(self, key_hash: U64) -> Mask:
        """Return the mask of the hashes that have many rows in the longest run.

        Many means at least `ROWS_MIN` rows, or rows in more than one chunk. `key_hash` is sorted without repeats.
        """
        source = max(self._stored_sources, key=lambda source: len(source.first) - source.start)
        low, high = source.span(key_hash, np.zeros(len(key_hash), np.uint64), np.full(len(key_hash), _LAST_CODE))
        found: Mask = high - low > 1
        alone = np.flatnonzero(high - low == 1)
        for asked, index in source.by_chunk(key_hash, alone, low[alone]):
            first, last = source.find(index, source.load(index), key_hash[asked])
            found[asked] = last - first >= ROWS_MIN
        return found

    def first_codes(self, key_hash: U64) -> U64:
        """Return the code of the first uncancelled row of each of these sorted different hashes, or the last code."""
        query, rows = self.first_rows(key_hash, 1)
        found = np.full(len(key_hash), _LAST_CODE)
        if rows.order_code is not None:
            np.minimum.at(found, query, rows.order_code)
        return found

    def weight_between(self, key_hash: U64, first: U64, last: U64, keys: Batch) -> I64:
        """Return the summed weights of each key's rows whose order code is between `first` and `last`, both included.

        **Shape**: as `ranges`, with `keys` a batch of the key columns, aligned with `key_hash`; int64 per query.
        **Cost**: like `ranges`, but reads only 8 bytes per row of the ranges. Key columns are read if the hash does
        not decide equality.
        """
        total = np.zeros(len(key_hash), np.int64)
        decided = hash_decides([keys.held_column(name) for name in self.arrangement.key])
        for asked, low, high, chunk in self._cut(key_hash, first, last):
            if decided and hash_decides([chunk.held_column(name) for name in self.arrangement.key]):
                part = total[asked]
                add_ranges(part, low, high, chunk.weight)
                total[asked] = part
                continue
            query, position = expand_ranges(low, high)
            query = numbers(asked)[query]
            same = np.flatnonzero(equal_rows(keys, query, chunk, position, self.arrangement.key))
            scatter_add(total.reshape(-1, 1), query[same], chunk.weights_at(position[same]))
        return total

    def first_rows(self, key_hash: U64, k: int, keys: Batch | None = None) -> tuple[I64, Batch]:
        """Return at least the first `k` rows of positive weight of each key, by the arrangement's order.

        All rows that tie with the k-th row in their order code are included. Rows are consolidated over runs, ordered
        by (query, sort words). `keys` is a batch of the queries' key columns, aligned with `key_hash`. With `keys`,
        only rows of the key itself count. Without `keys`, a hash that several keys share is returned in full.
        **Cost**: per run and key about k rows, and more if the newest runs retract the first rows of older runs.
        """
        if not self.arrangement.order:
            raise InternalError("first_rows needs a trace with an order")
        found = read_first_rows(tuple(self._sources()), self.arrangement, key_hash, k, keys)
        return found.side(found.before)

    def first_rows_twice(
        self, key_hash: U64, k: int, keys: Batch | None, delta: Batch, *, backwards: bool = False
    ) -> FirstRows:
        """Return the rows of `first_rows` of this trace, and of the trace with `delta`, in one result.

        `delta` is arranged as the trace is, and the queries contain all its keys. With `backwards`, read the end of
        each key's rows: at least the last `k` rows of positive weight, from the last row on.

        **Shape**: each row once, with its weights before and after; columns are gathered only of the rows that are
        taken.
        **Cost**: the trace is read once, and a second time for the keys whose first rows the delta retracts.
        """
        if not self.arrangement.order:
            raise InternalError("first_rows needs a trace with an order")
        return read_first_rows(tuple(self._sources()), self.arrangement, key_hash, k, keys, delta, backwards)

"""Spines: a trace as a short list of sorted runs, read as one and grown by appending.

`append` adds one run and does a bounded amount of merging. Neighbouring runs merge, all at once, when the oldest of them is not
much longer than a share, 1 / (FAN - 1), of the newer ones together. So of appends of one size FAN make a run, FAN of these the
next; a row is written once on each level, and a level has FAN - 1 runs at most. Wide rows that are stored as bytes merge by more
(`WIDE_FAN`). A merge that is not finished stays in the state
and goes on at the next append; meanwhile readers read what is done and what is left.

`Spine` is the reading view. All look-ups take a sorted array of key hashes and answer for all of them at once; Python works
per chunk, never per row. What is read is not consolidated unless it says so: a row may come once per run it is in, and rows
of another key with the same hash come too (callers decide by the columns).

Leaves out: who stores chunks and states (`dbsp.trace.memory`, `dbsp.storage`).

Invariants: 1 of ARCHITECTURE.md (runs), and those of `merging`. A state is a value: appending makes a new one.

Source: DBSP, section 4 (integration and delay are the trace); docs/concepts/data.md and docs/concepts/storage.md.
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
"""So many runs of one length merge; two where what comes takes rows away, so that what is gone leaves soon."""

WIDE_FAN, WIDE_BYTES = 8, 128
"""Of rows with so many bytes so many, where chunks are written: that costs more than a run more to look things up in."""

SLACK = 1.25
"""A run may be so many times as long as it should be to merge with the newer ones: appends of one size differ a little."""

SHORT_ROWS = 65_536
"""Where runs have fewer rows together two are enough to merge: a run more to look things up in costs more than that."""

RUNS_MAX = 16
"""So many runs merge at once at most."""

WIDE_SHARE = 2
"""Their merges go forward by this part of the fuel: what a step makes is in memory, and new in the scratch, until it ends."""

FUEL_PER_ROW = 4
FUEL_FLOOR_ROWS = 8192
KEPT_RUNS_MAX, KEPT_SHARE = 48, 16
"""With so many runs a merge of what is to be kept waits only if it is of more than this part of the trace."""

_LOOKED_AT = 256
_LAST_CODE = np.uint64(0xFFFF_FFFF_FFFF_FFFF)

U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
_Found = tuple[Asked, I64, I64, Batch]
"""(queries, from and to which position for each, chunk)."""


def fuel_for(rows: int) -> int:
    """How many rows each merge may go forward when `rows` are appended.

    **Law**: a merge of n rows is done before n / 4 more rows have arrived behind it (wide ones: n / 2), so runs never pile up.
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
    """The state with one more run, after merging at most about `fuel_rows` rows per merge under way (None: all of it).

    Chunks with numbers below `kept_below` stay: merges of runs that have such wait where they are, and what comes is merged
    among itself. Where `KEPT_RUNS_MAX` runs have gathered only merges of much of the trace wait.

    Rows below the `retention` are dropped by every merge; a run of which about half lies below it is merged with nothing.

    **Cost**: storing the batch, and a bounded number of merge pieces; a piece may overdraw the fuel by the size of a
    chunk, which later appends pay back before the merge goes on. A retention bound adds a look at some rows of each run, and a
    rewriting of runs that pays for itself in rows dropped.
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
    """The live starts of the trace with this batch; none where a read of all would be short."""
    if not arrangement.order or state.rows < ROWS_MIN:
        return LiveStarts()
    if not len(batch):
        return state.live_starts
    after = Spine(arrangement, state, chunks, (batch,))
    return moved(state.live_starts, batch, state.rows, after.long, after.first_codes)


def _kept_rows_max(state: SpineState) -> int:
    """Up to how many rows a merge goes on although it changes what is to be kept."""
    return max(FUEL_FLOOR_ROWS, state.rows // KEPT_SHARE) if len(state.entries) >= KEPT_RUNS_MAX else 0


def _fan(batch: Batch, chunks: ChunkStore) -> int:
    """How many runs of one length merge when such a batch is appended."""
    if _retracts(batch):
        return 2
    return WIDE_FAN if chunks.written and batch.nbytes >= WIDE_BYTES * len(batch) else FAN


def _retracts(batch: Batch) -> bool:
    """Whether much of a batch takes rows away, or nothing comes: what is gone should leave the trace soon."""
    return 8 * int(np.count_nonzero(batch.weights[:, 0] < 0)) >= len(batch)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Policy:
    """How many runs of one length merge, and which stay as they are.

    The latter are those with chunks below a number, of more than `rows_max` rows together.
    """

    kept_below: int
    rows_max: int
    fan: int

    def holds(self, *entries: Entry) -> bool:
        """Whether a merge of these waits."""
        if not self.kept_below or sum(entry.rows for entry in entries) <= self.rows_max:
            return False
        return any((run.refs[:, ID] < self.kept_below).any() for run in stored(*entries))


def _stale(entry: Entry, retention: RetentionBound, arrangement: Arrangement, chunks: ChunkStore) -> Entry:
    """A finished run of which half the rows looked at lie below the retention bound begins to be merged with nothing."""
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
    """Merge the newest runs into the batch if they are due and short, without storing the batch alone."""
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
    """The newest runs that may merge with what comes, oldest first."""
    found: list[StoredBatch] = []
    for entry in reversed(entries):
        if not isinstance(entry, StoredBatch) or policy.holds(entry, *found):
            break
        found.append(entry)
    return found[::-1]


def _due_places(lengths: Sequence[int], fan: int) -> list[int]:
    """Which of neighbouring runs of these lengths, oldest first, are due to merge with all that are newer, oldest first.

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
    """Advance every merge as far as its credit goes, and begin the merges that are due, newest first.

    Of those that this append cannot end one begins: where many are due (a rescale gives up all that were under way, and what was
    held goes on), the others begin with the next appends.
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
    """A merge as far as its credit goes."""
    while isinstance(entry, PendingMerge) and (fuel is None or entry.credit > 0):
        entry = advance(entry, arrangement, chunks, retention)
    return entry


def _stretch(entries: Sequence[Entry], place: int) -> tuple[int, int]:
    """From where to before where there are finished runs alone, around a place."""
    begin = end = place
    while begin > 0 and isinstance(entries[begin - 1], StoredBatch):
        begin -= 1
    while end < len(entries) and isinstance(entries[end], StoredBatch):
        end += 1
    return begin, end


def _is_short(rows: int, fuel: int | None) -> bool:
    """Whether a merge of so many rows ends in the append that begins it."""
    return fuel is None or rows <= fuel


def _due(stretch: Sequence[Entry], policy: _Policy) -> list[StoredBatch]:
    """The newest of these runs that are due to merge, oldest first."""
    runs = _newest(stretch, policy)
    places = _due_places([run.rows for run in runs], policy.fan)
    return runs[places[0] :] if places else []


class Spine:
    """The reading view of a trace: stored runs, and perhaps batches of the running step on top.

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
        """Stored rows, counting a row once per run it is in."""
        return self.state.rows + sum(len(batch) for batch in self._extra)

    def with_batch(self, batch: Batch) -> Spine:
        """The same trace with one more arranged batch."""
        view = Spine(self.arrangement, self.state, self._chunks, (*self._extra, batch))
        view.__dict__["_stored_sources"] = self._stored_sources
        return view

    @cached_property
    def _stored_sources(self) -> tuple[SortedRun, ...]:
        """Every sorted run that readers read, oldest first."""
        found: list[SortedRun] = []
        for entry in self.state.entries:
            if isinstance(entry, StoredBatch):
                found.append(self._source(entry))
            else:
                found += [self._source(run, place.chunk, place.row) for run, place in entry.read()]
        return tuple(found)

    def _source(self, run: StoredBatch, chunk: int = 0, row: int = 0) -> SortedRun:
        """A run from a position on."""

        def load(index: int) -> Batch:
            part = self._chunks.get(run.ref(index), self.arrangement)
            return part.slice(row, len(part)) if row and index == chunk else part

        ahead = self._chunks.foresight()
        return SortedRun(
            first=run.first, last=run.last, fences=run.fences, start=chunk, load=load, live_starts=self.state.live_starts,
            ahead=ahead, ref=run.ref,
        )  # fmt: skip

    def _sources(self) -> Iterator[SortedRun]:
        """Stored runs, then the batches on top."""
        yield from self._stored_sources
        for batch in self._extra:
            yield SortedRun.of(batch)

    def parts(self) -> Iterator[Batch]:
        """Every stored chunk, run by run; together they are the trace, not consolidated across runs."""
        for source in self._sources():
            for index in range(source.start, len(source.first)):
                yield source.load(index)

    def matches(self, key_hash: U64, *, words: bool = True) -> tuple[I64, Batch]:
        """All rows whose key hash is among those asked for.

        **Shape**: `key_hash` sorted, repeats allowed; answers (which query each row belongs to, the rows as a loose batch
        with their hashes, without `words` without them). Rows come once per run; equality is that of hashes only.

        **Cost**: per run, a merge-like search of the chunks that can match, and one gather of what matched.
        """
        found: list[_Found] = []
        for source in self._sources():
            for asked, index in source.touched(key_hash):
                chunk = source.load(index)
                found.append((asked, *source.find(index, chunk, key_hash[asked]), chunk))
        return self._gathered(found, words=words)

    def _gathered(self, found: Sequence[_Found], *, words: bool) -> tuple[I64, Batch]:
        """All rows of the ranges, and which query each belongs to.

        The ranges of all chunks are spread out at once, and their columns made at once: a large trace has many chunks, in each
        of which a small change finds few rows.
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
        """The weights stored for exactly these rows, summed over all runs; zeros where there is none.

        **Shape**: `keys` arranged as the trace is; answers int64 (n, d).

        **Cost**: like `matches`, but rows are gathered only where the hash does not decide equality.
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
        """The rows of each key hash whose order code lies between `first` and `last`, both included.

        **Shape**: `key_hash` sorted, repeats allowed, with a range each; answers as `matches`: rows come once per run.

        **Cost**: per run, two binary searches per query in the chunks that its range lies in, and one gather of what is in the
        ranges.
        """
        return self._gathered(list(self._cut(key_hash, first, last)), words=True)

    def first_code(self, key_hash: U64, code: int) -> int | None:
        """The least order code stored for any of these key hashes that is at least `code`, perhaps of retracted rows.

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
        """(queries, from and to which position for each, chunk) of every chunk that ranges touch."""
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
        """How far one must look from one end of each range of codes to see `k` rows of positive weight.

        **Shape**: `asked.key_hash` sorted, repeats allowed; `keys` a batch of the key columns, aligned with it; the order
        code of the k-th row from the end that is asked for, or the other end of the range where there are fewer.

        **Cost**: per run and query about k rows, more where the newest runs retract what the older ones hold there.
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
        """Which of these sorted different hashes have many rows in the longest run: so many, or more than one chunk of them."""
        source = max(self._stored_sources, key=lambda source: len(source.first) - source.start)
        low, high = source.span(key_hash, np.zeros(len(key_hash), np.uint64), np.full(len(key_hash), _LAST_CODE))
        found: Mask = high - low > 1
        alone = np.flatnonzero(high - low == 1)
        for asked, index in source.by_chunk(key_hash, alone, low[alone]):
            first, last = source.find(index, source.load(index), key_hash[asked])
            found[asked] = last - first >= ROWS_MIN
        return found

    def first_codes(self, key_hash: U64) -> U64:
        """The code of the first row of each of these sorted different hashes that is not gone; the last code if all are."""
        query, rows = self.first_rows(key_hash, 1)
        found = np.full(len(key_hash), _LAST_CODE)
        if rows.order_code is not None:
            np.minimum.at(found, query, rows.order_code)
        return found

    def weight_between(self, key_hash: U64, first: U64, last: U64, keys: Batch) -> I64:
        """The summed weights of each key's rows whose order code lies between `first` and `last`, both included.

        **Shape**: as `ranges`, with `keys` a batch of the key columns, aligned with `key_hash`; int64 per query.

        **Cost**: like `ranges`, but reads 8 bytes per row in the ranges, and the key's columns only where the hash does
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
        """The beginning of each key's rows by the arrangement's order: at least the `k` first rows of positive weight.

        All rows that tie with the k-th in their order code are among them. Rows come consolidated over runs, ordered by
        (query, sort words). Give the queries' key columns as `keys` (a batch with those columns, aligned with `key_hash`)
        so that rows are of the key itself where two keys share a hash; without it, a hash that is seen
        to be shared is answered in full.

        **Cost**: per run and key about k rows, more where the newest runs retract what the older ones hold first.
        """
        if not self.arrangement.order:
            raise InternalError("first_rows needs a trace with an order")
        found = read_first_rows(tuple(self._sources()), self.arrangement, key_hash, k, keys)
        return found.side(found.before)

    def first_rows_twice(
        self, key_hash: U64, k: int, keys: Batch | None, delta: Batch, *, backwards: bool = False
    ) -> FirstRows:
        """`first_rows` of this trace, and of it with `delta`, a batch arranged as it is, all of whose keys are asked for.

        `backwards` the end of each key's rows: at least the `k` last rows of positive weight, from the last one on.

        **Shape**: each row once, with its weights before and after; columns are gathered only of the rows that are taken.

        **Cost**: the trace is read once; a second time for the keys alone whose first rows the delta takes away.
        """
        if not self.arrangement.order:
            raise InternalError("first_rows needs a trace with an order")
        return read_first_rows(tuple(self._sources()), self.arrangement, key_hash, k, keys, delta, backwards)

"""The first rows of many keys at once, out of several sorted runs.

Each run gives its first m rows of each key. A run that has more is *truncated* there, and then only rows before its last
given order code are known completely; so of all runs together only rows below the least such code are trusted. Where fewer
than k trusted rows have a positive sum, m doubles for those keys alone.

**Law**: the trusted rows of a key are exactly the rows of the consolidated trace that come before some order code.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from dbsp.errors import InternalError
from dbsp.trace.rows import empty
from dbsp.trace.source import Source, numbers
from dbsp.zset.batch import Batch, concat, merge, rearrange
from dbsp.zset.equality import equal_rows
from dbsp.zset.hashing import hash_decides
from dbsp.zset.kernels import expand_ranges, lower_bounds, run_starts
from dbsp.zset.kernels.ranges import cut_ranges
from dbsp.zset.runs import begins, lengths
from dbsp.zset.schema import Arrangement

U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_FIRST_ROWS_MIN = 4
_NO_LIMIT = np.uint64(0xFFFF_FFFF_FFFF_FFFF)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trusted:
    """What one round knows: consolidated rows that are complete, the key each belongs to, which keys have more rows."""

    rows: Batch
    key: I64
    truncated: Mask
    limit: U64


@dataclass(frozen=True, slots=True, kw_only=True)
class _Queries:
    """What is asked: distinct hashes, and for each the range of queries that share it."""

    hashes: U64
    low: I64
    high: I64
    keys: Batch | None


def first_rows(
    sources: Sequence[Source], arrangement: Arrangement, key_hash: U64, k: int, keys: Batch | None
) -> tuple[I64, Batch]:
    """See `Spine.heads`."""
    return _first_rows(sources, arrangement, key_hash, k, keys, None)[0]


def first_rows_twice(
    sources: Sequence[Source], arrangement: Arrangement, key_hash: U64, k: int, keys: Batch | None, delta: Batch
) -> tuple[tuple[I64, Batch], tuple[I64, Batch]]:
    """See `Spine.heads_twice`."""
    before, after = _first_rows(sources, arrangement, key_hash, k, keys, delta)
    return before, after


def _first_rows(
    sources: Sequence[Source],
    arrangement: Arrangement,
    key_hash: U64,
    k: int,
    keys: Batch | None,
    delta: Batch | None,
) -> list[tuple[I64, Batch]]:
    """The first rows in the runs and, with a delta, those in the runs and the delta, of every key; both from one reading."""
    sides = 1 if delta is None else 2
    if len(key_hash) == 0:
        return [(np.empty(0, np.int64), empty(arrangement))] * sides
    starts = run_starts(key_hash)
    ends = np.append(starts[1:], len(key_hash))
    asked = _Queries(hashes=key_hash[starts], low=starts, high=ends, keys=keys)
    active = np.arange(len(starts))
    rows_max = max(_FIRST_ROWS_MIN, 2 * k)
    found: list[tuple[list[Batch], list[I64]]] = [([], []) for _ in range(sides)]
    while len(active):
        known = [_round(sources, arrangement, asked.hashes[active], rows_max)]
        if delta is not None:
            known.append(_with_delta(known[0], delta, asked.hashes[active], rows_max, arrangement))
        ready = np.ones(len(active), np.bool_)
        for side in known:
            if side.truncated.any():
                ready &= ~side.truncated | _satisfied(side, arrangement, asked, active, k)
        for (rows, key), side in zip(found, known, strict=True):
            of_ready = np.flatnonzero(ready[side.key])
            if len(of_ready):
                rows.append(_some(side.rows, of_ready))
                key.append(active[side.key[of_ready]])
        active = active[~ready]
        rows_max *= 4
    return [_in_query_order(rows, key, asked, arrangement) for rows, key in found]


def _some(rows: Batch, positions: I64) -> Batch:
    """The rows at these ascending positions, still arranged."""
    return (
        rows if len(positions) == len(rows) else replace(rows.take(positions, words=True), arrangement=rows.arrangement)
    )


def _round(sources: Sequence[Source], arrangement: Arrangement, hashes: U64, rows_max: int) -> _Trusted:
    """Take at most `rows_max` rows per run and key, consolidate them, and keep those that are complete."""
    truncated = np.zeros(len(hashes), np.bool_)
    limit = np.full(len(hashes), _NO_LIMIT)
    parts: list[Batch] = []
    for source in sources:
        parts += _take_first(source, hashes, rows_max, truncated, limit)
    if not parts:
        rows = replace(empty(arrangement), arrangement=arrangement)
        return _Trusted(rows=rows, key=np.empty(0, np.int64), truncated=truncated, limit=limit)
    rows = _added_up(parts, arrangement)
    key, complete = _complete(rows, hashes, truncated, limit)
    return _Trusted(rows=_some(rows, complete), key=key[complete], truncated=truncated, limit=limit)


def _added_up(parts: Sequence[Batch], arrangement: Arrangement) -> Batch:
    """Rows of sorted runs, of which each part is a stretch, consolidated."""
    return rearrange(concat(parts, words=True), arrangement)


def _keys(rows: Batch, hashes: U64) -> I64:
    """Which hash each row has."""
    if rows.key_hash is None:
        raise InternalError("arranged rows carry their words")
    return lower_bounds(rows.key_hash, hashes)


def _complete(rows: Batch, hashes: U64, truncated: Mask, limit: U64) -> tuple[I64, I64]:
    """The key of each row, and the rows that are known completely."""
    key = _keys(rows, hashes)
    if not truncated.any() or rows.order_code is None:
        return key, np.arange(len(rows))
    return key, np.flatnonzero(~truncated[key] | (rows.order_code < limit[key]))


def _with_delta(known: _Trusted, delta: Batch, hashes: U64, rows_max: int, arrangement: Arrangement) -> _Trusted:
    """What the rows are after a change, of which as many rows are looked at as of a run."""
    truncated, limit = known.truncated.copy(), known.limit.copy()
    changed = list(_take_first(Source.of(delta), hashes, rows_max, truncated, limit)) if len(delta) else []
    if not changed:
        return known
    rows = replace(changed[0], arrangement=arrangement)
    rows = merge(*(_some(side, _complete(side, hashes, truncated, limit)[1]) for side in (known.rows, rows)))
    return _Trusted(rows=rows, key=_keys(rows, hashes), truncated=truncated, limit=limit)


def _take_first(source: Source, hashes: U64, rows_max: int, truncated: Mask, limit: U64) -> Iterator[Batch]:
    """The first rows of each key in one run; notes where there are more, and the order code of the last one given."""
    taken = np.zeros(len(hashes), np.int64)
    last_code = np.zeros(len(hashes), np.uint64)
    cut = np.zeros(len(hashes), np.bool_)
    begin, end = source.begin(hashes, np.zeros(len(hashes), np.uint64)), np.full(len(hashes), _NO_LIMIT)
    fronts = begin.any()
    for asked, index in source.overlapped(hashes, begin, end) if fronts else source.touched(hashes):
        room = rows_max - taken[asked]
        if not room.any():
            cut[asked] = True
            continue
        chunk = source.load(index)
        if chunk.order_code is None:
            raise InternalError("a trace with an order stores order codes")
        low, high = source.find(index, chunk, hashes[asked])
        if fronts:
            cut_ranges(low, high, begin[asked], end[asked], chunk.order_code)
        use = np.minimum(high - low, room)
        cut[asked] |= high - low > use
        some = np.flatnonzero(use > 0)
        if len(some) == 0:
            continue
        taken[asked] += use
        last_code[numbers(asked)[some]] = chunk.order_code[low[some] + use[some] - 1]
        yield chunk.take(expand_ranges(low[some], low[some] + use[some])[1], words=True)
    truncated |= cut
    limit[cut] = np.minimum(limit[cut], last_code[cut])


def _satisfied(known: _Trusted, arrangement: Arrangement, asked: _Queries, active: I64, k: int) -> Mask:
    """For which keys at least k trusted rows have a positive weight."""
    positive = known.rows.weights[:, 0] > 0
    enough: Mask = np.bincount(known.key[positive], minlength=len(active)) >= k
    if hash_decides([known.rows.column(name) for name in arrangement.key]):
        return enough
    if asked.keys is None:
        enough[_shared(known, arrangement.key)] = False
        return enough
    rows = np.flatnonzero(positive)
    low, high = asked.low[active], asked.high[active]
    pair, query = expand_ranges(low[known.key[rows]], high[known.key[rows]])
    same = equal_rows(known.rows, rows[pair], asked.keys, query, arrangement.key)
    count = np.bincount(query[same], minlength=int(asked.high[-1]))
    short = np.add.reduceat((count < k).astype(np.int64), asked.low)
    return np.asarray(short[active] == 0)


def _shared(known: _Trusted, names: Sequence[str]) -> I64:
    """Keys of one hash whose trusted rows show more than one key."""
    if len(known.key) == 0:
        return np.empty(0, np.int64)
    starts = np.flatnonzero(begins(known.key))
    leader = np.repeat(starts, lengths(starts, len(known.key)))
    same = equal_rows(known.rows, leader, known.rows, np.arange(len(known.key)), names)
    return np.unique(known.key[~same])


def _in_query_order(
    found: list[Batch], found_key: list[I64], asked: _Queries, arrangement: Arrangement
) -> tuple[I64, Batch]:
    """Rows of all rounds, ordered by query; repeated queries get the rows each."""
    if not found:
        return np.empty(0, np.int64), empty(arrangement)
    rows, key = concat(found, words=True), np.concatenate(found_key)
    if len(found) > 1:
        order = np.argsort(key, kind="stable")
        rows, key = rows.take(order, words=True), key.take(order)
    queries = len(asked.hashes)
    if asked.high[-1] == queries:
        return key, rows
    low, high = key.searchsorted(np.arange(queries), "left"), key.searchsorted(np.arange(queries), "right")
    repeats = asked.high - asked.low
    query, position = expand_ranges(np.repeat(low, repeats), np.repeat(high, repeats))
    return query, rows.take(position, words=True)

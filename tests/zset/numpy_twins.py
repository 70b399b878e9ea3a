"""The kernels in plain numpy (or plain Python, where numpy lacks an operation): their specification.

Names, arguments and results are those of `dbsp.zset.kernels`; the tests compare the two, the benchmarks measure the
ratio.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dbsp.errors import CapacityError
from dbsp.zset.kernels import OVERFLOW_HINT, RUN_SHIFT, ByteStrings, Positions, Weights, WordColumns, Words
from dbsp.zset.kernels.first_rows import CHUNK, POSITION, QUERY, WEIGHT
from dbsp.zset.kernels.groups import PROBED_ROWS, ROWS_PER_GROUP
from dbsp.zset.kernels.hashes import BYTES_SEED, COMBINE, GAMMA, MIX_1, MIX_2, WORD
from dbsp.zset.kernels.picks import PROBED_ROWS as STRETCHES_PROBED
from dbsp.zset.kernels.picks import STRETCH_ROWS

_MASK = (1 << 64) - 1
Mask = NDArray[np.bool_]


def _shift(bits: int) -> np.uint64:
    """Return a number of bits as the right operand of a shift."""
    return np.uint64(bits)


def _mix(words: Words) -> Words:
    """Return the words mixed by the finaliser of splitmix64."""
    words = (words ^ (words >> _shift(30))) * MIX_1
    words = (words ^ (words >> _shift(27))) * MIX_2
    return words ^ (words >> _shift(31))


def hash_words(values: Words) -> Words:
    """Return the hash of each word; the hash is a bijection."""
    return _mix(values + GAMMA)


def hash_word_pairs(values: NDArray[np.uint64]) -> Words:
    """Return the hash of each pair of words."""
    return combine_hashes(hash_words(values[:, 0]), hash_words(values[:, 1]))


def combine_hashes(left: Words, right: Words) -> Words:
    """Return one hash per row of a left and a right one."""
    left = left * COMBINE
    return _mix(((left << _shift(23)) | (left >> _shift(41))) + right)


def hash_bytes(offsets: NDArray[np.int32], data: NDArray[np.uint8]) -> Words:
    """Return the hash of each byte string, computed with Python's integers."""
    strings = [data[lo:hi].tobytes() for lo, hi in pairwise(offsets)]
    return np.array([_hash_one(each) for each in strings], np.uint64)


def _hash_one(string: bytes) -> int:
    """Return the hash of one byte string."""
    state = int(BYTES_SEED)
    for start in range(0, len(string), 8):
        word = int.from_bytes(string[start : start + 8], "little") * int(WORD) & _MASK
        state ^= _rotate(word, 29)
        state = (_rotate(state, 27) * int(MIX_1) + int(GAMMA)) & _MASK
    state ^= len(string) * int(MIX_2) & _MASK
    state = (state ^ state >> 30) * int(MIX_1) & _MASK
    state = (state ^ state >> 27) * int(MIX_2) & _MASK
    return state ^ state >> 31


def _rotate(word: int, bits: int) -> int:
    """Rotate 64 bits to the left."""
    return (word << bits | word >> (64 - bits)) & _MASK


def sort_hash(key_hash: Words) -> tuple[Words, Positions]:
    """Return the sorted hashes and the stable order that sorts them."""
    order = argsort_hash(key_hash)
    return key_hash[order], order


def sort_groups(key_hash: Words, group: Positions, firsts: Positions) -> tuple[Words, Positions]:
    """Return the sorted hashes and their order for rows with numbered groups."""
    order = np.argsort(key_hash[firsts][group], kind="stable")
    return key_hash[firsts][group][order], order


def argsort_hash(key_hash: Words) -> Positions:
    """Return the stable order that sorts the hashes."""
    return np.argsort(key_hash, kind="stable")


def argsort3(key_hash: Words, order_code: Words | None, row_hash: Words | None) -> Positions:
    """Return the stable order that sorts rows by the words that exist."""
    if order_code is None and row_hash is None:
        return argsort_hash(key_hash)
    return np.lexsort([word for word in (row_hash, order_code, key_hash) if word is not None])


def sort_words(
    key_hash: Words, order_code: Words | None, row_hash: Words | None
) -> tuple[Words, Words | None, Words | None, Positions]:
    """Return the words, sorted, and the stable order that sorts them."""
    order = argsort3(key_hash, order_code, row_hash)
    rest = [None if word is None else word[order] for word in (order_code, row_hash)]
    return key_hash[order], rest[0], rest[1], order


def sort_within(
    key_hash: Words, order: Positions, order_code: Words | None, row_hash: Words | None
) -> tuple[Words, Words | None, Words | None, Positions]:
    """Return the result of `sort_words` for rows whose sorted hashes and their order are known."""
    unsorted = np.empty_like(key_hash)
    unsorted[order] = key_hash
    return sort_words(unsorted, order_code, row_hash)


def run_flags(key_hash: Words, order_code: Words | None = None, row_hash: Words | None = None) -> NDArray[np.uint8]:
    """Return 1 for each row that differs from its predecessor in some word, and for the first."""
    fresh = np.zeros(len(key_hash), np.bool_)
    fresh[:1] = True
    for word in (key_hash, order_code, row_hash):
        if word is not None:
            fresh[1:] |= word[1:] != word[:-1]
    return fresh.view(np.uint8)


def run_starts(key_hash: Words, order_code: Words | None = None, row_hash: Words | None = None) -> Positions:
    """Return the positions of rows that differ from their predecessor in some word."""
    return np.flatnonzero(run_flags(key_hash, order_code, row_hash))


def set_positions(flags: NDArray[np.uint8] | NDArray[np.bool_]) -> Positions:
    """Return the positions of the flags that are 1."""
    return np.flatnonzero(flags)


def partition_by(dest: NDArray[np.integer], parts: int) -> tuple[Positions, Positions]:
    """Return the stable order by destination, and the bounds of the destinations."""
    order = np.argsort(dest, kind="stable")
    return order, np.concatenate([[0], np.cumsum(np.bincount(dest, minlength=parts))]).astype(np.int64)


def number_groups(words: Words) -> tuple[Positions, Positions] | None:
    """Return each row's group and each group's first row, or None if groups have few rows."""
    return _numbered(words, len(words) // ROWS_PER_GROUP) if _repeat_early(words) else None


def _numbered(words: Words, most: int) -> tuple[Positions, Positions] | None:
    """Return groups as `number_groups` does, however few rows they have, or None for more than `most` groups."""
    found = _by_first_rows(words)
    return None if len(found[1]) > most else found


def _repeat_early(values: NDArray[Any]) -> bool:
    """Return whether at least half of the first values repeat earlier ones; true for no more values than these."""
    return len(values) <= PROBED_ROWS or 2 * len(np.unique(values[:PROBED_ROWS])) <= PROBED_ROWS


def _by_first_rows(values: NDArray[Any]) -> tuple[Positions, Positions]:
    """Return the number of each row's value, and each value's first row, numbered by first rows."""
    _, firsts, group = np.unique(values, return_index=True, return_inverse=True)
    order = np.argsort(firsts)
    numbers = np.empty(len(order), np.int64)
    numbers[order] = np.arange(len(order))
    return numbers[group], firsts[order]


def _objects(strings: ByteStrings) -> NDArray[Any]:
    """Return the byte strings as an array of objects."""
    return np.array(_strings(*strings, np.arange(len(strings[0]) - 1)), object)


def number_values(strings: ByteStrings, most: int) -> tuple[Positions, Positions] | None:
    """Return the number of each row's byte string, and each string's first row; None for too many strings."""
    return _numbered(_objects(strings), most)


def repeat_early(words: Words) -> bool:
    """Return whether at least half of the first words repeat earlier ones; true for no more words than these."""
    return _repeat_early(words)


def values_repeat_early(strings: ByteStrings) -> bool:
    """Return whether at least half of the first byte strings repeat earlier ones."""
    return _repeat_early(_objects(strings))


def number_codes(codes: Positions, size: int, most: int) -> tuple[Positions, Positions] | None:
    """Return codes renumbered by their first rows, and the old codes in the new order; None for too many codes."""
    found = _numbered(codes.view(np.uint64), most) if _repeat_early(codes) else None
    return None if found is None else (found[0], codes[found[1]])


def least_of_groups(words: Words, group: Positions, count: int) -> Words:
    """Return the least word of each group."""
    least = np.full(count, (1 << 64) - 1, np.uint64)
    np.minimum.at(least, group, words)
    return least


def most_of_groups(words: Words, group: Positions, count: int) -> Words:
    """Return the greatest word of each group."""
    return ~least_of_groups(~words, group, count)


def ends_of_groups(words: Words, group: Positions, count: int) -> Mask:
    """Return whether each row has the least or the greatest word of its group."""
    least, most = least_of_groups(words, group, count), most_of_groups(words, group, count)
    return np.asarray((words == least[group]) | (words == most[group]))


def words_by_group(words: Words, group: Positions, firsts: Positions) -> bool:
    """Return whether every row has the word of the first row of its group."""
    return bool((words == words[firsts[group]]).all())


def interleave(old: Words, new: Words, went: Mask, came: Mask) -> tuple[Positions, Positions, Positions, Words, bool]:
    """Return the removed and added rows in the order of (group, row hash), and whether that order is final."""
    number = np.concatenate([np.flatnonzero(went), np.flatnonzero(came) + len(went)])
    group, hashes = number % max(len(went), 1), np.concatenate([old, new])[number]
    by = np.lexsort((number, hashes, group))
    weights = np.where(number < len(went), -1, 1)[by]
    return number[by], group[by], weights, hashes[by], not (went & came & (old == new)).any()


def merge_sums(
    left: WordColumns, left_weights: Weights, right: WordColumns, right_weights: Weights
) -> tuple[WordColumns, Positions, Weights, tuple[Positions, Positions]] | None:
    """Merge two sorted runs row by row, and add up the weights of rows with equal words."""
    sides = [list(zip(*(w.tolist() for w in words if w is not None), strict=True)) for words in (left, right)]
    kept: list[tuple[tuple[int, ...], int, list[int]]] = []
    same: list[tuple[int, int]] = []
    width, n, m, i, j = left_weights.shape[1], len(sides[0]), len(sides[1]), 0, 0
    while i < n or j < m:
        from_left = i < n and (j >= m or sides[0][i] <= sides[1][j])
        from_right = j < m and (i >= n or sides[1][j] <= sides[0][i])
        if from_left and from_right:
            same.append((i, j))
        ours, theirs = left_weights[i].tolist() if from_left else [0] * width, [0] * width
        theirs = right_weights[j].tolist() if from_right else theirs
        weights = [a + b for a, b in zip(ours, theirs, strict=True)]
        if any(weights):
            kept.append((sides[0][i], i, weights) if from_left else (sides[1][j], (1 << RUN_SHIFT) + j, weights))
        i, j = i + from_left, j + from_right
    if any(not -(1 << 63) <= weight < 1 << 63 for *_, weights in kept for weight in weights):
        return None
    place = iter(range(3))
    columns = {at: next(place) for at, word in enumerate(left) if word is not None}
    words = tuple(np.array([w[columns[at]] for w, *_ in kept], np.uint64) if at in columns else None for at in range(3))
    rows = np.array([row for _, row, _ in kept], np.int64)
    sums = np.array([weights for *_, weights in kept], np.int64).reshape(-1, width)
    pairs = np.array(same, np.int64).reshape(-1, 2)
    return words, rows, sums, (pairs[:, 0], pairs[:, 1])  # type: ignore[return-value]


def lower_bounds(queries: Words, hay: Words) -> Positions:
    """Return for each query the first position in the sorted `hay` not below it."""
    return np.searchsorted(hay, queries, "left").astype(np.int64)


def equal_ranges(queries: Words, hay: Words) -> tuple[Positions, Positions]:
    """Return for each query the range of the sorted `hay` that holds it."""
    return lower_bounds(queries, hay), np.searchsorted(hay, queries, "right").astype(np.int64)


def expand_ranges(lows: Positions, highs: Positions) -> tuple[Positions, Positions]:
    """Return every position of every range, with the number of its range."""
    counts = highs - lows
    query_index = np.repeat(np.arange(len(lows)), counts)
    first = np.cumsum(counts) - counts
    return query_index, np.arange(len(query_index)) - first[query_index] + lows[query_index]


def sum_runs(weights: Weights, starts: Positions, order: Positions | None = None) -> Weights:
    """Return the summed weights of each run; high and low halves are added separately, to detect an overflow."""
    if not len(starts):
        return np.empty((0, weights.shape[1]), np.int64)
    ordered = weights if order is None else weights[order]
    return _whole(np.add.reduceat(ordered >> 32, starts), np.add.reduceat(ordered & 0xFFFFFFFF, starts))


def _whole(high: Weights, low: Weights) -> Weights:
    """Return the sums of 64-bit numbers from the sums of their halves; raise `CapacityError` on overflow."""
    high = high + (low >> 32)
    if ((high < -(1 << 31)) | (high >= 1 << 31)).any():
        raise CapacityError("weight overflow: bits=64", OVERFLOW_HINT)
    return (high << 32) | (low & 0xFFFFFFFF)


def reduce_runs(weights: Weights, order: Positions, fresh: NDArray[np.uint8]) -> tuple[Positions, Positions, Weights]:
    """Return each run with a non-zero sum of weights: its first row, its first position, its weights."""
    starts = np.flatnonzero(fresh)
    summed = sum_runs(weights, starts, order)
    kept = nonzero_rows(summed)
    return order[starts[kept]], starts[kept], summed[kept]


def scatter_add(out: Weights, rows: Positions, weights: Weights) -> None:
    """Add `weights[i]` to `out[rows[i]]` in place."""
    high, low = out >> 32, out & 0xFFFFFFFF
    np.add.at(high, rows, weights >> 32)
    np.add.at(low, rows, weights & 0xFFFFFFFF)
    out[:] = _whole(high, low)


def add_by_group(values: Positions, group: Positions, count: int) -> Positions:
    """Return the sum of `values[i]` for each of `count` groups, where row i belongs to `group[i]`."""
    out = np.zeros((count, 1), np.int64)
    scatter_add(out, group, values.reshape(-1, 1))
    return out.reshape(-1)


def add_marked(marks: Sequence[Mask | None], weight: Positions, group: Positions, count: int) -> Weights:
    """Return for each mask the weights of its rows, added up by group: (count, masks). None masks all rows."""
    every = np.ones(len(group), np.bool_)
    marked = [every if mark is None else mark for mark in marks]
    return np.column_stack([add_by_group(weight[mark], group[mark], count) for mark in marked])


def add_halves(values: Positions, weight: Positions, group: Positions, count: int) -> Weights:
    """Return the weighted sums of the values' low 32 bits, and of their high bits with the sign, as two rows."""
    halves = values & 0xFFFFFFFF, values >> 32
    return np.stack([add_by_group(half * weight, group, count) for half in halves])


def nonzero_rows(weights: Weights) -> Positions:
    """Return the rows with some weight that is not zero."""
    return np.flatnonzero(weights.any(axis=1))


def pick_words(columns: Sequence[Words], rows: Positions) -> Words:
    """Return the words at these rows of several columns."""
    return np.array([columns[column][at] for column, at in _places(rows)], np.uint64)


def pick_rows(columns: Sequence[Weights], rows: Positions) -> Weights:
    """Return the rows at these places of several columns of weights."""
    return np.array([columns[column][at] for column, at in _places(rows)], np.int64).reshape(-1, columns[0].shape[1])


def pick_bytes(columns: Sequence[ByteStrings], rows: Positions) -> ByteStrings | None:
    """Return the byte strings at these rows of several columns."""
    held = [_strings(offsets, data, np.arange(len(offsets) - 1)) for offsets, data in columns]
    picked = [held[column][at] for column, at in _places(rows)]
    offsets = np.cumsum([0, *map(len, picked)], dtype=np.int32)
    return offsets, np.frombuffer(b"".join(picked), np.uint8)


def _places(rows: Positions) -> list[tuple[int, int]]:
    """Return the number of the column and the place there for each row."""
    return [divmod(row, 1 << RUN_SHIFT) for row in rows.tolist()]


def take_stretches(strings: ByteStrings, rows: Positions) -> ByteStrings | None:
    """Return the byte strings at these rows, or None if too few rows are consecutive."""
    first = rows[:STRETCHES_PROBED]
    breaks = 1 + np.count_nonzero(np.diff(first) != 1)
    return None if STRETCH_ROWS * breaks > len(first) else pick_bytes([strings], rows)


def equal_bytes(
    left: ByteStrings,
    left_rows: Positions,
    right: ByteStrings,
    right_rows: Positions,
) -> NDArray[np.bool_]:
    """Return whether the byte strings are equal, pair by pair."""
    pairs = zip(_strings(*left, left_rows), _strings(*right, right_rows), strict=True)
    return np.array([a == b for a, b in pairs], np.bool_)


def bytes_repeat(strings: ByteStrings) -> bool:
    """Return whether all byte strings, at least one, are equal."""
    return len(set(_strings(*strings, np.arange(len(strings[0]) - 1)))) == 1


def bytes_by_group(strings: ByteStrings, group: Positions, firsts: Positions) -> bool:
    """Return whether every row has the byte string of the first row of its group."""
    return bool(equal_bytes(strings, np.arange(len(group)), strings, firsts[group]).all())


def _strings(offsets: NDArray[np.int32], data: NDArray[np.uint8], rows: Positions) -> list[bytes]:
    """Return the byte strings of some rows."""
    return [data[offsets[row] : offsets[row + 1]].tobytes() for row in rows]


def split_parts(strings: ByteStrings, separator: bytes, number: int) -> ByteStrings:
    """Return the number-th part of each byte string, counted from 1; empty if there are fewer parts."""
    split = [string.split(separator) for string in _strings(*strings, np.arange(len(strings[0]) - 1))]
    parts = [each[number - 1] if number <= len(each) else b"" for each in split]
    return np.cumsum([0, *map(len, parts)], dtype=np.int32), np.frombuffer(b"".join(parts), np.uint8)


def leading_words(offsets: NDArray[np.int32], data: NDArray[np.uint8]) -> Words:
    """Return the first eight bytes of each byte string as a word; words sort like the strings' beginnings."""
    strings = _strings(offsets, data, np.arange(len(offsets) - 1))
    return np.array([int.from_bytes(string[:8].ljust(8, b"\0"), "big") for string in strings], np.uint64)


# Heads


def collect_first_rows(  # noqa: PLR0917  as the kernel
    queries: Positions, lows: Positions, highs: Positions, codes: Words, rows: Words, weights: Positions, chunk: int,
    rows_max: int, taken: Positions, last: Words, cut: Mask, limit: Words, found: Positions, words: Words, count: int,
    backwards: bool,
) -> int:  # fmt: skip
    """Note the first rows of each range of a chunk, or the last; return their number so far, or the missing room, negative."""
    use, turned = np.minimum(highs - lows, rows_max - taken[queries]), np.uint64(_MASK if backwards else 0)
    ranges = [np.arange(high - n, high)[::-1] for high, n in zip(highs, use, strict=True)]
    ranges = ranges if backwards else list(map(np.arange, lows, lows + use))
    query, at = np.repeat(queries, use), np.concatenate([np.empty(0, np.int64), *ranges])
    end = count + len(at)
    if end > len(found):
        return len(found) - end
    found[count:end] = np.stack([query, np.full(len(at), chunk), at, weights[at]], axis=1)
    words[count:end] = np.stack([codes[at], rows[at]], axis=1) ^ turned
    some, more = use > 0, highs - lows > use
    taken[queries] += use
    last[queries[some]] = codes[(highs - use if backwards else lows + use - 1)[some]] ^ turned
    cut[queries[more]] = True
    limit[queries[more]] = np.minimum(limit, last)[queries[more]]
    return end


def settle_first_rows(  # noqa: PLR0917  as the kernel
    found: Positions, words: Words, delta: int, k: int, cut: Mask, limit: Words, cut_after: Mask, limit_after: Words,
    order: Positions, scratch: Positions, ends: Positions,
    ready: Mask, kept: Positions, kept_words: Words, same: Positions,
) -> tuple[int, int]:  # fmt: skip
    """List the first rows of each query; return their number, and that of added candidates. Overflow is not detected."""
    listed: list[tuple[int, ...]] = []
    pairs: list[tuple[int, int]] = []
    for query in range(len(ready)):
        mine: dict[tuple[int, int], list[int]] = {}
        for each in np.flatnonzero(found[:, QUERY] == query).tolist():
            mine.setdefault((int(words[each, 0]), int(words[each, 1])), []).append(each)
        sides, enough = [], []
        for of, cuts, limits in (
            (found[:, CHUNK] != delta, cut, limit),
            (found[:, CHUNK] >= 0, cut_after, limit_after),
        ):
            sums = {at: sum(int(found[each, WEIGHT]) for each in some if of[each]) for at, some in sorted(mine.items())}
            known = {at: total for at, total in sums.items() if not cuts[query] or at[0] < int(limits[query])}
            positive = [code for (code, _), total in known.items() if total > 0]
            reach = positive[k - 1] if len(positive) >= k else 1 << 64
            sides.append({at: total for at, total in known.items() if at[0] <= reach})
            enough.append(not cuts[query] or len(positive) >= k)
        ready[query] = all(enough)
        for at, some in sorted(mine.items()):
            weights = [side.get(at, 0) for side in sides]
            pairs += [(some[0], each) for each in some[1:] if any(at in side for side in sides)]
            if ready[query] and any(weights):
                listed.append((query, int(found[some[0], CHUNK]), int(found[some[0], POSITION]), *weights, *at))
    for index, (*integers, code, row) in enumerate(listed):
        kept[:, index], kept_words[:, index] = integers, (code, row)
    for index, pair in enumerate(pairs):
        same[:, index] = pair
    return len(listed), len(pairs)


def with_halves(weights: Weights, numbers: Sequence[Positions]) -> Weights:
    """Return weights and the halves of numbers side by side."""
    return np.column_stack([weights, *(half for each in numbers for half in (each & 0xFFFFFFFF, each >> 32))])


def moves_of_ends(old: Weights, change: Weights, first: Sequence[int], greatest: Sequence[bool]) -> Weights:
    """Return the change, with the halves of an extreme replaced by the new extreme minus the old one."""
    moved = change.copy()
    for at, most in zip(first, greatest, strict=True):
        before, came = ((rows[:, at + 1] << 32) | rows[:, at] for rows in (old, change))
        better = came > before if most else came < before
        end = np.where((change[:, 0] != 0) & ((old[:, 0] == 0) | better), came, before)
        moved[:, at], moved[:, at + 1] = (end & 0xFFFFFFFF) - old[:, at], (end >> 32) - old[:, at + 1]
    return moved

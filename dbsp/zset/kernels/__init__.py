"""The inner loops of the engine, as functions on numpy arrays; `tests/zset/numpy_twins.py` specifies them in plain numpy.

Every function here allocates its result, calls one numba kernel of this package, and turns a reported overflow into an
error. Hashes, order codes and row hashes are contiguous uint64 arrays of one dimension, weights int64 of two (rows,
weights per row), positions int64.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dbsp.errors import CapacityError
from dbsp.heap import share_with_arrow
from dbsp.zset.kernels import bytestrings, groups, hashes, merges, picks, sorts, sums, texts

Words = NDArray[np.uint64]
Positions = NDArray[np.int64]
Weights = NDArray[np.int64]
Mask = NDArray[np.bool_]

ByteStrings = tuple[NDArray[np.int32], NDArray[np.uint8]]
"""The n + 1 offsets of n byte strings, and the bytes that contain them."""

WordColumns = tuple[Words, Words | None, Words | None]
"""Key hash, order code, row hash; the last two may be absent."""

RUN_SHIFT = picks.RUN_SHIFT
"""A row of several columns is one number: the column's number, shifted left by `RUN_SHIFT` bits, plus the place in it."""

ROWS_MAX = (1 << 31) - 1
_HALF_MAX = (1 << 31) - 1
_MARKS = 8
_PAIRS = np.array(
    [[(bits >> 2 * word & 1) + ((bits >> 2 * word + 1 & 1) << 32) for word in range(4)] for bits in range(256)]
)
"""A table for `add_pairs`: for each byte of eight marks, four words whose two 32-bit halves are 1 where the mark is set."""
OVERFLOW_HINT = "a weight or a linear sum must stay within 64 signed bits"

share_with_arrow()


def _exact(exact: bool) -> None:
    """Raise `CapacityError` if a kernel reported an overflow."""
    if not exact:
        raise CapacityError("weight overflow: bits=64", OVERFLOW_HINT)


# Hashes


def hash_words(values: Words) -> Words:
    """Return the hash of each word; the hash is a bijection."""
    out = np.empty(len(values), np.uint64)
    hashes.hash_words(values, out)
    return out


def hash_word_pairs(values: NDArray[np.uint64]) -> Words:
    """Return the hash of each pair of words; `values` is (n, 2), low word first."""
    out = np.empty(len(values), np.uint64)
    hashes.hash_word_pairs(values, out)
    return out


def hash_bytes(offsets: NDArray[np.int32], data: NDArray[np.uint8]) -> Words:
    """Return the hash of each byte string `data[offsets[i]:offsets[i + 1]]`; equal strings in all rows are hashed once."""
    out = np.empty(len(offsets) - 1, np.uint64)
    if len(out) and bytes_repeat((offsets, data)):
        hashes.hash_bytes(offsets[:2], data, out[:1])
        out[1:] = out[0]
    else:
        hashes.hash_bytes(offsets, data, out)
    return out


def combine_hashes(left: Words, right: Words) -> Words:
    """Return one hash per row of a left and a right hash; the order of the two matters."""
    out = np.empty_like(left)
    hashes.combine(left, right, out)
    return out


# Sorting


def sort_hash(key_hash: Words) -> tuple[Words, Positions]:
    """Return the sorted hashes and the stable order that sorts them."""
    n = len(key_hash)
    if n >= ROWS_MAX:
        raise CapacityError(f"too many rows in one batch: rows={n} rows_max={ROWS_MAX}", "lower max_rows_per_step")
    words, order = key_hash.copy(), np.arange(n)
    sorts.sort_runs(np.zeros(n, np.uint8), words, order)
    return words, order


def argsort_hash(key_hash: Words) -> Positions:
    """Return the stable order that sorts the hashes."""
    return sort_hash(key_hash)[1]


def sort_groups(key_hash: Words, group: Positions, firsts: Positions) -> tuple[Words, Positions]:
    """Return the result of `sort_hash` for rows with numbered groups: sort only the groups, then distribute the rows to them."""
    hashes, words, order = key_hash.take(firsts), np.empty(len(group), np.uint64), np.empty(len(group), np.int64)
    groups.deal_groups(group, sort_hash(hashes)[1], hashes, words, order)
    return words, order


def sort_words(
    key_hash: Words, order_code: Words | None, row_hash: Words | None
) -> tuple[Words, Words | None, Words | None, Positions]:
    """Return the words of each row, sorted by all that exist, and the stable order that sorts them."""
    numbered = number_groups(key_hash) if len(key_hash) >= groups.ROWS_MIN else None
    by_hash = sort_hash(key_hash) if numbered is None else sort_groups(key_hash, *numbered)
    return sort_within(*by_hash, order_code, row_hash)


def sort_within(
    key_hash: Words, order: Positions, order_code: Words | None, row_hash: Words | None
) -> tuple[Words, Words | None, Words | None, Positions]:
    """Return the result of `sort_words` for rows whose sorted hashes and their order are known.

    The given `order` is changed and becomes the result's order.
    """
    if order_code is None and row_hash is None:
        return key_hash, None, None, order
    fresh = np.zeros(len(order), np.uint8)
    sorts.mark_changes(key_hash, fresh)
    if order_code is not None:
        order_code = order_code.take(order)
        sorts.sort_runs(fresh, order_code, order)
        sorts.mark_changes(order_code, fresh)
    if row_hash is not None:
        row_hash = row_hash.take(order)
        sorts.sort_runs(fresh, row_hash, order)
    return key_hash, order_code, row_hash, order


def argsort3(key_hash: Words, order_code: Words | None, row_hash: Words | None) -> Positions:
    """Return the stable order that sorts rows by (key hash, order code, row hash), as far as these exist."""
    return sort_words(key_hash, order_code, row_hash)[3]


def run_flags(key_hash: Words, order_code: Words | None = None, row_hash: Words | None = None) -> NDArray[np.uint8]:
    """Return 1 for each row that differs from its predecessor in some word, and for the first; 0 for the others."""
    fresh = np.zeros(len(key_hash), np.uint8)
    fresh[:1] = 1
    for words in (key_hash, order_code, row_hash):
        if words is not None:
            sorts.mark_changes(words, fresh)
    return fresh


def run_starts(key_hash: Words, order_code: Words | None = None, row_hash: Words | None = None) -> Positions:
    """Return the positions of rows that differ from their predecessor in some word, and 0 if there are rows."""
    return set_positions(run_flags(key_hash, order_code, row_hash))


def set_positions(flags: NDArray[np.uint8] | NDArray[np.bool_]) -> Positions:
    """Return the positions of the flags that are 1."""
    out = np.empty(len(flags) + 1, np.int64)
    count = sorts.positions_of(flags.view(np.uint8), out)
    return out[:count]


def partition_by(dest: NDArray[np.integer], parts: int) -> tuple[Positions, Positions]:
    """Return the stable order of rows by destination in [0, parts), and the parts + 1 bounds of the destinations."""
    order, offsets = np.empty(len(dest), np.int64), np.zeros(parts + 1, np.int64)
    sorts.deal_by(np.ascontiguousarray(dest, np.int64), offsets, order)
    return order, offsets


# Groups


def number_groups(words: Words) -> tuple[Positions, Positions] | None:
    """Return each row's group number, and each group's first row; rows with equal words form a group.

    Groups are numbered in the order of their first rows.

    Return None if groups have few rows: fewer than `groups.ROWS_PER_GROUP` on average, or many groups among the first
    rows.
    """
    return _numbered(words, len(words) // groups.ROWS_PER_GROUP) if groups.repeat_early(words) else None


def _numbered(words: Words, most: int) -> tuple[Positions, Positions] | None:
    """Return groups as `number_groups` does, however few rows they have, or None for more than `most` groups."""
    group, firsts = np.empty(len(words), np.int64), np.empty(min(most, len(words)), np.int64)
    count = groups.number_groups(words, group, firsts)
    return None if count < 0 else (group, firsts[:count].copy())


def number_values(strings: ByteStrings, most: int) -> tuple[Positions, Positions] | None:
    """Return the number of each row's byte string, and each string's first row; numbered by first rows.

    Return None for more than `most` distinct strings, or if two share a hash.
    """
    found = _numbered(hash_bytes(*strings), most)
    return found if found is not None and bytes_by_group(strings, *found) else None


def repeat_early(words: Words) -> bool:
    """Return whether half of the first `groups.PROBED_ROWS` words or more repeat earlier ones; true for fewer words."""
    return bool(groups.repeat_early(words))


def values_repeat_early(strings: ByteStrings) -> bool:
    """Return whether at least half of the first byte strings repeat earlier ones, as `repeat_early` does for words."""
    return repeat_early(hash_bytes(*strings))


def number_codes(codes: Positions, size: int, most: int) -> tuple[Positions, Positions] | None:
    """Return codes below `size` renumbered by their first rows, and the old codes in the new order.

    Return None for more than `most` distinct codes, or if the first rows hold many, as in `values_repeat_early`.
    """
    number, renumbered = np.full(size, -1, np.int64), np.empty(len(codes), np.int64)
    firsts = np.empty(min(most, size), np.int64)
    count = groups.number_codes(codes, number, renumbered, firsts)
    return None if count < 0 else (renumbered, firsts[:count].copy())


def least_of_groups(words: Words, group: Positions, count: int) -> Words:
    """Return the least word of each of `count` groups; the greatest possible word for a group without rows."""
    out = np.full(count, (1 << 64) - 1, np.uint64)
    groups.least_of_groups(words, group, out)
    return out


def most_of_groups(words: Words, group: Positions, count: int) -> Words:
    """Return the greatest word of each of `count` groups; 0 for a group without rows."""
    out = np.zeros(count, np.uint64)
    groups.most_of_groups(words, group, out)
    return out


def ends_of_groups(words: Words, group: Positions, count: int) -> NDArray[np.bool_]:
    """Return whether each row has the least or the greatest word of its group, one of `count` groups."""
    least, most, out = (
        np.full(count, (1 << 64) - 1, np.uint64),
        np.zeros(count, np.uint64),
        np.empty(len(words), np.bool_),
    )
    groups.ends_of_groups(words, group, least, most, out)
    return out


def words_by_group(words: Words, group: Positions, firsts: Positions) -> bool:
    """Return whether every row has the word of the first row of its group."""
    return bool(groups.words_by_group(words, words.take(firsts), group))


def interleave(
    old: Words, new: Words, went: NDArray[np.bool_], came: NDArray[np.bool_]
) -> tuple[Positions, Positions, Positions, Words, bool]:
    """Return the removed and the added rows of groups in the order of (group, row hash).

    A group has at most one removed row, with hash `old`, and one added row, with hash `new`. The result has each row's
    number, group, weight and hash; numbers of added rows follow those of all groups' removed rows. The last element
    says whether this order is final, which it is unless both rows of a group share their hash.
    """
    rows = 2 * len(went)
    order, group, weights, hashes = *(np.empty(rows, np.int64) for _ in range(3)), np.empty(rows, np.uint64)
    count, shared = groups.interleave(old, new, went, came, order, group, weights, hashes)
    return order[:count], group[:count], weights[:count], hashes[:count], not shared


# Merging and finding


def merge_sums(
    left: WordColumns, left_weights: Weights, right: WordColumns, right_weights: Weights
) -> tuple[WordColumns, Positions, Weights, tuple[Positions, Positions]] | None:
    """Merge two sorted runs, and add up the weights of rows with equal words; no input row has only zero weights.

    The result has the words, the rows in the form of `pick_words` (of two added rows the left one), and their weights.
    It also has the places, on both sides, of the rows that were added, so that the caller can compare their columns.
    Return None if a sum exceeds 64 bits.
    """
    n, m = len(left[0]), len(right[0])
    some = [at for at, word in enumerate(left) if word is not None]
    if some != [at for at, word in enumerate(right) if word is not None]:
        raise ValueError("both sides need the same words")
    out = {at: np.empty(n + m, np.uint64) for at in some}
    # The kernel compares three words: repeating the last one changes no order.
    at = (*some, *[some[-1]] * (3 - len(some)))
    width, most = left_weights.shape[1], min(n, m) + 1
    rows, left_place, right_place, place = (np.empty(size, np.int64) for size in (n + m, most, most, most))
    sums = np.empty((most, width), np.int64)
    sides = (*(left[a] for a in at), left_weights.reshape(-1), *(right[a] for a in at), right_weights.reshape(-1))
    count, pairs = merges.merge_sums(
        *sides, width, rows, *(out[a] for a in at), left_place, right_place, place, sums.reshape(-1)
    )
    if count < 0:
        return None
    words, rows = tuple(_cut(out[a], count) if a in out else None for a in range(3)), rows[:count]
    weights = pick_rows([left_weights, right_weights], rows)
    if pairs:
        stays = np.flatnonzero(place[:pairs] >= 0)
        weights[place[stays]] = sums[stays]
    return words, rows, weights, (left_place[:pairs], right_place[:pairs])  # type: ignore[return-value]


def _cut(array: NDArray[Any], count: int) -> NDArray[Any]:
    """Return the beginning of an array; a copy if a view would keep much unused memory alive."""
    return array[:count] if 4 * count > 3 * len(array) else array[:count].copy()


def lower_bounds(queries: Words, hay: Words) -> Positions:
    """Return for each query the first position in the sorted `hay` not below it; fastest for sorted queries."""
    out = np.empty(len(queries), np.int64)
    merges.find_lower(queries, hay, out)
    return out


def equal_ranges(queries: Words, hay: Words) -> tuple[Positions, Positions]:
    """Return for each query the range [low, high) of the sorted `hay` that holds it; fastest for sorted queries."""
    lows, highs = np.empty(len(queries), np.int64), np.empty(len(queries), np.int64)
    merges.find_ranges(queries, hay, lows, highs)
    return lows, highs


def expand_ranges(lows: Positions, highs: Positions) -> tuple[Positions, Positions]:
    """Return every position of every range, with the number of its range."""
    total = int((highs - lows).sum())
    query_index, position = np.empty(total, np.int64), np.empty(total, np.int64)
    merges.spread(lows, highs, query_index, position)
    return query_index, position


# Weights


def sum_runs(weights: Weights, starts: Positions, order: Positions | None = None) -> Weights:
    """Return the summed weights of each run, of rows in the order of `order` if given; raise `CapacityError` on overflow."""
    out = np.empty((len(starts), weights.shape[1]), np.int64)
    if order is None:
        _exact(sums.sum_runs(weights, starts, out))
    else:
        _exact(sums.sum_runs_at(weights, order, starts, out))
    return out


def reduce_runs(weights: Weights, order: Positions, fresh: NDArray[np.uint8]) -> tuple[Positions, Positions, Weights]:
    """Return each run with a non-zero sum of weights: its first row, its first position, its weights.

    The runs consist of rows in the order of `order`, and each starts where `fresh` is 1. Raise `CapacityError` on
    overflow.
    """
    n = len(order)
    positions, out = np.empty(n, np.int64), np.empty(weights.shape, np.int64)
    reduce = sums.reduce_runs_of_one if weights.shape[1] == 1 else sums.reduce_runs
    count = reduce(weights, order, fresh, positions, out)
    _exact(count >= 0)
    positions = positions[:count]
    return order.take(positions), positions, out[:count]


def scatter_add(out: Weights, rows: Positions, weights: Weights) -> None:
    """Add `weights[i]` to `out[rows[i]]` in place; raise `CapacityError` on overflow."""
    _exact(sums.scatter_add(out, rows, weights))


def add_by_group(values: Positions, group: Positions, count: int) -> Positions:
    """Return the sum of `values[i]` for each of `count` groups, where row i belongs to `group[i]`.

    Raise `CapacityError` if an intermediate sum overflows.
    """
    out = np.zeros(count, np.int64)
    _exact(sums.add_by_group(values, group, out))
    return out


def add_marked(marks: Sequence[Mask | None], weight: Positions, group: Positions, count: int) -> Weights:
    """Return for each mask the weights of its rows, added up by group: (count, masks). None masks all rows; at least one mask.

    Raise `CapacityError` if an intermediate sum overflows. If no sum can exceed 32 bits, two sums share a word, and
    eight masks are added in a pass. The loop is bound by latency: a row waits for the addition of the previous row of
    its group.
    """
    # If some sum may exceed 32 bits, each mask is added separately, in 64 bits.
    if len(weight) * max(abs(int(weight.max(initial=0))), abs(int(weight.min(initial=0)))) > _HALF_MAX:
        return np.column_stack(
            [add_by_group(np.where(True if mark is None else mark, weight, 0), group, count) for mark in marks]
        )
    out = np.empty((count, len(marks)), np.int64)
    for first in range(0, len(marks), _MARKS):
        some = marks[first : first + _MARKS]
        bits = np.full(len(group), sum(1 << bit for bit, mark in enumerate(some) if mark is None), np.uint8)
        for bit, mark in enumerate(some):
            if mark is not None:
                bits |= mark.view(np.uint8) << np.uint8(bit)
        words = np.zeros((count, (len(some) + 1) // 2), np.int64)
        sums.add_pairs(bits, _PAIRS, weight, group, words)
        low = words.astype(np.int32)  # the low sum with its sign; the high sum is what remains after subtracting it
        out[:, first : first + _MARKS : 2] = low
        out[:, first + 1 : first + _MARKS : 2] = ((words - low) >> 32)[:, : len(some) // 2]
    return out


def add_halves(values: Positions, weight: Positions, group: Positions, count: int) -> Weights:
    """Return the weighted sums of the values' low 32 bits, and of their high bits with the sign, as two rows.

    Raise `CapacityError` if an intermediate sum overflows, or a weight exceeds 31 bits.
    """
    out = np.zeros((2, count), np.int64)
    _exact(sums.add_halves(values, weight, group, out))
    return out


def with_halves(weights: Weights, numbers: Sequence[Positions]) -> Weights:
    """Return rows of weights, followed by the low 32 bits and the high bits, with the sign, of each number."""
    width = weights.shape[1]
    out = np.empty((len(weights), width + 2 * len(numbers)), np.int64)
    out[:, :width] = weights
    for place, each in enumerate(numbers):
        sums.lay_halves(each, width + 2 * place, out)
    return out


def moves_of_ends(old: Weights, change: Weights, first: Sequence[int], greatest: Sequence[bool]) -> Weights:
    """Return the numbers to add to old rows: the change, or for the halves of an extreme the distance that the extreme moves.

    **Shape** From `first[k]` on are the halves of a number: a row's least one so far, or its greatest, as `greatest[k]`
    says. A row whose first weight is 0, on either side, has none.
    """
    moved = change.copy()
    for at, most in zip(first, greatest, strict=True):
        sums.move_end(old, change, at, most, moved)
    return moved


def nonzero_rows(weights: Weights) -> Positions:
    """Return the rows with some weight that is not zero."""
    out = np.empty(len(weights) + 1, np.int64)
    count = sums.nonzero_rows(weights, out)
    return out[:count]


# Rows of several columns


def pick_words(columns: Sequence[Words], rows: Positions) -> Words:
    """Return the words at these rows of several columns; a row is the column's number (see `RUN_SHIFT`) and its place there."""
    out = np.empty(len(rows), np.uint64)
    picks.pick_words(_addresses(columns), rows, out)
    return out


def pick_rows(columns: Sequence[Weights], rows: Positions) -> Weights:
    """Return the rows at these places of several columns of weights, as `pick_words` does for words."""
    width = columns[0].shape[1]
    out = np.empty((len(rows), width), np.int64)
    if width == 1:
        picks.pick_words(_addresses(columns), rows, out.view(np.uint64).reshape(-1))
    else:
        picks.pick_rows(_addresses(columns), rows, out.view(np.uint64))
    return out


def pick_bytes(columns: Sequence[ByteStrings], rows: Positions) -> ByteStrings | None:
    """Return the byte strings (offsets, data) at these rows of several columns; None for over 2 GiB in all columns.

    No row may occur twice, because the output is allocated in the columns' total size.

    **Cost** Consecutive rows are copied at once: for merged runs a fraction of a gather, at worst as much.
    """
    size = sum(int(offsets[-1]) - int(offsets[0]) for offsets, _ in columns)
    if size >= ROWS_MAX:
        return None
    offsets, data = np.empty(len(rows) + 1, np.int32), np.empty(size, np.uint8)
    bounds, strings = _addresses([each for each, _ in columns]), _addresses([each for _, each in columns])
    picks.pick_bytes(bounds, strings, rows, offsets, data)
    return offsets, _cut(data, int(offsets[-1]))


def take_stretches(strings: ByteStrings, rows: Positions) -> ByteStrings | None:
    """Return the byte strings (offsets, data) at these rows, or None if too few rows are consecutive for block copies to pay."""
    rows = np.ascontiguousarray(rows, np.int64)
    size = picks.size_in_stretches(strings[0], rows)
    if not 0 <= size < ROWS_MAX:
        return None
    offsets, data = np.empty(len(rows) + 1, np.int32), np.empty(size, np.uint8)
    picks.pick_bytes(_addresses([strings[0]]), _addresses([strings[1]]), rows, offsets, data)
    return offsets, data


def _addresses(arrays: Sequence[NDArray[Any]]) -> Words:
    """Return the addresses of contiguous arrays, which must outlive the kernel that reads them."""
    return np.array([array.__array_interface__["data"][0] for array in arrays], np.uint64)


# Byte strings


def equal_bytes(
    left: ByteStrings,
    left_rows: Positions,
    right: ByteStrings,
    right_rows: Positions,
) -> NDArray[np.bool_]:
    """Return whether the byte strings of two columns (offsets, data) are equal, pair by pair.

    If each column repeats one string, a single comparison decides; few pairs are compared one by one without that test.
    """
    pairs = len(left_rows)
    many = pairs > 0 and 2 * pairs >= max(len(left[0]), len(right[0]))
    once = many and bytes_repeat(left) and bytes_repeat(right)
    if once:
        left_rows = right_rows = np.zeros(1, np.int64)
    out = np.empty(len(left_rows), np.bool_)
    bytestrings.equal_bytes(*left, left_rows, *right, right_rows, out)
    return np.repeat(out, pairs) if once else out


def bytes_repeat(strings: ByteStrings) -> bool:
    """Return whether all byte strings, at least one, are equal; the cost is tiny if the first two differ."""
    return bool(bytestrings.bytes_repeat(*strings))


def bytes_by_group(strings: ByteStrings, group: Positions, firsts: Positions) -> bool:
    """Return whether every row has the byte string of the first row of its group."""
    return (len(group) > 0 and bytes_repeat(strings)) or bool(bytestrings.bytes_by_group(*strings, group, firsts))


def split_parts(strings: ByteStrings, separator: bytes, number: int) -> ByteStrings:
    """Return the number-th part of each byte string between separators, counted from 1; empty if there are fewer parts."""
    offsets, data = strings
    rows, between = len(offsets) - 1, np.frombuffer(separator, np.uint8)
    starts, ends = np.empty(rows, np.int32), np.empty(rows, np.int32)
    out = np.empty(texts.part_bounds(offsets, data, between, number, starts, ends), np.uint8)
    cut = np.empty(rows + 1, np.int32)
    texts.copy_parts(data, starts, ends, cut, out)
    return cut, out


def leading_words(offsets: NDArray[np.int32], data: NDArray[np.uint8]) -> Words:
    """Return the first eight bytes of each byte string as a word; words sort like the strings' beginnings."""
    out = np.empty(len(offsets) - 1, np.uint64)
    bytestrings.leading_words(offsets, data, out)
    return out

"""Kernels for rows of few keys: a hash table numbers the groups, and fits the cache where a sort of all rows would not.

Groups are numbered in the order of their first rows, so the result depends on the rows alone.
"""

from __future__ import annotations

import numpy as np
from numba import types

from dbsp.zset.kernels.kernel import kernel, reads, writes

ROWS_PER_GROUP = 4
"""Least average rows per group for grouping by hash table; with fewer, sorting all rows is as cheap."""
PROBED_BITS = 13
PROBED_ROWS = 1 << (PROBED_BITS - 1)
"""Number of first rows that decide whether grouping pays: half of them must repeat a key of an earlier row."""
ROWS_MIN = 1024
"""Least rows for grouping by hash table; sorting fewer rows costs next to nothing."""

_SPREAD = np.uint64(0x9E3779B97F4A7C15)
_U64, _U64_OUT = reads(types.uint64), writes(types.uint64)
_I64, _I64_OUT = reads(types.int64), writes(types.int64)
_MASK = reads(types.boolean)


@kernel(types.boolean(_U64))
def repeat_early(words):  # type: ignore[no-untyped-def]
    """Return whether half of the first `PROBED_ROWS` rows or more belong to a group seen before; true for fewer rows.

    The table for these rows is a small part of the one that numbers all groups, so the test is cheap.
    """
    if len(words) <= PROBED_ROWS:
        return True
    held, filled = np.empty(2 * PROBED_ROWS, np.uint64), np.zeros(2 * PROBED_ROWS, np.uint8)
    shift, mask = np.uint64(64 - PROBED_BITS), np.uint64(2 * PROBED_ROWS - 1)
    count = np.int64(0)
    for i in range(PROBED_ROWS):
        slot = (words[i] * _SPREAD) >> shift
        while filled[slot] and held[slot] != words[i]:
            slot = (slot + np.uint64(1)) & mask
        count += 1 - filled[slot]
        held[slot] = words[i]
        filled[slot] = 1
    return 2 * count <= PROBED_ROWS


@kernel(types.int64(_U64, _I64_OUT, _I64_OUT))
def number_groups(words, group, firsts):  # type: ignore[no-untyped-def]
    """Write each row's group and each group's first row; return the number of groups, or -1 for more than `firsts` can hold."""
    room = np.int64(len(firsts))
    bits = 4
    while (1 << bits) < 2 * room:
        bits += 1
    slots, shift = np.int64(1) << bits, np.uint64(64 - bits)
    mask = np.uint64(slots - 1)
    held = np.zeros(slots, np.uint64)
    number = np.full(slots, np.int32(-1), np.int32)
    count = np.int64(0)
    for i in range(len(words)):
        word = words[i]
        slot = (word * _SPREAD) >> shift
        while number[slot] >= 0 and held[slot] != word:
            slot = (slot + np.uint64(1)) & mask
        if number[slot] < 0:
            if count == room:
                return -1
            held[slot] = word
            number[slot] = count
            firsts[count] = i
            count += 1
        group[i] = number[slot]
    return count


@kernel(types.int64(_I64, _I64_OUT, _I64_OUT, _I64_OUT))
def number_codes(codes, number, renumbered, firsts):  # type: ignore[no-untyped-def]
    """Number codes by their first rows and list them in that order; return their number, -1 if `firsts` is too short.

    Return -1 as well if fewer than half of the first `PROBED_ROWS` rows repeat an earlier code, as in `repeat_early`.
    On entry `number` has a negative entry for each code.
    """
    count, room = np.int64(0), np.int64(len(firsts))
    for i in range(len(codes)):
        if i == PROBED_ROWS and 2 * count > PROBED_ROWS:
            return -1
        code = codes[i]
        if number[code] < 0:
            if count == room:
                return -1
            number[code] = count
            firsts[count] = code
            count += 1
        renumbered[i] = number[code]
    return count


@kernel(types.void(_I64, _I64, _U64, _U64_OUT, _I64_OUT))
def deal_groups(group, places, key_hash, words, order):  # type: ignore[no-untyped-def]
    """List the rows of each group, with the group's hash; `places` are the groups in the requested order."""
    ends = np.zeros(len(places), np.int64)
    for i in range(len(group)):
        ends[group[i]] += 1
    start = np.int64(0)
    for g in places:
        size = ends[g]
        ends[g] = start
        words[start : start + size] = key_hash[g]
        start += size
    for i in range(len(group)):
        order[ends[group[i]]] = i
        ends[group[i]] += 1


@kernel(types.void(_U64, _I64, _U64_OUT))
def least_of_groups(words, group, out):  # type: ignore[no-untyped-def]
    """Lower `out[g]` to the least word of group g."""
    for i in range(len(words)):
        at = group[i]
        out[at] = min(out[at], words[i])


@kernel(types.void(_U64, _I64, _U64_OUT))
def most_of_groups(words, group, out):  # type: ignore[no-untyped-def]
    """Raise `out[g]` to the greatest word of group g."""
    for i in range(len(words)):
        at = group[i]
        out[at] = max(out[at], words[i])


@kernel(types.void(_U64, _I64, _U64_OUT, _U64_OUT, writes(types.boolean)))
def ends_of_groups(words, group, least, most, out):  # type: ignore[no-untyped-def]
    """Write whether each row has the least or greatest word of its group; lower `least[g]` and raise `most[g]` to them."""
    for i in range(len(words)):
        at = group[i]
        least[at], most[at] = min(least[at], words[i]), max(most[at], words[i])
    for i in range(len(words)):
        at = group[i]
        out[i] = (words[i] == least[at]) | (words[i] == most[at])


@kernel(types.boolean(_U64, _U64, _I64))
def words_by_group(words, held, group):  # type: ignore[no-untyped-def]
    """Return whether every row has the word that is held for its group."""
    wrong = np.uint64(0)
    for i in range(len(group)):
        wrong |= words[i] ^ held[group[i]]
    return wrong == np.uint64(0)


@kernel(types.UniTuple(types.int64, 2)(_U64, _U64, _MASK, _MASK, _I64_OUT, _I64_OUT, _I64_OUT, _U64_OUT))  # type: ignore[no-untyped-call]
def interleave(  # type: ignore[no-untyped-def]  # noqa: PLR0917  a kernel has no structs
    old, new, went, came, order, group, weights, hashes
):
    """List the removed and added rows by group; return their number, and whether both rows of some group share their hash."""
    count, shared = np.int64(0), np.int64(0)
    for g in range(len(went)):
        both = went[g] and came[g]
        shared |= np.int64(both and old[g] == new[g])
        for second in range(2):
            is_new = (second == 1) != (both and old[g] > new[g])
            if came[g] if is_new else went[g]:
                order[count], group[count] = g + (len(went) if is_new else 0), g
                weights[count], hashes[count] = (1 if is_new else -1), (new[g] if is_new else old[g])
                count += 1
    return count, shared

"""Kernels for rows of few keys: groups are numbered by a hash table, which fits the cache where sorting the rows would not.

Groups are numbered in the order of their first rows, so the result depends on the rows alone.
"""

from __future__ import annotations

import numpy as np
from numba import types

from dbsp.zset.kernels.kernel import kernel, reads, writes

ROWS_PER_GROUP = 4
"""With fewer rows to a group than that, sorting all rows is as cheap."""
PROBED_ROWS = 4096
"""After so many rows it is seen whether keys come again: half of them must."""

_SPREAD = np.uint64(0x9E3779B97F4A7C15)
_U64, _U64_OUT = reads(types.uint64), writes(types.uint64)
_I64, _I64_OUT = reads(types.int64), writes(types.int64)


@kernel(types.int64(_U64, _I64_OUT, _I64_OUT))
def number_groups(words, group, firsts):  # type: ignore[no-untyped-def]
    """Write each row's group and each group's first row; how many groups, -1 where there are more than `firsts` has room for.

    Also -1 where fewer than half of the first `PROBED_ROWS` rows are of a group that was there.
    """
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
        if i == PROBED_ROWS and 2 * count > PROBED_ROWS:
            return -1
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


@kernel(types.void(_U64, _I64, _U64_OUT))
def least_of_groups(words, group, out):  # type: ignore[no-untyped-def]
    """Lower `out[g]` to the least word of group g."""
    for i in range(len(words)):
        at = group[i]
        out[at] = min(out[at], words[i])

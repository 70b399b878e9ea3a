"""Kernels on ranges of a sorted run: find their chunks, narrow them by the second word, add them up, join overlapping
ones.
"""

from __future__ import annotations

import numpy as np
from numba import types

from dbsp.zset.kernels.kernel import helper, kernel, reads, writes

_U64 = reads(types.uint64)
_I64, _I64_OUT = reads(types.int64), writes(types.int64)


@helper
def _first(hay, low, high, query, above):  # type: ignore[no-untyped-def]
    """Return the first position in [low, high) not below the query; with `above`, the first one above the query."""
    while low < high:
        middle = (low + high) >> 1
        if hay[middle] < query or (above and hay[middle] == query):
            low = middle + 1
        else:
            high = middle
    return low


@kernel(types.void(_I64_OUT, _I64_OUT, _U64, _U64))
def narrow_ranges(lows, highs, queries, hay):  # type: ignore[no-untyped-def]
    """Cut each range, in which `hay` is sorted, down to the positions that hold its query."""
    for q in range(len(queries)):
        low, high = lows[q], highs[q]
        if low < high:
            lows[q] = _first(hay, low, high, queries[q], False)
            highs[q] = _first(hay, lows[q], high, queries[q], True)


@kernel(types.void(_I64_OUT, _I64_OUT, _U64, _U64, _U64))
def cut_ranges(lows, highs, firsts, lasts, hay):  # type: ignore[no-untyped-def]
    """Cut each range, in which `hay` is sorted, down to the positions that hold words from `first` to `last`."""
    for q in range(len(firsts)):
        low, high = lows[q], highs[q]
        if low < high:
            lows[q] = _first(hay, low, high, firsts[q], False)
            highs[q] = _first(hay, lows[q], high, lasts[q], True)


@helper
def _fence(fences, at, low, key, code, above):  # type: ignore[no-untyped-def]
    """Return the first chunk from `low` on whose fence is not below (key, code), or with `above` is above (key, code).

    The fence is the pair of words at column `at` and the next one.
    """
    high = len(fences)
    while low < high:
        middle = (low + high) >> 1
        word, second = fences[middle, at], fences[middle, at + 1]
        if word < key or (word == key and (second < code or (above and second == code))):
            low = middle + 1
        else:
            high = middle
    return low


@kernel(types.void(_I64_OUT, _I64_OUT, _U64, _U64, _U64, reads(types.uint64, 2), types.int64))
def overlap_fences(lows, highs, queries, firsts, lasts, fences, start):  # type: ignore[no-untyped-def]
    """Write the range of chunks, from `start` on, that may hold rows of each query with codes from `firsts` to `lasts`.

    The array `fences` holds query and code of each chunk's first row and of its last row.
    """
    for q in range(len(queries)):
        lows[q] = highs[q] = start
        if firsts[q] <= lasts[q]:
            lows[q] = _fence(fences, 2, start, queries[q], firsts[q], False)
            highs[q] = _fence(fences, 0, lows[q], queries[q], lasts[q], True)


@kernel(types.void(_I64_OUT, _I64, _I64, _I64))
def add_ranges(totals, lows, highs, weights):  # type: ignore[no-untyped-def]
    """Add the weights of each range [low, high) to its total; single weights are small, so no sum exceeds 64 bits."""
    for q in range(len(lows)):
        total = totals[q]
        for i in range(lows[q], highs[q]):
            total += weights[i]
        totals[q] = total


@kernel(types.int64(_I64, _U64, _U64, _I64_OUT))
def join_ranges(groups, lows, highs, joined):  # type: ignore[no-untyped-def]
    """Number the unions of ranges [low, high] that overlap within a group, sorted by (group, low); return their number."""
    count = 0
    most = np.uint64(0)  # with a plain 0 numba infers a float, whose rounding would unite near ranges
    for q in range(len(groups)):
        if q == 0 or groups[q] != groups[q - 1] or lows[q] > most:
            count += 1
            most = highs[q]
        most = max(most, highs[q])
        joined[q] = count - 1
    return count

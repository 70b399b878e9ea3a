"""Kernels that narrow ranges of a sorted run by its second word."""

from __future__ import annotations

from numba import types

from dbsp.zset.kernels.kernel import helper, kernel, reads, writes

_U64 = reads(types.uint64)
_I64_OUT = writes(types.int64)


@helper
def _first(hay, low, high, query, above):  # type: ignore[no-untyped-def]
    """The first position in [low, high] not below the query; with `above`, the first one above it."""
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

"""Kernels over sorted runs: merge two runs, find keys in a run, and expand ranges.

If queries are dense (`WALK_ROWS` rows of the run for each, or fewer), queries and run are scanned together. Otherwise the
search relies on evenly spread hashes: the next position is guessed from the last hit and the gap between the two keys.
A wrong guess is bracketed by doubling steps and settled by bisection. Sorted queries and even runs only save time; the
result is correct without them.
"""

from __future__ import annotations

import numpy as np
from numba import types

from dbsp.zset.kernels.kernel import helper, kernel, reads, writes
from dbsp.zset.kernels.picks import RUN_SHIFT

WALK_ROWS = 16
WINDOW_ROWS = 32
STRETCHES = 4
RIGHT = 1 << RUN_SHIFT
"""The row number of the first row of the second of two columns (see `picks`)."""

_U64, _U64_OUT = reads(types.uint64), writes(types.uint64)
_I64, _I64_OUT = reads(types.int64), writes(types.int64)


@helper
def _copy_below(  # type: ignore[no-untyped-def]  # noqa: PLR0913, PLR0917  a kernel has no structs
    bound, bounded, source, source_2, source_3, first, shift, rows, words, words_2, words_3, count
):
    """Append the rows from `first` on that are below the bound, or all without a bound; return the next row's position."""
    i = first
    while i < len(source) and not (bounded and source[i] >= bound):
        rows[count] = shift + i
        words[count], words_2[count], words_3[count] = source[i], source_2[i], source_3[i]
        count += 1
        i += 1
    return i


@kernel(
    types.UniTuple(types.int64, 2)(  # type: ignore[no-untyped-call]  # numba is untyped
        _U64, _U64, _U64, _I64, _U64, _U64, _U64, _I64, types.int64,
        _I64_OUT, _U64_OUT, _U64_OUT, _U64_OUT, _I64_OUT, _I64_OUT, _I64_OUT, _I64_OUT,
    )
)  # fmt: skip
def merge_sums(  # type: ignore[no-untyped-def]  # noqa: PLR0913, PLR0917  a kernel has no structs
    left, left_2, left_3, left_weights, right, right_2, right_3, right_weights, width,
    rows, words, words_2, words_3, same_left, same_right, places, sums,
):  # fmt: skip
    """Merge two sorted runs of three words, add up rows with equal words, and drop those whose weights sum to zero.

    Rows are numbered as those of two columns (see `picks`); of two added rows the number is the left one's. Each row
    has `width` weights. Return how many rows remain, and how many pairs had equal words. Their places on both sides and
    in the result (-1 if dropped) and their sums are written. The first result is -1 for an overflow: `wrong` becomes
    negative if a sum exceeds 64 bits.

    The rows of one side below the other side's next first word are copied in a loop of their own. The processor
    predicts its branches better, and waits less, than with a choice for each row. Only rows with equal first words are
    compared one by one.
    """
    n, m = len(left), len(right)
    i, j, count, pairs, wrong = np.int64(0), np.int64(0), np.int64(0), np.int64(0), np.int64(0)
    while i < n and j < m:
        before = i
        i = _copy_below(right[j], True, left, left_2, left_3, i, 0, rows, words, words_2, words_3, count)
        count += i - before
        if i == n:
            break
        before, key = j, left[i]
        j = _copy_below(key, True, right, right_2, right_3, j, RIGHT, rows, words, words_2, words_3, count)
        count += j - before
        while i < n and j < m and left[i] == key and right[j] == key:
            a_2, a_3, b_2, b_3 = left_2[i], left_3[i], right_2[j], right_3[j]
            if a_2 == b_2 and a_3 == b_3:
                some = np.int64(0)
                for c in range(width):
                    a, b = left_weights[i * width + c], right_weights[j * width + c]
                    # The sign bit is set if both terms differ in sign from their sum, which then has wrapped.
                    wrong |= (a ^ (a + b)) & (b ^ (a + b))
                    some |= a + b
                    sums[pairs * width + c] = a + b
                same_left[pairs], same_right[pairs], places[pairs] = i, j, count if some != 0 else -1
                # Always written, but kept only if a sum is not zero: that saves a branch.
                rows[count], words[count], words_2[count], words_3[count] = i, key, a_2, a_3
                pairs += 1
                count += np.int64(some != 0)
                i += 1
                j += 1
            elif a_2 < b_2 or (a_2 == b_2 and a_3 < b_3):
                rows[count], words[count], words_2[count], words_3[count] = i, key, a_2, a_3
                count += 1
                i += 1
            else:
                rows[count], words[count], words_2[count], words_3[count] = RIGHT + j, key, b_2, b_3
                count += 1
                j += 1
    end = _copy_below(np.uint64(0), False, left, left_2, left_3, i, 0, rows, words, words_2, words_3, count)
    count += end - i
    end = _copy_below(np.uint64(0), False, right, right_2, right_3, j, RIGHT, rows, words, words_2, words_3, count)
    count += end - j
    return (count if wrong >= 0 else np.int64(-1)), pairs


@helper
def _bisect(hay, query, lo, hi):  # type: ignore[no-untyped-def]
    """Return the first position in [lo, hi] whose word is not below the query."""
    while lo < hi:
        middle = (lo + hi) >> 1
        if hay[middle] < query:
            lo = middle + 1
        else:
            hi = middle
    return lo


@helper
def _seek(hay, query, guess):  # type: ignore[no-untyped-def]
    """Return the first position whose word is not below the query, searched from `guess` outward."""
    n = len(hay)
    step = 1
    if guess < n and hay[guess] < query:
        lo = guess + 1
        hi = lo
        while hi < n and hay[hi] < query:
            lo = hi + 1
            hi += step
            step *= 2
        return _bisect(hay, query, lo, min(hi, n))
    hi = min(guess, n)
    lo = hi
    while lo > 0 and hay[lo - 1] >= query:
        hi = lo - 1
        lo -= step
        step *= 2
        lo = max(lo, 0)
    return _bisect(hay, query, lo, hi)


@helper
def _toward(hay, query, position, rows_per_unit):  # type: ignore[no-untyped-def]
    """Return the estimated position of `query`, extrapolated from the word at `position`; far jumps may be inaccurate."""
    last = len(hay) - 1
    jump = np.float64(np.int64(query - hay[position])) * rows_per_unit
    return min(max(position + np.int64(min(max(jump, -1e15), 1e15)), 0), last)


@helper
def _locate(hay, query, position, rows_per_unit):  # type: ignore[no-untyped-def]
    """Return the first position whose word is not below the query; `position` is the last hit.

    Two jumps by interpolation end within some rows of the result; a window there is bisected without branches. The
    window nearly always holds the result, so the check for that is a well predicted branch.
    """
    n = len(hay)
    if n < WINDOW_ROWS:
        return _bisect(hay, query, np.int64(0), n)
    near = _toward(hay, query, min(position, n - 1), rows_per_unit)
    near = _toward(hay, query, near, rows_per_unit)
    lo = min(max(near - WINDOW_ROWS // 2, 0), n - WINDOW_ROWS)
    hi = lo + WINDOW_ROWS
    if (lo > 0 and hay[lo - 1] >= query) or (hi < n and hay[hi] < query):
        return _seek(hay, query, near)
    step = WINDOW_ROWS // 2
    while step:
        lo += step * np.int64(hay[lo + step - 1] < query)
        step >>= 1
    return lo + np.int64(hay[lo] < query)


@helper
def _past(hay, query, lo):  # type: ignore[no-untyped-def]
    """Return the first position after a run of the query that begins before `lo` and includes `lo`."""
    n = len(hay)
    hi, step = lo, 1
    while hi + step < n and hay[hi + step] == query:
        hi += step
        step *= 2
    end = min(n, hi + step)
    hi += 1
    while hi < end:
        middle = (hi + end) >> 1
        if hay[middle] == query:
            hi = middle + 1
        else:
            end = middle
    return hi


@helper
def _locate_all(queries, hay, out):  # type: ignore[no-untyped-def]
    """Locate every query, several stretches side by side, so that one stretch's memory latency is hidden by the others."""
    n, m = len(hay), len(queries)
    if n == 0:
        for q in range(m):
            out[q] = 0
        return
    # Evenly spread hashes have about this many rows per unit of the hash: the slope for interpolation.
    rows_per_unit = np.float64(n - 1) / max(1.0, np.float64(hay[n - 1] - hay[0]))
    stretch = m // STRETCHES
    last = np.zeros(STRETCHES, np.int64)
    for i in range(stretch):
        for s in range(STRETCHES):
            q = s * stretch + i
            last[s] = _locate(hay, queries[q], last[s], rows_per_unit)
            out[q] = last[s]
    position = last[STRETCHES - 1]
    for q in range(STRETCHES * stretch, m):
        position = _locate(hay, queries[q], position, rows_per_unit)
        out[q] = position


@helper
def _walk(hay, query, before, position):  # type: ignore[no-untyped-def]
    """Return the first position from `position` on whose word is not below the query.

    A query below the previous one is found by bisection instead.
    """
    n = len(hay)
    if query < before:
        return _bisect(hay, query, np.int64(0), n)
    while position < n and hay[position] < query:
        position += 1
    return position


@kernel(types.void(_U64, _U64, _I64_OUT))
def find_lower(queries, hay, out):  # type: ignore[no-untyped-def]
    """Write for each query the first position in the sorted `hay` whose word is not below the query."""
    if len(hay) > WALK_ROWS * len(queries):
        _locate_all(queries, hay, out)
        return
    lo, before = np.int64(0), np.uint64(0)
    for q in range(len(queries)):
        lo = _walk(hay, queries[q], before, lo)
        before = queries[q]
        out[q] = lo


@kernel(types.void(_U64, _U64, _I64_OUT, _I64_OUT))
def find_ranges(queries, hay, lows, highs):  # type: ignore[no-untyped-def]
    """Write for each query the range of positions in the sorted `hay` that hold the query."""
    n = len(hay)
    if n <= WALK_ROWS * len(queries):
        lo, hi, before = np.int64(0), np.int64(0), np.uint64(0)
        for q in range(len(queries)):
            if q == 0 or queries[q] != before:
                lo = _walk(hay, queries[q], before, hi)
                before = queries[q]
                hi = lo
                while hi < n and hay[hi] == before:
                    hi += 1
            lows[q] = lo
            highs[q] = hi
        return
    _locate_all(queries, hay, lows)
    for q in range(len(queries)):
        lo = lows[q]
        hi = lo + (np.int64(lo < n) & np.int64(hay[min(lo, n - 1)] == queries[q])) if n else lo
        if hi > lo and hi < n and hay[hi] == queries[q]:
            hi = _past(hay, queries[q], hi)
        highs[q] = hi


@kernel(types.void(_I64, _I64, _I64_OUT, _I64_OUT))
def spread(lows, highs, query_index, position):  # type: ignore[no-untyped-def]
    """List every position of every range with the number of its range."""
    k = 0
    for q in range(len(lows)):
        for i in range(lows[q], highs[q]):
            query_index[k] = q
            position[k] = i
            k += 1

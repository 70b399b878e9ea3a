"""Kernels over sorted runs: merging two, finding keys in one, spreading ranges.

Where queries lie close to each other (`WALK_ROWS` rows of the run for each), both are walked side by side. Else finding uses
that hashes are spread evenly: from the last hit the next position is guessed by the gap between the two
keys; where the guess is off, it is bracketed by doubling steps and settled by bisection. Order and evenness only save time:
unsorted queries and uneven runs are found too.
"""

from __future__ import annotations

import numpy as np
from numba import types

from dbsp.zset.kernels.kernel import helper, kernel, reads, writes

WALK_ROWS = 16
WINDOW_ROWS = 32
STRETCHES = 4

_U64, _U64_OUT = reads(types.uint64), writes(types.uint64)
_I64, _I64_OUT = reads(types.int64), writes(types.int64)


@helper
def _split(left, right):  # type: ignore[no-untyped-def]
    """How many left rows are in the first half of the merged run."""
    half = (len(left) + len(right)) // 2
    lo, hi = max(0, half - len(right)), min(half, len(left))
    while lo < hi:
        middle = (lo + hi) >> 1
        if left[middle] <= right[half - middle - 1]:
            lo = middle + 1
        else:
            hi = middle
    return lo


@helper
def _merge_tail(left, right, i, n, j, m, order, words):  # type: ignore[no-untyped-def]  # noqa: PLR0917
    """Merge `left[i:n]` with `right[j:m]` to where they belong."""
    shift = len(left)
    while i < n or j < m:
        from_right = i >= n or (j < m and right[j] < left[i])
        order[i + j] = shift + j if from_right else i
        words[i + j] = right[j] if from_right else left[i]
        if from_right:
            j += 1
        else:
            i += 1


@kernel(types.void(_U64, _U64, _I64_OUT, _U64_OUT))
def merge_one(left, right, order, words):  # type: ignore[no-untyped-def]
    """Merge two sorted runs of one word; right rows are numbered after the left ones, left first where equal.

    Both halves of the result are merged at once, without branches: which side is next cannot be foretold, so a branch
    costs more than the comparison, and two chains of comparisons overlap.
    """
    n, m = len(left), len(right)
    n_1 = _split(left, right)
    m_1 = (n + m) // 2 - n_1
    i, j, i_2, j_2 = np.int64(0), np.int64(0), np.int64(n_1), np.int64(m_1)
    while True:
        steps = min(n_1 - i, m_1 - j, n - i_2, m - j_2)
        if steps <= 0:
            break
        for _ in range(steps):
            a, b = left[i], right[j]
            a_2, b_2 = left[i_2], right[j_2]
            from_right = np.int64(b < a)
            from_right_2 = np.int64(b_2 < a_2)
            order[i + j] = i + (n + j - i) * from_right
            words[i + j] = min(a, b)
            order[i_2 + j_2] = i_2 + (n + j_2 - i_2) * from_right_2
            words[i_2 + j_2] = min(a_2, b_2)
            i += 1 - from_right
            j += from_right
            i_2 += 1 - from_right_2
            j_2 += from_right_2
    _merge_tail(left, right, i, n_1, j, m_1, order, words)
    _merge_tail(left, right, i_2, n, j_2, m, order, words)


@kernel(types.void(_U64, _U64, _U64, _U64, _I64_OUT, _U64_OUT, _U64_OUT))
def merge_two(left, left_2, right, right_2, order, words, words_2):  # type: ignore[no-untyped-def]
    """The same for two words."""
    n, m = len(left), len(right)
    i, j = 0, 0
    for k in range(n + m):
        if j >= m:
            from_right = False
        elif i >= n:
            from_right = True
        elif left[i] != right[j]:
            from_right = right[j] < left[i]
        else:
            from_right = right_2[j] < left_2[i]
        if from_right:
            order[k], words[k], words_2[k] = n + j, right[j], right_2[j]
            j += 1
        else:
            order[k], words[k], words_2[k] = i, left[i], left_2[i]
            i += 1


@kernel(types.void(_U64, _U64, _U64, _U64, _U64, _U64, _I64_OUT, _U64_OUT, _U64_OUT, _U64_OUT))
def merge_three(  # type: ignore[no-untyped-def]  # noqa: PLR0913, PLR0917  a kernel has no structs
    left, left_2, left_3, right, right_2, right_3, order, words, words_2, words_3
):
    """The same for three words."""
    n, m = len(left), len(right)
    i, j = 0, 0
    for k in range(n + m):
        if j >= m:
            from_right = False
        elif i >= n:
            from_right = True
        elif left[i] != right[j]:
            from_right = right[j] < left[i]
        elif left_2[i] != right_2[j]:
            from_right = right_2[j] < left_2[i]
        else:
            from_right = right_3[j] < left_3[i]
        if from_right:
            order[k], words[k], words_2[k], words_3[k] = n + j, right[j], right_2[j], right_3[j]
            j += 1
        else:
            order[k], words[k], words_2[k], words_3[k] = i, left[i], left_2[i], left_3[i]
            i += 1


@helper
def _copy_below(  # type: ignore[no-untyped-def]  # noqa: PLR0913, PLR0917  a kernel has no structs
    bound, bounded, source, source_2, source_3, weights, first, shift, rows, words, words_2, words_3, out, count
):
    """Append the rows from `first` on, up to one that is not below the bound if there is one; which row comes then."""
    i = first
    while i < len(source) and not (bounded and source[i] >= bound):
        rows[count], out[count] = shift + i, weights[i]
        words[count], words_2[count], words_3[count] = source[i], source_2[i], source_3[i]
        count += 1
        i += 1
    return i


@kernel(
    types.UniTuple(types.int64, 2)(  # type: ignore[no-untyped-call]  # numba is untyped
        _U64, _U64, _U64, _I64, _U64, _U64, _U64, _I64, _I64_OUT, _U64_OUT, _U64_OUT, _U64_OUT, _I64_OUT, _I64_OUT, _I64_OUT
    )
)  # fmt: skip
def merge_sums(  # type: ignore[no-untyped-def]  # noqa: PLR0913, PLR0917  a kernel has no structs
    left, left_2, left_3, left_weights, right, right_2, right_3, right_weights,
    rows, words, words_2, words_3, weights, same_left, same_right,
):  # fmt: skip
    """Merge two sorted runs of three words, add up rows of equal words, one of each side, and drop those that come to zero.

    How many rows stay, and how many pairs were of equal words, which are listed; -1 for an overflow: `wrong` becomes negative
    where a sum leaves 64 bits. The rows of one side below the other side's next first word are copied in a loop of their own,
    which is foretold better, and waits less, than a choice for each row; only within a first word of both sides rows are
    compared one by one.
    """
    n, m = len(left), len(right)
    i, j, count, pairs, wrong = np.int64(0), np.int64(0), np.int64(0), np.int64(0), np.int64(0)
    while i < n and j < m:
        before = i
        i = _copy_below(
            right[j], True, left, left_2, left_3, left_weights, i, 0, rows, words, words_2, words_3, weights, count
        )
        count += i - before
        if i == n:
            break
        before, key = j, left[i]
        j = _copy_below(
            key, True, right, right_2, right_3, right_weights, j, n, rows, words, words_2, words_3, weights, count
        )
        count += j - before
        while i < n and j < m and left[i] == key and right[j] == key:
            a_2, a_3, b_2, b_3 = left_2[i], left_3[i], right_2[j], right_3[j]
            if a_2 == b_2 and a_3 == b_3:
                total = left_weights[i] + right_weights[j]
                wrong |= (left_weights[i] ^ total) & (right_weights[j] ^ total)
                same_left[pairs], same_right[pairs] = i, j
                pairs += 1
                rows[count], words[count], words_2[count], words_3[count], weights[count] = i, key, a_2, a_3, total
                count += np.int64(total != 0)
                i += 1
                j += 1
            elif a_2 < b_2 or (a_2 == b_2 and a_3 < b_3):
                rows[count], words[count], words_2[count], words_3[count] = i, key, a_2, a_3
                weights[count] = left_weights[i]
                count += 1
                i += 1
            else:
                rows[count], words[count], words_2[count], words_3[count] = n + j, key, b_2, b_3
                weights[count] = right_weights[j]
                count += 1
                j += 1
    end = _copy_below(
        np.uint64(0), False, left, left_2, left_3, left_weights, i, 0, rows, words, words_2, words_3, weights, count
    )
    count += end - i
    end = _copy_below(
        np.uint64(0), False, right, right_2, right_3, right_weights, j, n, rows, words, words_2, words_3, weights, count
    )
    count += end - j
    return (count if wrong >= 0 else np.int64(-1)), pairs


@helper
def _bisect(hay, query, lo, hi):  # type: ignore[no-untyped-def]
    """The first position in [lo, hi] whose word is not below the query."""
    while lo < hi:
        middle = (lo + hi) >> 1
        if hay[middle] < query:
            lo = middle + 1
        else:
            hi = middle
    return lo


@helper
def _seek(hay, query, guess):  # type: ignore[no-untyped-def]
    """The first position whose word is not below the query, looked for near `guess`."""
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
    """Where `query` should lie, judged from the word at `position`; a jump over half the range may go astray."""
    last = len(hay) - 1
    jump = np.float64(np.int64(query - hay[position])) * rows_per_unit
    return min(max(position + np.int64(min(max(jump, -1e15), 1e15)), 0), last)


@helper
def _locate(hay, query, position, rows_per_unit):  # type: ignore[no-untyped-def]
    """The first position whose word is not below the query; `position` is the last hit.

    Two jumps by interpolation come within some rows of it; a window there is bisected without branches. Whether the window
    holds it is checked, and foretold by the processor, as it nearly always does.
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
    """The first position after a run of the query that begins before `lo` and holds `lo`."""
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
    """Locate every query, several stretches of them side by side: one waits for memory while the others go on."""
    n, m = len(hay), len(queries)
    if n == 0:
        for q in range(m):
            out[q] = 0
        return
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
    """The first position from `position` on whose word is not below the query; found anew if the one before is above it."""
    n = len(hay)
    if query < before:
        return _bisect(hay, query, np.int64(0), n)
    while position < n and hay[position] < query:
        position += 1
    return position


@kernel(types.void(_U64, _U64, _I64_OUT))
def find_lower(queries, hay, out):  # type: ignore[no-untyped-def]
    """For each query the first position in the sorted `hay` whose word is not below it."""
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
    """For each query the range of positions in the sorted `hay` that hold it."""
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

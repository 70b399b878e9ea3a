"""Kernels that find the first rows of many keys over several sorted runs, by words alone.

No column is gathered before the kept rows are known. The kernel `collect_first_rows` notes every run's first rows of each
query: candidates of four integers (`QUERY` to `WEIGHT`) and two words (order code, row hash). The kernel `settle_first_rows`
adds up candidates with equal words. It then lists the first rows of each query without the run that is the change, and
with that run. The last rows are found in the same way, as the first ones of runs read backwards.
"""

from __future__ import annotations

import numpy as np
from numba import types

from dbsp.zset.kernels.kernel import helper, kernel, reads, writes

QUERY, CHUNK, POSITION, WEIGHT = range(4)
"""The integers of a candidate: the query that found it, its chunk, its position there, and its weight."""
AFTER = 4
"""The fifth integer, which only listed rows have: the weight with the change, where `WEIGHT` is without the change."""

_U64, _U64_OUT = reads(types.uint64), writes(types.uint64)
_I64, _I64_OUT = reads(types.int64), writes(types.int64)
_CANDIDATES, _CANDIDATES_OUT = reads(types.int64, 2), writes(types.int64, 2)
_WORDS, _WORDS_OUT = reads(types.uint64, 2), writes(types.uint64, 2)
_MASK_OUT = writes(types.boolean)


@kernel(
    types.int64(
        _I64, _I64, _I64, _U64, _U64, _I64, types.int64, types.int64,
        _I64_OUT, _U64_OUT, _MASK_OUT, _U64_OUT, _CANDIDATES_OUT, _WORDS_OUT, types.int64, types.boolean,
    )
)  # fmt: skip
def collect_first_rows(  # type: ignore[no-untyped-def]  # noqa: PLR0913, PLR0917  a kernel has no structs
    queries, lows, highs, codes, rows, weights, chunk, rows_max, taken, last, cut, limit, found, words, count, backwards
):  # fmt: skip
    """Note the first rows of each range of a chunk, up to a limit per run; return the number of rows noted so far.

    With `backwards` the last rows are noted, from the end on, with all bits of their words inverted, so that the sort
    order holds.

    If there is no room for the rows, nothing is done, and the result is the number of missing places, negative. `taken`
    counts the rows of each query in this run, `last` has the code of the last one. A query with more rows is marked
    `cut`, and its `limit` becomes at most that code.
    """
    total, flip = np.int64(0), np.uint64(0) - np.uint64(backwards)
    for i in range(len(queries)):
        total += min(highs[i] - lows[i], rows_max - taken[queries[i]])
    if count + total > len(found):
        return len(found) - count - total
    for i in range(len(queries)):
        query, low = queries[i], lows[i]
        there, room = highs[i] - low, rows_max - taken[query]
        use = min(there, room)
        for k in range(use):
            at = highs[i] - 1 - k if backwards else low + k
            found[count, QUERY], found[count, CHUNK], found[count, POSITION] = query, chunk, at
            found[count, WEIGHT] = weights[at]
            words[count, 0], words[count, 1] = codes[at] ^ flip, rows[at] ^ flip
            count += 1
        if use > 0:
            taken[query] += use
            last[query] = words[count - 1, 0]
        if there > use:
            cut[query] = True
            limit[query] = min(limit[query], last[query])
    return count


@helper
def _below(words, left, right):  # type: ignore[no-untyped-def]
    """Return whether the words of one candidate are below those of another."""
    a, b = words[left, 0], words[right, 0]
    return a < b or (a == b and words[left, 1] < words[right, 1])


@helper
def _merged(words, order, scratch, begin, middle, end):  # type: ignore[no-untyped-def]
    """Merge two adjacent sorted stretches of candidates; equal candidates keep their order."""
    rest = end - middle
    for i in range(rest):
        scratch[i] = order[middle + i]
    i, j, to = middle - 1, rest - 1, end - 1
    while j >= 0:
        if i >= begin and _below(words, scratch[j], order[i]):
            order[to] = order[i]
            i -= 1
        else:
            order[to] = scratch[j]
            j -= 1
        to -= 1


@helper
def _dealt(found, words, order, scratch, ends):  # type: ignore[no-untyped-def]
    """List the candidates of each query one after the other, in the order of their words; `ends` gets the end of each query."""
    for i in range(len(found)):
        ends[found[i, QUERY] + 1] += 1
    for q in range(len(ends) - 1):
        ends[q + 1] += ends[q]
    for i in range(len(found)):
        at = ends[found[i, QUERY]]
        order[at] = i
        ends[found[i, QUERY]] = at + 1
    begin = np.int64(0)
    for q in range(len(ends) - 1):
        end, middle = ends[q], begin
        while middle < end:  # the stretch before `middle` is sorted already
            past = middle + 1
            while past < end and not _below(words, order[past], order[past - 1]):
                past += 1
            if middle > begin:
                _merged(words, order, scratch, begin, middle, past)
            middle = past
        begin = end


@kernel(
    types.UniTuple(types.int64, 2)(  # type: ignore[no-untyped-call]  # numba is untyped
        _CANDIDATES, _WORDS, types.int64, types.int64, reads(types.boolean), _U64, reads(types.boolean), _U64,
        _I64_OUT, _I64_OUT, _I64_OUT, _MASK_OUT, _CANDIDATES_OUT, _WORDS_OUT, _CANDIDATES_OUT,
    )
)  # fmt: skip
def settle_first_rows(  # type: ignore[no-untyped-def]  # noqa: PLR0913, PLR0917  a kernel has no structs
    found, words, delta, k, cut, limit, cut_after, limit_after, order, scratch, ends, ready, kept, kept_words, same
):  # fmt: skip
    """List the first rows of each query; return their number, and the number of candidates that were added to others.

    `delta` is the chunk that is the change. On each side (without and with the change) a row counts below that side's
    `limit` if the query is `cut` there. It also counts only up to the k-th row of positive weight and its ties in the
    order code. A query is `ready` if each side has k such rows, or was not cut; no rows are listed for other queries.
    `kept` has a row of the array for each integer, and a column for each listed row; `same` has the two candidates of
    each addition. The first result is -1 for an overflow: `wrong` becomes negative if a sum exceeds 64 bits.
    """
    _dealt(found, words, order, scratch, ends)
    count, pairs, begin, wrong = np.int64(0), np.int64(0), np.int64(0), np.int64(0)
    for q in range(len(ready)):
        end, at, first = ends[q], begin, count
        positive, positive_after = np.int64(0), np.int64(0)
        code_k, code_k_after = np.uint64(0), np.uint64(0)
        while at < end:
            leader = order[at]
            code, row = words[leader, 0], words[leader, 1]
            before, change, pairs_before = np.int64(0), np.int64(0), pairs
            while at < end and words[order[at], 0] == code and words[order[at], 1] == row:
                each = order[at]
                if each != leader:
                    same[0, pairs], same[1, pairs] = leader, each
                    pairs += 1
                if found[each, CHUNK] == delta:
                    change += found[each, WEIGHT]
                else:
                    total = before + found[each, WEIGHT]
                    wrong |= (before ^ total) & (found[each, WEIGHT] ^ total)
                    before = total
                at += 1
            after = before + change
            wrong |= (before ^ after) & (change ^ after)
            shown = (positive < k or code == code_k) and (not cut[q] or code < limit[q])
            shown_after = (positive_after < k or code == code_k_after) and (not cut_after[q] or code < limit_after[q])
            if shown and before > 0:
                positive += 1
                code_k = code
            if shown_after and after > 0:
                positive_after += 1
                code_k_after = code
            before, after = before * np.int64(shown), after * np.int64(shown_after)
            if before != 0 or after != 0:
                kept[QUERY, count], kept[WEIGHT, count], kept[AFTER, count] = q, before, after
                kept[CHUNK, count], kept[POSITION, count] = found[leader, CHUNK], found[leader, POSITION]
                kept_words[0, count], kept_words[1, count] = code, row
                count += 1
            elif not shown and not shown_after:
                # Candidates are sorted, so no later one of this query is listed either.
                at, pairs = end, pairs_before
        ready[q] = (not cut[q] or positive >= k) and (not cut_after[q] or positive_after >= k)
        if not ready[q]:
            count = first
        begin = end
    return (count if wrong >= 0 else np.int64(-1)), pairs

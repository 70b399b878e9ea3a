"""Kernels that slide a frame over sorted rows.

Neither starts nor ends of frames ever decrease, so every row enters the frame once and leaves it once.
"""

from __future__ import annotations

import numpy as np
from numba import types

from dbsp.zset.kernels.kernel import helper, kernel, reads, writes

_I64, _I64_OUT = reads(types.int64), writes(types.int64)


@kernel(types.void(_I64, _I64, _I64, _I64_OUT))
def slide_least(ranks, starts, ends, found):  # type: ignore[no-untyped-def]
    """Write the position of the least rank in each frame [start, end), or -1 if there is none; negative ranks are no values.

    The queue holds the rows that a later frame may still need, in ascending order of position and of rank.
    """
    queue = np.empty(len(ranks), np.int64)
    head, tail, high = np.int64(0), np.int64(0), np.int64(0)
    for i in range(len(starts)):
        high = max(high, starts[i])
        while high < ends[i]:
            if ranks[high] >= 0:
                # Rows of a greater rank that leave before this row are the least of no later frame.
                while tail > head and ranks[queue[tail - 1]] > ranks[high]:
                    tail -= 1
                queue[tail] = high
                tail += 1
            high += 1
        while head < tail and queue[head] < starts[i]:
            head += 1
        found[i] = queue[head] if head < tail else -1


@kernel(types.void(_I64, types.int64, _I64, _I64, _I64_OUT))
def slide_distinct(codes, values, starts, ends, found):  # type: ignore[no-untyped-def]
    """Write the number of distinct codes, all below `values`, in each frame [start, end); negative codes are no values."""
    held = np.zeros(values, np.int64)
    low, high, distinct = np.int64(0), np.int64(0), np.int64(0)
    for i in range(len(starts)):
        while low < starts[i]:
            if low < high and codes[low] >= 0:  # rows from `high` on have not entered
                held[codes[low]] -= 1
                distinct -= np.int64(held[codes[low]] == 0)
            low += 1
        high = max(high, low)
        while high < ends[i]:
            if codes[high] >= 0:
                distinct += np.int64(held[codes[high]] == 0)
                held[codes[high]] += 1
            high += 1
        found[i] = distinct


@helper
def _recount(held, best, code, by):  # type: ignore[no-untyped-def]
    """Change the count of a code, and update the winners on the path to the tree's root; the lesser of two equal codes wins."""
    held[code] += by
    node = (len(held) + code) >> 1
    while node > 0:
        left, right = best[2 * node], best[2 * node + 1]
        best[node] = left if held[left] >= held[right] else right
        node >>= 1


@kernel(types.void(_I64, types.int64, _I64, _I64, _I64_OUT))
def slide_mode(codes, values, starts, ends, found):  # type: ignore[no-untyped-def]
    """Write the most frequent code of each frame [start, end), the least of several, or -1 if there is none.

    The array `best` is a tournament tree. The leaves are the codes, and node i has the winner of nodes 2 i and 2 i + 1.
    """
    leaves = np.int64(1)
    while leaves < values:
        leaves *= 2
    held, best = np.zeros(leaves, np.int64), np.zeros(2 * leaves, np.int64)
    for leaf in range(leaves):
        best[leaves + leaf] = leaf
    for step in range(1, leaves):
        best[leaves - step] = best[2 * (leaves - step)]
    low, high = np.int64(0), np.int64(0)
    for i in range(len(starts)):
        while low < starts[i]:
            if low < high and codes[low] >= 0:
                _recount(held, best, codes[low], -1)
            low += 1
        high = max(high, low)
        while high < ends[i]:
            if codes[high] >= 0:
                _recount(held, best, codes[high], 1)
            high += 1
        found[i] = best[1] if held[best[1]] > 0 else -1


@helper
def _count_rank(tree, rank, by):  # type: ignore[no-untyped-def]
    """Change the count of a rank in a Fenwick tree of partial sums.

    Slot i holds the sum of the last ranks up to i, as many as the value of i's lowest set bit.
    """
    at = rank + 1
    while at < len(tree):
        tree[at] += by
        at += at & -at


@helper
def _nth_rank(tree, wanted):  # type: ignore[no-untyped-def]
    """Return the rank that has `wanted` counted ranks below it; the tree must hold more ranks than that."""
    step = np.int64(1)
    while 2 * step < len(tree):
        step *= 2
    at, left = np.int64(0), wanted
    while step > 0:
        if at + step < len(tree) and tree[at + step] <= left:
            at += step
            left -= tree[at]
        step >>= 1
    return at


@kernel(types.void(_I64, types.int64, _I64, _I64, _I64, _I64_OUT, _I64_OUT))
def slide_nth(ranks, values, starts, ends, wanted, lower, upper):  # type: ignore[no-untyped-def]
    """Write the rank with number `wanted`, from 0, in the order of each frame [start, end) of `ranks` to `lower`.

    The rank after it is written to `upper`, or the same one if it is the frame's last. Ranks are distinct and below
    `values`; rows with a negative rank have no value. Both results are -1 if the frame has too few ranks.
    """
    tree = np.zeros(values + 1, np.int64)
    low, high, held = np.int64(0), np.int64(0), np.int64(0)
    for i in range(len(starts)):
        while low < starts[i]:
            if low < high and ranks[low] >= 0:
                _count_rank(tree, ranks[low], -1)
                held -= 1
            low += 1
        high = max(high, low)
        while high < ends[i]:
            if ranks[high] >= 0:
                _count_rank(tree, ranks[high], 1)
                held += 1
            high += 1
        lower[i], upper[i] = -1, -1
        if wanted[i] < held:
            lower[i] = _nth_rank(tree, wanted[i])
            upper[i] = _nth_rank(tree, wanted[i] + 1) if wanted[i] + 1 < held else lower[i]

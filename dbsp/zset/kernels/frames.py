"""Kernels that slide a frame over sorted rows."""

from __future__ import annotations

import numpy as np
from numba import types

from dbsp.zset.kernels.kernel import kernel, reads, writes

_I64, _I64_OUT = reads(types.int64), writes(types.int64)


@kernel(types.void(_I64, _I64, _I64, _I64_OUT))
def slide_least(ranks, starts, ends, found):  # type: ignore[no-untyped-def]
    """Where the least rank of each frame [start, end) is, -1 if it has none; a negative rank is no value.

    Neither starts nor ends ever go back, so each row is looked at twice: the queue holds, in order of place and of rank,
    the rows that a later frame may still want.
    """
    queue = np.empty(len(ranks), np.int64)
    head, tail, high = np.int64(0), np.int64(0), np.int64(0)
    for i in range(len(starts)):
        high = max(high, starts[i])
        while high < ends[i]:
            if ranks[high] >= 0:
                while tail > head and ranks[queue[tail - 1]] > ranks[high]:
                    tail -= 1
                queue[tail] = high
                tail += 1
            high += 1
        while head < tail and queue[head] < starts[i]:
            head += 1
        found[i] = queue[head] if head < tail else -1

"""Kernels that add weights exactly: a sum that exceeds 64 bits is reported, never wrapped.

Carries are counted, so that overflow does not depend on the order of the terms.
"""

from __future__ import annotations

import numpy as np
from numba import types

from dbsp.zset.kernels.kernel import helper, kernel, reads, writes

_I64, _I64_OUT = reads(types.int64), writes(types.int64)
_W, _W_OUT = reads(types.int64, 2), writes(types.int64, 2)
_FLAGS = reads(types.uint8)
_WEIGHT_END = np.int64(1 << 30)
_LOW = np.int64((1 << 32) - 1)


@helper
def _carry(left, right, total):  # type: ignore[no-untyped-def]
    """Return the multiple of 2**64 that `total`, the wrapped sum of two numbers, lacks: -1, 0 or 1."""
    if ((left ^ total) & (right ^ total)) >= 0:
        return 0
    return 1 if right > 0 else -1


@kernel(types.boolean(_W, _I64, _I64, _W_OUT))
def sum_runs_at(weights, order, starts, out):  # type: ignore[no-untyped-def]
    """Write the sums of the weights `weights[order[i]]` of each run; return False if a sum overflows."""
    runs = len(starts)
    exact = True
    for r in range(runs):
        end = starts[r + 1] if r + 1 < runs else len(order)
        for c in range(weights.shape[1]):
            total = np.int64(0)
            carry = 0
            for i in range(starts[r], end):
                term = weights[order[i], c]
                after = total + term
                carry += _carry(total, term, after)
                total = after
            out[r, c] = total
            exact = exact and carry == 0
    return exact


@kernel(types.boolean(_W, _I64, _W_OUT))
def sum_runs(weights, starts, out):  # type: ignore[no-untyped-def]
    """Write the sums of the weights of each run of neighbours; return False if a sum overflows."""
    runs = len(starts)
    exact = True
    for r in range(runs):
        end = starts[r + 1] if r + 1 < runs else len(weights)
        for c in range(weights.shape[1]):
            total = np.int64(0)
            carry = 0
            for i in range(starts[r], end):
                term = weights[i, c]
                after = total + term
                carry += _carry(total, term, after)
                total = after
            out[r, c] = total
            exact = exact and carry == 0
    return exact


@kernel(types.int64(_W, _I64, _FLAGS, _I64_OUT, _W_OUT))
def reduce_runs(weights, order, fresh, positions, out):  # type: ignore[no-untyped-def]
    """Add the weights `weights[order[i]]` of each run, and list the starts of runs whose sums are not all zero.

    `fresh[i]` marks that a run starts at i. Return the number of listed runs, or -1 for an overflow.
    """
    n, width = weights.shape
    carries = np.zeros(width, np.int64)
    count = 0
    i = 0
    while i < n:
        positions[count] = i
        for c in range(width):
            out[count, c] = weights[order[i], c]
        i += 1
        while i < n and not fresh[i]:
            for c in range(width):
                before, term = out[count, c], weights[order[i], c]
                after = before + term
                carries[c] += _carry(before, term, after)
                out[count, c] = after
            i += 1
        any_set = np.int64(0)
        for c in range(width):
            any_set |= out[count, c]
            if carries[c] != 0:
                return -1
        count += any_set != 0
    return count


@kernel(types.int64(_W, _I64, _FLAGS, _I64_OUT, _W_OUT))
def reduce_runs_of_one(weights, order, fresh, positions, out):  # type: ignore[no-untyped-def]
    """Do the work of `reduce_runs` for one weight per row, without branches, because run ends cannot be predicted."""
    count, start = np.int64(0), np.int64(0)
    total, carry, wrong = np.int64(0), np.int64(0), np.int64(0)
    for i in range(len(order)):
        term = weights[order[i], 0]
        begins = np.int64(fresh[i])
        # A new run closes the previous one: its slot is kept if its total is not zero, and overwritten otherwise.
        count += begins & np.int64(total != 0)
        wrong |= begins * carry
        kept = begins - 1  # all bits set while the run continues, none at its start
        start += (i - start) * begins
        total &= kept
        after = total + term
        # The shift gives -1 if the sum wrapped, else 0; the carry then changes by the sign of the term.
        overflow = ((total ^ after) & (term ^ after)) >> 63
        carry = (carry & kept) - overflow * ((term >> 63) | 1)
        total = after
        positions[count] = start
        out[count, 0] = total
    return -1 if wrong | carry else count + (total != 0)


@kernel(types.boolean(_W_OUT, _I64, _W))
def scatter_add(out, rows, weights):  # type: ignore[no-untyped-def]
    """Add `weights[i]` to `out[rows[i]]`; return False if an intermediate sum overflows."""
    exact = True
    for i in range(len(rows)):
        row = rows[i]
        for c in range(out.shape[1]):
            before = out[row, c]
            after = before + weights[i, c]
            exact = exact and _carry(before, weights[i, c], after) == 0
            out[row, c] = after
    return exact


@kernel(types.boolean(_I64, _I64, _I64_OUT))
def add_by_group(values, group, out):  # type: ignore[no-untyped-def]
    """Add `values[i]` to `out[group[i]]`; return False if an intermediate sum overflows."""
    wrong = np.int64(0)  # its sign bit collects overflows: one test at the end instead of a branch per row
    for i in range(len(group)):
        before, term = out[group[i]], values[i]
        after = before + term
        wrong |= (before ^ after) & (term ^ after)
        out[group[i]] = after
    return wrong >= 0


@kernel(types.void(_FLAGS, _W, _I64, _I64, _W_OUT))
def add_pairs(marks, pairs, weight, group, out):  # type: ignore[no-untyped-def]
    """Add `weight[i]` times the words `pairs[marks[i]]` to `out[group[i]]`, without a check for overflow."""
    for i in range(len(group)):
        at, mark, term = group[i], marks[i], weight[i]
        for word in range(out.shape[1]):
            out[at, word] += pairs[mark, word] * term


@kernel(types.boolean(_I64, _I64, _I64, _W_OUT))
def add_halves(values, weight, group, out):  # type: ignore[no-untyped-def]
    """Add the weighted low 32 bits of each value to `out[0, group[i]]`, and the high bits, with the sign, to `out[1]`.

    Return False if an intermediate sum overflows, or a weight exceeds 31 bits.
    """
    wrong = np.int64(0)
    for i in range(len(group)):
        g, value, times = group[i], values[i], weight[i]
        low, high = (value & np.int64(0xFFFFFFFF)) * times, (value >> 32) * times
        before, before_high = out[0, g], out[1, g]
        after, after_high = before + low, before_high + high
        wrong |= ((before ^ after) & (low ^ after)) | ((before_high ^ after_high) & (high ^ after_high))
        wrong |= -np.int64((times + _WEIGHT_END) >> 31 != 0)
        out[0, g], out[1, g] = after, after_high
    return wrong >= 0


@kernel(types.int64(_W, _I64_OUT))
def nonzero_rows(weights, out):  # type: ignore[no-untyped-def]
    """Write the numbers of the rows with a weight that is not zero; return their count."""
    count = 0
    for i in range(len(weights)):
        any_set = np.int64(0)
        for c in range(weights.shape[1]):
            any_set |= weights[i, c]
        out[count] = i
        count += any_set != 0
    return count


@kernel(types.void(_I64, types.int64, _W_OUT))
def lay_halves(numbers, at, out):  # type: ignore[no-untyped-def]
    """Write the low halves as weight `at`, and the high halves as the next weight."""
    for i in range(len(numbers)):
        out[i, at] = numbers[i] & _LOW
        out[i, at + 1] = numbers[i] >> 32


@kernel(types.void(_W, _W, types.int64, types.boolean, _W_OUT))
def move_end(old, change, at, most, out):  # type: ignore[no-untyped-def]
    """Write the distance that the extreme moves whose halves begin at weight `at`."""
    for i in range(len(out)):
        before = (old[i, at + 1] << 32) | old[i, at]
        came = (change[i, at + 1] << 32) | change[i, at]
        end = before
        if change[i, 0] != 0 and (old[i, 0] == 0 or (came > before if most else came < before)):
            end = came
        out[i, at] = (end & _LOW) - old[i, at]
        out[i, at + 1] = (end >> 32) - old[i, at + 1]

"""Kernels that add floats exactly: mantissas are split over bins of fixed exponents, and the sum is rounded once.

A finite float is m * 2**(k - 1074) with integers m < 2**53 and k in [0, 2046). Bin b holds multiples of 2**(32 b -
1074). The bits of `m << (k mod 32)` are added to bins `k // 32` and the two above. They are added as whole numbers with
the float's sign, times the weight. Bins are sums of 64-bit integers, so a sum does not depend on the order of its
terms, and a retraction cancels exactly. Four more bins count NaNs, both infinities, and all values.

Source: Neal, "Fast exact summation using small and large superaccumulators" (2015), for the idea of the bins.
"""

from __future__ import annotations

import math

import numpy as np
from numba import types

from dbsp.zset.kernels.kernel import helper, kernel, reads, writes

COUNT, NANS, PLUS_INFINITIES, MINUS_INFINITIES = -1, -2, -3, -4
SPECIALS = 4
BINS = 66
SLOTS = SPECIALS + BINS
_LIMBS = BINS + 3
_DIVISOR_MAX = 1 << 47
"""Limit of divisors: a smaller remainder leaves 16 bits of a 64-bit word free for the next digit."""
_ENOUGH_LIMBS = 4
"""Limbs of 32 bits that decide a float.

The first may have one bit, so the others cover the 53 bits and the bit for rounding.
"""

_I64, _I64_OUT = reads(types.int64), writes(types.int64)
_W, _W_OUT = reads(types.int64, 2), writes(types.int64, 2)
_FLAG, _FLAGS = reads(types.boolean), reads(types.boolean, 2)
_I16, _I16_OUT = reads(types.int16), writes(types.int16)
_F64_OUT = writes(types.float64)

_LOW = 0xFFFFFFFF
_FRACTION = (1 << 52) - 1
# A row adds less than 2**33 times its weight to a bin, so with these bounds no bin of 64 bits can wrap.
_WEIGHT_MAX = 1 << 29
_SUM_MAX = 1 << 62


@helper
def _add(sums, slot, term):  # type: ignore[no-untyped-def]
    """Add a term to a bin; return False if the bin nears the limit of 64 bits."""
    sums[slot] += term
    return -_SUM_MAX < sums[slot] < _SUM_MAX


@helper
def _add_value(sums, bits, weight):  # type: ignore[no-untyped-def]
    """Add a float, given by its bits, `weight` times; return the lowest finite bin it touched, or -1, or -2 on overflow."""
    if not _add(sums, SPECIALS + COUNT, weight):
        return -2
    exponent = (bits >> 52) & 0x7FF
    fraction = bits & _FRACTION
    if exponent == 0x7FF:  # noqa: PLR2004 (the exponent of what is no finite number)
        special = NANS if fraction != 0 else (MINUS_INFINITIES if bits < 0 else PLUS_INFINITIES)
        return -1 if _add(sums, SPECIALS + special, weight) else -2
    if exponent == 0:
        mantissa, place = fraction, 0
    else:
        mantissa, place = fraction | (1 << 52), exponent - 1
    if mantissa == 0:
        return -1
    if bits < 0:
        weight = -weight
    first, shift = place >> 5, place & 31
    low = (mantissa & _LOW) << shift
    high = (mantissa >> 32) << shift
    slot = SPECIALS + first
    fits = _add(sums, slot, (low & _LOW) * weight)
    fits = _add(sums, slot + 1, ((low >> 32) + (high & _LOW)) * weight) and fits
    fits = _add(sums, slot + 2, (high >> 32) * weight) and fits
    return first if fits else -2


@helper
def _add_row(work, values, valid, weight, row):  # type: ignore[no-untyped-def]
    """Add a row's values to the bins of its group; return the range of finite bins touched, (0, -3) on overflow."""
    least, most = BINS, -1
    if not -_WEIGHT_MAX < weight[row] < _WEIGHT_MAX:
        return 0, -3
    for c in range(len(values)):
        if valid[c, row]:
            first = _add_value(work[c], values[c, row], weight[row])
            if first == -2:  # noqa: PLR2004 (overflow)
                return 0, -3
            if first >= 0:
                least = min(least, first)
                most = max(most, first + 2)
    return least, most


@helper
def _write_bin(work, slot, sums, row):  # type: ignore[no-untyped-def]
    """Move a bin of every column out of the work space; return whether one of them is not zero."""
    some = False
    for c in range(len(work)):
        sums[row, c] = work[c, slot]
        some = some or work[c, slot] != 0
        work[c, slot] = 0
    return some


@kernel(types.int64(_W, _FLAGS, _I64, _I64, _I64, _I64_OUT, _I16_OUT, _W_OUT))
def sum_bins(values, valid, weight, order, starts, group, bin_, sums):  # type: ignore[no-untyped-def]  # noqa: PLR0917
    """Write the bins of each run of rows, given values (f, n) as the bits of floats.

    Return the number of (group, bin) rows, or -1 on overflow.
    """
    work = np.zeros((len(values), SLOTS), np.int64)
    count = 0
    for g in range(len(starts)):
        end = starts[g + 1] if g + 1 < len(starts) else len(order)
        least, most = BINS, -1
        for i in range(starts[g], end):
            low, high = _add_row(work, values, valid, weight, order[i])
            if high == -3:  # noqa: PLR2004 (overflow)
                return -1
            least = min(least, low)
            most = max(most, high)
        for slot in range(SPECIALS + most + 1):
            touched = slot < SPECIALS or slot >= SPECIALS + least
            if touched and _write_bin(work, slot, sums, count):
                group[count] = g
                bin_[count] = slot - SPECIALS
                count += 1
    return count


@helper
def _length(word):  # type: ignore[no-untyped-def]
    """Return the number of bits of a non-negative number."""
    length = 0
    while word:
        word >>= 1
        length += 1
    return length


@helper
def _carried(sums, limbs):  # type: ignore[no-untyped-def]
    """Write the magnitude of the bins' total as limbs of 32 bits; return True if the total is negative."""
    carry = np.int64(0)
    for b in range(_LIMBS):
        total = carry + (sums[SPECIALS + b] if b < BINS else 0)
        limbs[b] = total & _LOW
        carry = total >> 32
    if carry >= 0:
        return False
    carry = np.int64(1)
    for b in range(_LIMBS):
        total = (limbs[b] ^ _LOW) + carry
        limbs[b] = total & _LOW
        carry = total >> 32
    return True


@helper
def _top(limbs):  # type: ignore[no-untyped-def]
    """Return the highest limb that is not zero, or -1."""
    top = _LIMBS - 1
    while top >= 0 and limbs[top] == 0:
        top -= 1
    return top


@helper
def _divided(limbs, divisor):  # type: ignore[no-untyped-def]
    """Divide the magnitude in place by a number less than `_DIVISOR_MAX`; return the remainder.

    The quotient is cut after more limbs than a float needs. Its last bit then says whether the discarded part was not
    zero, which is all that rounding needs.
    """
    at, made, rest = _top(limbs), 0, np.int64(0)
    while at >= 0 and made < _ENOUGH_LIMBS:
        # Halves of 16 bits: the remainder, below _DIVISOR_MAX, leaves room for no more beside it.
        high = (rest << 16) | (limbs[at] >> 16)
        low = ((high % divisor) << 16) | (limbs[at] & 0xFFFF)
        limbs[at] = ((high // divisor) << 16) | (low // divisor)
        rest = low % divisor
        made += 1 if made or limbs[at] else 0
        at -= 1
    if at < 0:
        return rest
    more = rest
    while at >= 0:
        more |= limbs[at]
        limbs[at] = 0
        at -= 1
    if more:
        limbs[0] = 1
    return np.int64(0)


@helper
def _rounded(limbs, rest, divisor):  # type: ignore[no-untyped-def]
    """Return the magnitude plus `rest / divisor` of its last unit as the nearest float, ties to even."""
    top = _top(limbs)
    dropped = 32 * top + _length(limbs[top]) - 53 if top >= 0 else 0
    if dropped <= 0:
        units = limbs[0] | (limbs[1] << 32)
        if 2 * rest > divisor or (2 * rest == divisor and units & 1):
            units += 1
        return math.ldexp(np.float64(units), -1074)
    word, shift = dropped >> 5, dropped & 31
    mantissa = (limbs[word] >> shift) | (limbs[word + 1] << (32 - shift))
    if shift:
        mantissa |= (limbs[word + 2] & ((1 << shift) - 1)) << (64 - shift)
    mantissa &= (1 << 53) - 1
    word, shift = (dropped - 1) >> 5, (dropped - 1) & 31
    if (limbs[word] >> shift) & 1:
        rest |= limbs[word] & ((1 << shift) - 1)
        for b in range(word):
            rest |= limbs[b]
        if rest != 0 or mantissa & 1:
            mantissa += 1
    return math.ldexp(np.float64(mantissa), dropped - 1074)


@helper
def _total(sums, limbs, mean):  # type: ignore[no-untyped-def]
    """Return the sum of the values in the bins, or their `mean`, rounded once."""
    count = sums[SPECIALS + COUNT]
    divisor = np.int64(1)
    if mean and count != 0:
        divisor = abs(count)
    plus, minus = sums[SPECIALS + PLUS_INFINITIES] != 0, sums[SPECIALS + MINUS_INFINITIES] != 0
    if sums[SPECIALS + NANS] != 0 or (plus and minus):
        return np.nan
    turned = mean and count < 0
    if plus or minus:
        return np.inf if plus != turned else -np.inf
    negative = _carried(sums, limbs) != turned
    rest = np.int64(0)
    if divisor > 1:
        rest = _divided(limbs, divisor)
    magnitude = _rounded(limbs, rest, divisor)
    return -magnitude if negative else magnitude


@kernel(types.boolean(_I64, _I64, _I16, _I64, types.boolean, _F64_OUT, _I64_OUT))
def round_bins(order, offsets, bin_, sums, mean, total, count):  # type: ignore[no-untyped-def]
    """Write each group's sum, or `mean`, and number of values, out of rows `order[offsets[g]:offsets[g + 1]]`.

    Return False on overflow.
    """
    work = np.zeros(SLOTS, np.int64)
    limbs = np.zeros(_LIMBS + 3, np.int64)
    for g in range(len(total)):
        work[:] = 0
        for i in range(offsets[g], offsets[g + 1]):
            row = order[i]
            if not _add(work, SPECIALS + bin_[row], sums[row]):
                return False
        if mean and abs(work[SPECIALS + COUNT]) >= _DIVISOR_MAX:
            return False
        total[g] = _total(work, limbs, mean)
        count[g] = work[SPECIALS + COUNT]
    return True


@helper
def _exchange(work, beyond, which, i):  # type: ignore[no-untyped-def]
    """Replace the previous frame's row of `beyond` in the bins by this frame's row, if they differ."""
    if i > 0 and which[i] == which[i - 1]:
        return
    for slot in range(SLOTS):
        work[slot] += beyond[which[i], slot] - (beyond[which[i - 1], slot] if i > 0 else 0)


@kernel(types.boolean(_I64, _FLAG, _I64, _I64, _I64, _W, types.boolean, _F64_OUT, _I64_OUT))
def slide_bins(values, valid, starts, ends, which, beyond, mean, total, count):  # type: ignore[no-untyped-def]  # noqa: PLR0913, PLR0917
    """Write the sum, or `mean`, and the number of values of each frame [start, end); return False on overflow.

    Starts and ends never decrease. Row `which[i]` of `beyond` holds the bins of further values of frame i.
    """
    work = np.zeros(SLOTS, np.int64)
    limbs = np.zeros(_LIMBS + 3, np.int64)
    low, high = np.int64(0), np.int64(0)
    for i in range(len(starts)):
        _exchange(work, beyond, which, i)
        while low < starts[i]:
            if low < high and valid[low] and _add_value(work, values[low], -1) == -2:  # noqa: PLR2004 (overflow)
                return False
            low += 1
        high = max(high, low)
        while high < ends[i]:
            if valid[high] and _add_value(work, values[high], 1) == -2:  # noqa: PLR2004 (overflow)
                return False
            high += 1
        if mean and abs(work[SPECIALS + COUNT]) >= _DIVISOR_MAX:
            return False
        total[i] = _total(work, limbs, mean)
        count[i] = work[SPECIALS + COUNT]
    return True

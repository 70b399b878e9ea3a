"""Kernels for variances that are exact until they are rounded once: sums of squares in bins, and the division of long numbers.

The square of a float m * 2**(k - 1074) is m**2 * 2**(2 k - 2148): its 106 bits go to bins of 32 bits, as those of a sum do
(`floats`), with the weight. From the number of values n, their sum S and the sum of their squares Q, all exact, the variance
is (n Q - S**2) / (n (n - d)); its numerator is computed as a long number, divided limb by limb and rounded to the nearest.

Source: the identity; Knuth, The Art of Computer Programming, 4.3.1, for division by a short number.
"""

from __future__ import annotations

import math

import numpy as np
from numba import types

from dbsp.zset.kernels.kernel import helper, kernel, reads, writes

COUNT, NANS, PLUS_INFINITIES, MINUS_INFINITIES = -1, -2, -3, -4
SPECIALS = 4
BINS = 134
SLOTS = SPECIALS + BINS
LIMBS = BINS + 10
ROWS_MAX = 1 << 31

_I64, _I64_OUT = reads(types.int64), writes(types.int64)
_W, _W_OUT = reads(types.int64, 2), writes(types.int64, 2)
_FLAGS = reads(types.boolean)
_I16, _I16_OUT = reads(types.int16), writes(types.int16)
_F64_OUT = writes(types.float64)

_LOW = 0xFFFFFFFF
_FRACTION = (1 << 52) - 1
_WEIGHT_MAX = 1 << 29
_SUM_MAX = 1 << 62


@helper
def _add(sums, slot, term):  # type: ignore[no-untyped-def]
    """Add a term to a bin; False where the bin comes near the end of 64 bits."""
    sums[slot] += term
    return -_SUM_MAX < sums[slot] < _SUM_MAX


@helper
def _add_bits(sums, first, mantissa, shift, weight):  # type: ignore[no-untyped-def]
    """Add mantissa * 2**shift, shift below 32, to the bins from `first` on; the mantissa is below 2**53."""
    low, high = (mantissa & _LOW) << shift, (mantissa >> 32) << shift
    fits = _add(sums, first, (low & _LOW) * weight)
    fits = _add(sums, first + 1, ((low >> 32) + (high & _LOW)) * weight) and fits
    return _add(sums, first + 2, (high >> 32) * weight) and fits


@helper
def _add_square(sums, mantissa, place, weight):  # type: ignore[no-untyped-def]
    """Add mantissa**2 * 2**place, by parts of the mantissa, so that each product is below 2**53."""
    low, high = mantissa & ((1 << 26) - 1), mantissa >> 26
    fits = _add_bits(sums, SPECIALS + (place >> 5), low * low, place & 31, weight)
    middle = place + 27
    fits = _add_bits(sums, SPECIALS + (middle >> 5), low * high, middle & 31, weight) and fits
    top = place + 52
    part = high * (high & ((1 << 13) - 1))
    fits = _add_bits(sums, SPECIALS + (top >> 5), part, top & 31, weight) and fits
    top += 13
    return _add_bits(sums, SPECIALS + (top >> 5), high * (high >> 13), top & 31, weight) and fits


@helper
def _add_value(sums, squares, bits, weight):  # type: ignore[no-untyped-def]
    """Add a float, given by its bits, and its square, `weight` times; the last bin touched, -2 on overflow."""
    if not _add(sums, SPECIALS + COUNT, weight):
        return -2
    exponent = (bits >> 52) & 0x7FF
    fraction = bits & _FRACTION
    if exponent == 0x7FF:  # noqa: PLR2004 (the exponent of what is no finite number)
        special = NANS if fraction != 0 else (MINUS_INFINITIES if bits < 0 else PLUS_INFINITIES)
        return -1 if _add(sums, SPECIALS + special, weight) else -2
    if exponent == 0:
        mantissa, place = fraction, np.int64(0)
    else:
        mantissa, place = fraction | (1 << 52), exponent - 1
    if mantissa == 0:
        return -1
    signed = -weight if bits < 0 else weight
    fits = _add_bits(sums, SPECIALS + (place >> 5), mantissa, place & 31, signed)
    fits = _add_square(squares, mantissa, 2 * place, weight) and fits
    return ((2 * place + 65) >> 5) + 2 if fits else -2


@kernel(types.int64(_I64, _FLAGS, _I64, _I64, _I64, _I64_OUT, _I16_OUT, _W_OUT))
def square_bins(values, valid, weight, order, starts, group, bin_, sums):  # type: ignore[no-untyped-def]  # noqa: PLR0917
    """The bins of values and squares of each run of rows; how many (group, bin) rows, -1 on overflow."""
    ones, squares = np.zeros(SLOTS, np.int64), np.zeros(SLOTS, np.int64)
    count = 0
    for g in range(len(starts)):
        end = starts[g + 1] if g + 1 < len(starts) else len(order)
        most = -1
        for i in range(starts[g], end):
            row = order[i]
            if not -_WEIGHT_MAX < weight[row] < _WEIGHT_MAX:
                return -1
            if valid[row]:
                last = _add_value(ones, squares, values[row], weight[row])
                if last == -2:  # noqa: PLR2004 (overflow)
                    return -1
                most = max(most, last)
        for slot in range(SPECIALS + most + 1):
            if ones[slot] != 0 or squares[slot] != 0:
                group[count], bin_[count] = g, slot - SPECIALS
                sums[count, 0], sums[count, 1] = ones[slot], squares[slot]
                ones[slot], squares[slot] = 0, 0
                count += 1
    return count


@helper
def _carry(sums, first, count, limbs):  # type: ignore[no-untyped-def]
    """Write the magnitude of sums of limbs as limbs of 32 bits; how many are used."""
    negative = False
    for turn in range(2):
        carry = np.int64(0)
        for b in range(LIMBS):
            term = sums[first + b] if b < count else np.int64(0)
            total = carry + (-term if negative else term)
            limbs[b] = np.uint64(total & _LOW)
            carry = total >> 32
        if turn == 0 and carry >= 0:
            break
        negative = True
    used = LIMBS
    while used > 0 and limbs[used - 1] == 0:
        used -= 1
    return used


@helper
def _numerator(total, total_used, squares, squares_used, n, result):  # type: ignore[no-untyped-def]
    """n * squares - total**2 as limbs; how many are used, 0 where it is not positive."""
    low = np.uint64(_LOW)
    carry = np.uint64(0)
    for b in range(len(result)):
        term = carry
        if b < squares_used:
            term += squares[b] * np.uint64(n)
        result[b] = term & low
        carry = term >> np.uint64(32)
    for i in range(total_used):
        if total[i] == 0:
            continue
        carry, borrow = np.uint64(0), np.int64(0)
        for b in range(i, len(result)):
            if b - i >= total_used and carry == 0 and borrow == 0:
                break
            term = carry
            if b - i < total_used:
                term += total[i] * total[b - i]
            carry = term >> np.uint64(32)
            left = np.int64(result[b]) - np.int64(term & low) - borrow
            borrow = np.int64(1) if left < 0 else np.int64(0)
            result[b] = np.uint64(left & _LOW)
        if borrow:
            return 0
    used = len(result)
    while used > 0 and result[used - 1] == 0:
        used -= 1
    return used


@helper
def _divide(limbs, used, divisor):  # type: ignore[no-untyped-def]
    """Divide in place by a number below 2**31; whether something was left over."""
    rest = np.uint64(0)
    for step in range(used):
        b = used - 1 - step
        term = (rest << np.uint64(32)) | limbs[b]
        limbs[b] = term // np.uint64(divisor)
        rest = term % np.uint64(divisor)
    return rest != 0


@helper
def _bit(limbs, at):  # type: ignore[no-untyped-def]
    """One bit of a long number."""
    return (limbs[at >> 5] >> np.uint64(at & 31)) & np.uint64(1)


@helper
def _nearest(limbs, used, sticky, exponent):  # type: ignore[no-untyped-def]
    """limbs * 2**exponent as the nearest float, ties to even; `sticky` if a little more than that."""
    while used > 0 and limbs[used - 1] == 0:
        used -= 1
    if used == 0:
        return 0.0
    length = 32 * used
    while _bit(limbs, length - 1) == 0:
        length -= 1
    dropped = max(length - 53, -1074 - exponent, 0)
    mantissa = np.int64(0)
    for at in range(length - 1, dropped - 1, -1):
        mantissa = (mantissa << 1) | np.int64(_bit(limbs, at))
    if dropped > 0 and dropped <= length and _bit(limbs, dropped - 1) == 1:
        below = sticky
        for at in range(dropped - 1):
            if below:
                break
            below = _bit(limbs, at) == 1
        if below or mantissa & 1:
            mantissa += 1
    return math.ldexp(np.float64(mantissa), dropped + exponent)


@helper
def _variance(total, total_used, squares, squares_used, n, less, work, shift, digits, exponent):  # type: ignore[no-untyped-def]  # noqa: PLR0913, PLR0917
    """(n squares - total**2) / (n (n - less) 10**digits), times 2**exponent; `shift` limbs of fraction are kept."""
    used = _numerator(total, total_used, squares, squares_used, n, work)
    if used == 0:
        return 0.0
    if shift:
        for step in range(used):
            b = used - 1 - step
            work[b + shift] = work[b]
        for b in range(shift):
            work[b] = 0
        used += shift
    sticky = _divide(work, used, n)
    sticky = _divide(work, used, n - less) or sticky
    while digits > 0:
        step = min(digits, 9)
        sticky = _divide(work, used, 10**step) or sticky
        digits -= step
    return _nearest(work, used, sticky, exponent - 32 * shift)


@kernel(types.boolean(_I64, _I64, _I16, _W, types.int64, _F64_OUT, _I64_OUT))
def bin_variances(order, offsets, bin_, sums, less, result, count):  # type: ignore[no-untyped-def]
    """Per group the variance and the number of values out of its (bin, sums) rows; False on overflow."""
    ones, squares = np.zeros(SLOTS, np.int64), np.zeros(SLOTS, np.int64)
    total, square = np.zeros(LIMBS, np.uint64), np.zeros(LIMBS, np.uint64)
    work = np.zeros(LIMBS + 4, np.uint64)
    for g in range(len(result)):
        ones[:] = 0
        squares[:] = 0
        for i in range(offsets[g], offsets[g + 1]):
            row = order[i]
            slot = SPECIALS + bin_[row]
            if not (_add(ones, slot, sums[row, 0]) and _add(squares, slot, sums[row, 1])):
                return False
        n = ones[SPECIALS + COUNT]
        count[g] = n
        result[g] = 0.0
        special = ones[SPECIALS + NANS] != 0 or ones[SPECIALS + PLUS_INFINITIES] != 0
        if n >= ROWS_MAX:
            return False
        if special or ones[SPECIALS + MINUS_INFINITIES] != 0:
            result[g] = np.nan
        elif n > less:
            used = _carry(ones, SPECIALS, BINS, total)
            squares_used = _carry(squares, SPECIALS, BINS, square)
            result[g] = _variance(total, used, square, squares_used, n, less, work, 0, 0, -2148)
    return True


@kernel(types.boolean(_I64, _W, _W, types.int64, types.int64, _F64_OUT))
def limb_variances(count, sums, squares, less, scale, result):  # type: ignore[no-untyped-def]
    """Per row the variance of whole numbers with `scale` decimal places, out of limbs of sums; False with too many values."""
    total, square = np.zeros(LIMBS, np.uint64), np.zeros(LIMBS, np.uint64)
    work = np.zeros(LIMBS + 4, np.uint64)
    one, two = np.zeros(sums.shape[1], np.int64), np.zeros(squares.shape[1], np.int64)
    for g in range(len(count)):
        result[g] = 0.0
        if count[g] >= ROWS_MAX:
            return False
        if count[g] <= less:
            continue
        one[:] = sums[g]
        two[:] = squares[g]
        used, squares_used = _carry(one, 0, len(one), total), _carry(two, 0, len(two), square)
        shift = 4 + (2 * scale + 8) // 9
        result[g] = _variance(total, used, square, squares_used, count[g], less, work, shift, 2 * scale, 0)
    return True

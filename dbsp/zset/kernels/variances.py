"""Kernels for variances and covariances that are exact until rounded: sums of products in bins, and long integers.

The square of a float m * 2**(k - 1074) is m**2 * 2**(2 k - 2148). Its 106 bits are added to bins of 32 bits, times the
weight, as in `floats`. The number of values n, their sum S and the sum of their squares Q are exact. The variance is
`(n Q - S**2) / (n (n - d))`. Its numerator is computed as a long integer, divided limb by limb and rounded to the
nearest float. For two columns the products of pairs are summed too, and regression needs differences of two products of
such sums.

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
LONG = 2 * LIMBS
X, Y, XX, YY, XY = range(5)
"""The indices of the five sums over pairs: of x, y, x squared, y squared, and x times y."""
MOMENTS = 4
ROWS_MAX = 1 << 31

_I64, _I64_OUT = reads(types.int64), writes(types.int64)
_W, _W_OUT = reads(types.int64, 2), writes(types.int64, 2)
_FLAGS = reads(types.boolean)
_I16, _I16_OUT = reads(types.int16), writes(types.int16)
_F64_OUT = writes(types.float64)
_WF_OUT = writes(types.float64, 2)

_LOW = 0xFFFFFFFF
_FRACTION = (1 << 52) - 1
_WEIGHT_MAX = 1 << 29
_SUM_MAX = 1 << 62


@helper
def _add(sums, slot, term):  # type: ignore[no-untyped-def]
    """Add a term to a bin; return False if the bin nears the limit of 64 bits."""
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
def _parts(bits):  # type: ignore[no-untyped-def]
    """Return a float's kind of special value (0: none), its mantissa, and the k of its lowest bit 2**(k - 1074)."""
    exponent = (bits >> 52) & 0x7FF
    fraction = bits & _FRACTION
    if exponent == 0x7FF:  # noqa: PLR2004 (the exponent of what is no finite number)
        return NANS if fraction != 0 else (MINUS_INFINITIES if bits < 0 else PLUS_INFINITIES), np.int64(0), np.int64(0)
    return (0, fraction, np.int64(0)) if exponent == 0 else (0, fraction | (1 << 52), exponent - 1)


@helper
def _add_one(values, squares, bits, weight):  # type: ignore[no-untyped-def]
    """Add a float, given by its bits, and its square, `weight` times; return the last bin touched, -2 on overflow."""
    special, mantissa, place = _parts(bits)
    if special != 0:
        return -1 if _add(values, SPECIALS + special, weight) else -2
    if mantissa == 0:
        return -1
    fits = _add_bits(values, SPECIALS + (place >> 5), mantissa, place & 31, -weight if bits < 0 else weight)
    fits = _add_square(squares, mantissa, 2 * place, weight) and fits
    return ((2 * place + 65) >> 5) + 2 if fits else -2


@helper
def _add_value(sums, squares, bits, weight):  # type: ignore[no-untyped-def]
    """Add a float and its square as `_add_one` does, and count the value."""
    return _add_one(sums, squares, bits, weight) if _add(sums, SPECIALS + COUNT, weight) else -2


@kernel(types.int64(_I64, _FLAGS, _I64, _I64, _I64, _I64_OUT, _I16_OUT, _W_OUT))
def square_bins(values, valid, weight, order, starts, group, bin_, sums):  # type: ignore[no-untyped-def]  # noqa: PLR0917
    """Write the bins of values and squares of each run of rows; return the number of (group, bin) rows, -1 on overflow."""
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
    """Write the magnitude of sums of limbs as limbs of 32 bits; return how many are used, and whether the sum is negative."""
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
    return used, negative


@helper
def _numerator(total, total_used, squares, squares_used, n, result):  # type: ignore[no-untyped-def]
    """Write n * squares - total**2 as limbs; return how many are used, 0 if the result is not positive."""
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
    """Divide in place by a number below 2**31; return whether there is a remainder."""
    rest = np.uint64(0)
    for step in range(used):
        b = used - 1 - step
        term = (rest << np.uint64(32)) | limbs[b]
        limbs[b] = term // np.uint64(divisor)
        rest = term % np.uint64(divisor)
    return rest != 0


@helper
def _bit(limbs, at):  # type: ignore[no-untyped-def]
    """Return one bit of a long integer."""
    return (limbs[at >> 5] >> np.uint64(at & 31)) & np.uint64(1)


@helper
def _nearest(limbs, used, sticky, exponent):  # type: ignore[no-untyped-def]
    """Return limbs * 2**exponent as the nearest float, ties to even; `sticky` says that the exact value is slightly larger."""
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
    """Return (n squares - total**2) / (n (n - less) 10**digits), times 2**exponent, with `shift` limbs of fraction."""
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


@helper
def _shown(ones, squares, less, total, square, work):  # type: ignore[no-untyped-def]
    """Return the variance of the values in the bins, 0 for too few values; there are fewer than ROWS_MAX values."""
    n = ones[SPECIALS + COUNT]
    special = ones[SPECIALS + NANS] != 0 or ones[SPECIALS + PLUS_INFINITIES] != 0
    if special or ones[SPECIALS + MINUS_INFINITIES] != 0:
        return np.nan
    if n <= less:
        return 0.0
    used, _ = _carry(ones, SPECIALS, BINS, total)
    squares_used, _ = _carry(squares, SPECIALS, BINS, square)
    return _variance(total, used, square, squares_used, n, less, work, 0, 0, -2148)


@helper
def _exchange(sums, beyond, first, which, i):  # type: ignore[no-untyped-def]
    """Replace the previous frame's row of `beyond` in the bins by this frame's row, with slots from `first` on."""
    if i > 0 and which[i] == which[i - 1]:
        return
    for slot in range(SLOTS):
        sums[slot] += beyond[which[i], first + slot] - (beyond[which[i - 1], first + slot] if i > 0 else 0)


@kernel(types.boolean(_I64, _FLAGS, _I64, _I64, _I64, _W, types.int64, _F64_OUT, _I64_OUT))
def slide_variances(values, valid, starts, ends, which, beyond, less, result, count):  # type: ignore[no-untyped-def]  # noqa: PLR0913, PLR0917
    """Write the variance and the number of values of each frame [start, end); return False on overflow.

    Starts and ends never decrease. Row `which[i]` of `beyond` holds the bins of further values of frame i, then those
    of their squares.
    """
    ones, squares = np.zeros(SLOTS, np.int64), np.zeros(SLOTS, np.int64)
    total, square = np.zeros(LIMBS, np.uint64), np.zeros(LIMBS, np.uint64)
    work = np.zeros(LIMBS + 4, np.uint64)
    low, high = np.int64(0), np.int64(0)
    for i in range(len(starts)):
        _exchange(ones, beyond, 0, which, i)
        _exchange(squares, beyond, SLOTS, which, i)
        while low < starts[i]:
            if low < high and valid[low] and _add_value(ones, squares, values[low], -1) == -2:  # noqa: PLR2004 (overflow)
                return False
            low += 1
        high = max(high, low)
        while high < ends[i]:
            if valid[high] and _add_value(ones, squares, values[high], 1) == -2:  # noqa: PLR2004 (overflow)
                return False
            high += 1
        count[i] = ones[SPECIALS + COUNT]
        if count[i] >= ROWS_MAX:
            return False
        result[i] = _shown(ones, squares, less, total, square, work)
    return True


@kernel(types.boolean(_I64, _I64, _I16, _W, types.int64, _F64_OUT, _I64_OUT))
def bin_variances(order, offsets, bin_, sums, less, result, count):  # type: ignore[no-untyped-def]
    """Write each group's variance and number of values out of its (bin, sums) rows; return False on overflow."""
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
        count[g] = ones[SPECIALS + COUNT]
        if count[g] >= ROWS_MAX:
            return False
        result[g] = _shown(ones, squares, less, total, square, work)
    return True


@kernel(types.boolean(_I64, _W, _W, types.int64, types.int64, _F64_OUT))
def limb_variances(count, sums, squares, less, scale, result):  # type: ignore[no-untyped-def]
    """Write each row's variance of numbers with `scale` decimal places, from sums as limbs; return False for too many values."""
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
        used, _ = _carry(one, 0, len(one), total)
        squares_used, _ = _carry(two, 0, len(two), square)
        shift = 4 + (2 * scale + 8) // 9
        result[g] = _variance(total, used, square, squares_used, count[g], less, work, shift, 2 * scale, 0)
    return True


@helper
def _add_product(sums, left, right, place, weight):  # type: ignore[no-untyped-def]
    """Add left * right * 2**place of two mantissas, by parts of 26 and 27 bits, so that each product is at most 2**54."""
    mask = (1 << 26) - 1
    low, high, other_low, other_high = left & mask, left >> 26, right & mask, right >> 26
    fits = _add_bits(sums, SPECIALS + (place >> 5), low * other_low, place & 31, weight)
    middle = place + 26
    fits = _add_bits(sums, SPECIALS + (middle >> 5), low * other_high, middle & 31, weight) and fits
    fits = _add_bits(sums, SPECIALS + (middle >> 5), high * other_low, middle & 31, weight) and fits
    top = place + 52
    part = high * (other_high & ((1 << 13) - 1))
    fits = _add_bits(sums, SPECIALS + (top >> 5), part, top & 31, weight) and fits
    top += 13
    return _add_bits(sums, SPECIALS + (top >> 5), high * (other_high >> 13), top & 31, weight) and fits


@helper
def _add_pair(sums, x, y, weight):  # type: ignore[no-untyped-def]
    """Add a pair of floats, given by their bits, to the five sums; return the last bin touched, -2 on overflow."""
    if not _add(sums[X], SPECIALS + COUNT, weight):
        return -2
    last, other = _add_one(sums[X], sums[XX], x, weight), _add_one(sums[Y], sums[YY], y, weight)
    if min(last, other) == -2:  # noqa: PLR2004 (overflow)
        return -2
    special, left, place = _parts(x)
    other_special, right, other_place = _parts(y)
    if special == 0 and other_special == 0 and left != 0 and right != 0:
        signed = -weight if (x < 0) != (y < 0) else weight
        if not _add_product(sums[XY], left, right, place + other_place, signed):
            return -2
    return max(last, other)


@kernel(types.int64(_I64, _I64, _FLAGS, _I64, _I64, _I64, _I64_OUT, _I16_OUT, _W_OUT))
def pair_bins(x, y, valid, weight, order, starts, group, bin_, sums):  # type: ignore[no-untyped-def]  # noqa: PLR0913, PLR0917
    """Write the bins of the values, squares and products of each run of pairs.

    Return the number of (group, bin) rows, or -1 on overflow.
    """
    held = np.zeros((5, SLOTS), np.int64)
    count = 0
    for g in range(len(starts)):
        end = starts[g + 1] if g + 1 < len(starts) else len(order)
        most = -1
        for i in range(starts[g], end):
            row = order[i]
            if not -_WEIGHT_MAX < weight[row] < _WEIGHT_MAX:
                return -1
            if valid[row]:
                last = _add_pair(held, x[row], y[row], weight[row])
                if last == -2:  # noqa: PLR2004 (overflow)
                    return -1
                most = max(most, last)
        for slot in range(SPECIALS + most + 1):
            some = False
            for which in range(5):
                some = some or held[which, slot] != 0
            if some:
                group[count], bin_[count] = g, slot - SPECIALS
                for which in range(5):
                    sums[count, which] = held[which, slot]
                    held[which, slot] = 0
                count += 1
    return count


@helper
def _times(a, a_used, b, b_used, out):  # type: ignore[no-untyped-def]
    """Write a * b as limbs; return how many are used."""
    used = min(a_used + b_used + 1, len(out))
    out[:used] = 0
    for i in range(a_used):
        if a[i] == 0:
            continue
        carry = np.uint64(0)
        for j in range(b_used):
            term = out[i + j] + a[i] * b[j] + carry
            out[i + j] = term & np.uint64(_LOW)
            carry = term >> np.uint64(32)
        out[i + b_used] = carry
    while used > 0 and out[used - 1] == 0:
        used -= 1
    return used


@helper
def _difference(a, a_used, b, b_used, add, out):  # type: ignore[no-untyped-def]
    """Write a - b, or with `add` a + b, as limbs; return how many are used, and whether the result is negative."""
    longest = max(a_used, b_used)
    less = False
    if not add:
        for step in range(longest):
            at = longest - 1 - step
            mine, other = a[at] if at < a_used else np.uint64(0), b[at] if at < b_used else np.uint64(0)
            if mine != other:
                less = bool(mine < other)
                break
    carry = np.int64(0)
    for at in range(longest):
        mine = np.int64(a[at]) if at < a_used else np.int64(0)
        other = np.int64(b[at]) if at < b_used else np.int64(0)
        term = carry + (mine + other if add else (other - mine if less else mine - other))
        out[at] = np.uint64(term & _LOW)
        carry = term >> 32
    used = longest
    if carry > 0:
        out[used] = np.uint64(carry)
        used += 1
    while used > 0 and out[used - 1] == 0:
        used -= 1
    return used, less


@helper
def _minor(a, b, c, d, first, second, out):  # type: ignore[no-untyped-def]
    """Write a * b - c * d of four long integers, each (limbs, used, negative); return the limbs used, and the sign."""
    used, other = _times(a[0], a[1], b[0], b[1], first), _times(c[0], c[1], d[0], d[1], second)
    negative, opposite = a[2] != b[2], c[2] != d[2]
    length, less = _difference(first, used, second, other, negative != opposite, out)
    return length, negative != less


@helper
def _covariance(limbs, used, n, less, work):  # type: ignore[no-untyped-def]
    """Return limbs / (n (n - less)) in units of 2**-2148, rounded once."""
    for at in range(used):
        work[at] = limbs[at]
    sticky = _divide(work, used, n)
    sticky = _divide(work, used, n - less) or sticky
    return _nearest(work, used, sticky, -2148)


@helper
def _held(rows, bin_, sums, held):  # type: ignore[no-untyped-def]
    """Add up the sums of some rows by bin; return False on overflow."""
    held[:, :] = 0
    for row in rows:
        for which in range(5):
            if not _add(held[which], SPECIALS + bin_[row], sums[row, which]):
                return False
    return True


@helper
def _moments(held, g, count, special, moments, exponents, covariances, limbs, long):  # type: ignore[no-untyped-def]  # noqa: PLR0913, PLR0917
    """Write the results of `bin_moments` for one group's sums; return False for too many pairs.

    The arrays `limbs` and `long` are scratch space.
    """
    n = held[X, SPECIALS + COUNT]
    count[g] = n
    for which in range(2):
        found = held[which, SPECIALS + NANS] != 0 or held[which, SPECIALS + PLUS_INFINITIES] != 0
        special[g, which] = np.int64(found or held[which, SPECIALS + MINUS_INFINITIES] != 0)
    moments[g, :] = 0.0
    exponents[g, :] = 0
    covariances[g, :] = 0.0
    if n >= ROWS_MAX:
        return False
    if n <= 0:
        return True
    first, second, out, work = long[0], long[1], long[2], long[3]
    n_limbs = long[4]
    n_limbs[0] = np.uint64(n)
    number = (n_limbs, 1, False)
    x_used, x_negative = _carry(held[X], SPECIALS, BINS, limbs[X])
    y_used, y_negative = _carry(held[Y], SPECIALS, BINS, limbs[Y])
    xx_used, xx_negative = _carry(held[XX], SPECIALS, BINS, limbs[XX])
    yy_used, yy_negative = _carry(held[YY], SPECIALS, BINS, limbs[YY])
    xy_used, xy_negative = _carry(held[XY], SPECIALS, BINS, limbs[XY])
    x, y = (limbs[X], x_used, x_negative), (limbs[Y], y_used, y_negative)
    xx, yy = (limbs[XX], xx_used, xx_negative), (limbs[YY], yy_used, yy_negative)
    xy = (limbs[XY], xy_used, xy_negative)
    for which in range(MOMENTS):
        unit = -2148
        if which == 0:
            used, negative = _minor(number, xy, x, y, first, second, out)
            for less in range(min(n, 2)):
                value = _covariance(out, used, n, less, work)
                covariances[g, less] = -value if negative else value
        elif which == 1:
            used, negative = _minor(number, xx, x, x, first, second, out)
        elif which == 2:  # noqa: PLR2004 (the third)
            used, negative = _minor(number, yy, y, y, first, second, out)
        else:
            used, negative = _minor(y, xx, x, xy, first, second, out)
            unit = -3222
        value = _nearest(out, used, False, -32 * used)
        moments[g, which] = -value if negative else value
        exponents[g, which] = 32 * used + unit
    return True


@kernel(types.boolean(_I64, _I64, _I16, _W, _I64_OUT, _W_OUT, _WF_OUT, _W_OUT, _WF_OUT))
def bin_moments(order, offsets, bin_, sums, count, special, moments, exponents, covariances):  # type: ignore[no-untyped-def]  # noqa: PLR0913, PLR0917
    """Write each group's terms of a regression out of its (bin, sums) rows; return False on overflow.

    The first terms are the number of pairs n, and whether x and whether y has values that are not finite. The next are
    `n XY - X Y`, `n XX - X X`, `n YY - Y Y` and `Y XX - X XY`, each as a float in (-1, 1) times 2**exponent. The last
    are the covariances of the population and of the sample.
    """
    held = np.zeros((5, SLOTS), np.int64)
    limbs, long = np.zeros((5, LIMBS), np.uint64), np.zeros((5, LONG), np.uint64)
    for g in range(len(count)):
        if not _held(order[offsets[g] : offsets[g + 1]], bin_, sums, held):
            return False
        if not _moments(held, g, count, special, moments, exponents, covariances, limbs, long):
            return False
    return True


@kernel(types.boolean(_I64, _I64, _FLAGS, _I64, _I64, _I64, _W, _I64_OUT, _W_OUT, _WF_OUT, _W_OUT, _WF_OUT))
def slide_moments(x, y, valid, starts, ends, which, beyond, count, special, moments, exponents, covariances):  # type: ignore[no-untyped-def]  # noqa: PLR0913, PLR0917
    """Write the results of `bin_moments` for each frame [start, end) of pairs; return False on overflow.

    Starts and ends never decrease. Row `which[i]` of `beyond` holds the bins of the five sums, one after the other, of
    further pairs of frame i.
    """
    held = np.zeros((5, SLOTS), np.int64)
    limbs, long = np.zeros((5, LIMBS), np.uint64), np.zeros((5, LONG), np.uint64)
    low, high = np.int64(0), np.int64(0)
    for i in range(len(starts)):
        for sum_ in range(5):
            _exchange(held[sum_], beyond, sum_ * SLOTS, which, i)
        while low < starts[i]:
            if low < high and valid[low] and _add_pair(held, x[low], y[low], -1) == -2:  # noqa: PLR2004 (overflow)
                return False
            low += 1
        high = max(high, low)
        while high < ends[i]:
            if valid[high] and _add_pair(held, x[high], y[high], 1) == -2:  # noqa: PLR2004 (overflow)
                return False
            high += 1
        if not _moments(held, i, count, special, moments, exponents, covariances, limbs, long):
            return False
    return True

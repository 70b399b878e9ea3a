"""Whole numbers as limbs of 32 bits, so that sums of them in 64-bit weights are exact.

An integer or a decimal (its unscaled value) is split into limbs: value = sum of limb[i] * 2**(32 i). All limbs but the highest
are in [0, 2**32); the highest has the sign. Limbs times weights add up linearly; a sum of less than 2**31 rows cannot overflow
64 bits. Only when the result is shown are the carries propagated and the result checked against its type.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dbsp.errors import CapacityError
from dbsp.zset.arrays import pair_view, valid_rows, value_view
from dbsp.zset.kernels import OVERFLOW_HINT

Integers = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

BITS = 32
_MASK = (1 << BITS) - 1
_LIMB_MAX = 1 << 62
_DIGITS_OF_ONE, _DIGITS_OF_TWO = 9, 18
_DECIMAL_END = 10**38


def limbs_of(type_: pa.DataType) -> int:
    """Return the number of limbs of an integer or decimal type."""
    if pa.types.is_decimal(type_):
        return 1 if type_.precision <= _DIGITS_OF_ONE else 2 if type_.precision <= _DIGITS_OF_TWO else 4
    return 1 if type_.bit_width <= BITS else 2


def split(array: pa.Array) -> list[Integers]:
    """Return the limbs of each value, lowest first; all limbs of a null are 0."""
    count = limbs_of(array.type)
    if pa.types.is_decimal(array.type):
        pairs = pair_view(array)
        limbs = _split_pairs(pairs) if count > 2 else _split_words(pairs[:, 0].view(np.int64), count)  # noqa: PLR2004
    else:
        limbs = _split_words(value_view(array), count)
    valid = valid_rows(array)
    return limbs if valid is None else [np.where(valid, limb, 0) for limb in limbs]


def _split_words(values: npt.NDArray[np.integer], count: int) -> list[Integers]:
    if count == 1:
        return [values.astype(np.int64)]
    if values.dtype == np.uint64:
        return [(values & np.uint64(_MASK)).astype(np.int64), (values >> np.uint64(BITS)).astype(np.int64)]
    return [values & _MASK, values >> BITS]


def _split_pairs(pairs: Words) -> list[Integers]:
    low, high = pairs[:, 0], pairs[:, 1].view(np.int64)
    return [*_split_words(np.ascontiguousarray(low), 2), *_split_words(high, 2)]


def joined(limbs: Integers) -> tuple[Words, Integers, npt.NDArray[np.bool_]]:
    """Return the numbers that rows of limbs denote, as 128 bits: low word, high word, and whether the number fits.

    **Shape** `limbs` is int64 (n, count) with sums of limbs, which may be any 62-bit numbers.
    """
    if limbs.size and max(int(limbs.max()), -int(limbs.min())) >= _LIMB_MAX:
        raise CapacityError("a sum has too many rows: rows_max=1073741824", OVERFLOW_HINT)
    parts: list[Integers] = []
    carry = np.zeros(len(limbs), np.int64)
    for index in range(4):
        value = carry + (limbs[:, index] if index < limbs.shape[1] else 0)
        parts.append(value)
        carry = value >> BITS
    low = (parts[0] & _MASK).view(np.uint64) | ((parts[1] & _MASK).view(np.uint64) << np.uint64(BITS))
    high = (parts[2] & _MASK) | (parts[3] << BITS)
    fits = (parts[3] >= -(1 << 31)) & (parts[3] < 1 << 31)
    return low, high, fits


def fits_int64(low: Words, high: Integers) -> npt.NDArray[np.bool_]:
    """Return the mask of the 128-bit numbers that fit into 64 bits."""
    return np.asarray(high == (low.view(np.int64) >> 63))


def fits_decimal(low: Words, high: Integers) -> npt.NDArray[np.bool_]:
    """Return the mask of the 128-bit numbers that have at most 38 digits."""
    end_high, end_low = divmod(_DECIMAL_END, 1 << 64)
    below = (high < end_high) | ((high == end_high) & (low < np.uint64(end_low)))
    least_high, least_low = divmod(-_DECIMAL_END, 1 << 64)
    above = (high > least_high) | ((high == least_high) & (low > np.uint64(least_low)))
    return np.asarray(below & above)


def quotients(low: Words, high: Integers, divisors: Integers, scale: int) -> npt.NDArray[np.float64]:
    """Return number / (divisor * 10**scale) as the nearest float64, rounded once; divisors are not 0.

    **Cost** whole columns; per row in Python only where a number or a divisor exceeds 53 bits.
    """
    small = 1 << 53
    values = low.view(np.int64)
    exact = (
        fits_int64(low, high)
        & (values <= small)
        & (values >= -small)
        & (np.abs(divisors) <= small // 10 ** min(scale, 15))
    )
    exact &= scale <= 15  # noqa: PLR2004 (10**15 is the last power below 2**53 by this margin)
    result = np.zeros(len(low), np.float64)
    if exact.any():
        result[exact] = values[exact] / (divisors[exact] * (10 ** min(scale, 15))).astype(np.float64)
    for row in np.flatnonzero(~exact).tolist():
        number = (int(high[row]) << 64) + int(low[row])
        result[row] = number / (int(divisors[row]) * 10**scale)
    return result


def nearest_quotients(low: Words, high: Integers, divisors: Integers) -> Integers:
    """Return number / divisor as the nearest whole number, halves away from zero; divisors are above 0, and the results fit.

    **Cost** whole columns; per row in Python only where a number exceeds 64 bits.
    """
    values = low.view(np.int64)
    fits = fits_int64(low, high) & (values > np.iinfo(np.int64).min)
    size = np.abs(np.where(fits, values, 0))
    whole, rest = size // divisors, size % divisors
    whole += rest >= divisors - rest
    result = np.where(values < 0, -whole, whole)
    for row in np.flatnonzero(~fits).tolist():
        number, divisor = (int(high[row]) << 64) + int(low[row]), int(divisors[row])
        found = (2 * abs(number) + divisor) // (2 * divisor)
        result[row] = -found if number < 0 else found
    return result


def square_limbs_of(type_: pa.DataType) -> int:
    """Return the number of limbs that `squares` returns for an integer or decimal type."""
    return 2 * limbs_of(type_)


def squares(array: pa.Array) -> list[Integers]:
    """Return the limbs of each value's square, lowest first; all limbs of a null are 0.

    Each limb but the highest is in [0, 2**32).
    **Law** linear in the weights alone: sums of limbs of squares are the limbs of the sum of squares.
    """
    words = _magnitudes(split(array))
    terms = [np.zeros(len(array), np.uint64) for _ in range(2 * len(words) + 1)]
    mask, bits = np.uint64(_MASK), np.uint64(BITS)
    for i, left in enumerate(words):
        for j, right in enumerate(words):
            whole = left * right
            terms[i + j] += whole & mask
            terms[i + j + 1] += whole >> bits
    carry = np.zeros(len(array), np.uint64)
    limbs = []
    for term in terms[: 2 * len(words)]:
        total = term + carry
        limbs.append((total & mask).view(np.int64))
        carry = total >> bits
    return limbs


def _magnitudes(limbs: list[Integers]) -> list[Words]:
    """Return the limbs of the absolute values, each in [0, 2**32]."""
    negative = limbs[-1] < 0
    carry = np.zeros(len(negative), np.int64)
    found = []
    for limb in limbs:
        total = np.where(negative, -limb, limb) + carry
        found.append((total & _MASK).view(np.uint64))
        carry = total >> BITS
    return found

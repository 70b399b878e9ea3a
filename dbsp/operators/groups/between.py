"""Exact interpolation between two decimals: arithmetic of 128 bits on whole columns.

Arrow's division of wide decimals is wrong for some numbers (`dbsp.expr.decimals`), and floats lose digits beyond the 16th.
So numbers are four limbs of 32 bits in two's complement, each stored in 64 bits. A limb's product with a number below 2**31 fits.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dbsp.operators.columns import column_of
from dbsp.zset.arrays import pair_view

WORD_DIGITS = 18
"""Digits of the widest decimal that DuckDB holds in 64 bits."""
_LIMB, _LIMB_BITS = np.uint64(0xFFFFFFFF), np.uint64(32)


def between(lower: pa.Array, upper: pa.Array, rest: npt.NDArray[np.int64], whole: int) -> pa.Array:
    """Return lower + (upper - lower) * rest / whole, cut to the decimal places that both have.

    The result is cut towards zero, but downwards if the type has more than 18 digits, as in DuckDB. The arithmetic is exact.
    The result is null where `lower` is null; `upper` does not matter where `rest` is 0.

    **Limit** lower <= upper, 0 <= rest < whole < 2**31.
    """
    low, parts, divisor = _limbs(lower), rest.astype(np.uint64), np.uint64(whole)
    share, left = _limbs(upper), np.zeros(len(rest), np.uint64)
    _add(share, ~low & _LIMB, np.ones(len(rest), np.uint64))
    for limb in reversed(share):  # share, left = divmod(upper - lower, whole)
        at = left << _LIMB_BITS | limb
        limb[:], left = at // divisor, at % divisor
    carry, inexact = left * parts // divisor, left * parts % divisor != 0
    for limb in share:  # share = (upper - lower) * rest // whole
        at = limb * parts + carry
        limb[:], carry = at & _LIMB, at >> _LIMB_BITS
    _add(share, low, np.zeros(len(rest), np.uint64))
    if lower.type.precision <= WORD_DIGITS:
        negative = share[-1] >> np.uint64(31) != 0
        _add(share, np.zeros_like(low), (negative & inexact).astype(np.uint64))
    words = np.column_stack([share[0] | share[1] << _LIMB_BITS, share[2] | share[3] << _LIMB_BITS])
    return column_of(words, np.asarray(lower.is_valid()), lower.type)


def _limbs(values: pa.Array) -> npt.NDArray[np.uint64]:
    """Return a decimal column as (4, n) limbs of 32 bits, the lowest first, in two's complement."""
    words = pair_view(values).T
    return np.stack([words[0] & _LIMB, words[0] >> _LIMB_BITS, words[1] & _LIMB, words[1] >> _LIMB_BITS])


def _add(target: npt.NDArray[np.uint64], other: npt.NDArray[np.uint64], carry: npt.NDArray[np.uint64]) -> None:
    """Add other limbs and a carry to the target's, in place, modulo 2**128."""
    for limb, more in zip(target, other, strict=True):
        at = limb + more + carry
        limb[:], carry = at & _LIMB, at >> _LIMB_BITS

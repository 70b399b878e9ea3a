"""Rounding of floats to decimal places, as DuckDB does: to the nearest, halves away from zero.

**Law** The value itself decides whether it is a half. Its product with a power of ten may be rounded to a half: 2.675
is a little less than it looks, and becomes 2.67 with two places. The candidates for the nearest are the multiples of a
power of ten, each as the nearest float. A value so large that no float near it has these places stays unchanged. With
negative `digits`, a value below half of the power of ten becomes 0.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dbsp.zset.schema import FLOAT64

F64 = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
_SPLIT = 2.0**27 + 1
_HALF = 0.5


def rounded_floats(values: pa.Array, digits: int) -> pa.Array:
    """Round the values to so many digits after the point; a negative number counts the digits before the point."""
    given = np.asarray(values.cast(FLOAT64).fill_null(0.0))
    with np.errstate(all="ignore"):
        by = np.power(10.0, abs(digits))
        scaled = given * by if digits > 0 else given / by
        size = np.abs(scaled)
        nearest = np.floor(size) + (size - np.floor(size) >= _HALF)
        if digits > 0:
            nearest -= _looks_like_half(np.abs(given), size, by)
        nearest = np.copysign(nearest, given)
        found = nearest / by if digits > 0 else nearest * by
    beyond = given if digits > 0 else np.where(np.isfinite(given), 0.0, given)
    found = np.where(np.isfinite(found) & np.isfinite(given), found, beyond)
    made = pa.array(found, mask=np.asarray(values.is_null()) if values.null_count else None)
    return made.cast(values.type, safe=False)


def _looks_like_half(given: F64, scaled: F64, by: np.float64) -> Mask:
    """Return which products are a half only because they were rounded up to it."""
    found = scaled - np.floor(scaled) == _HALF
    halves = np.flatnonzero(found)
    found[halves] = _product(given[halves], by)[1] < 0
    return np.asarray(found)


def _product(values: F64, by: np.float64) -> tuple[F64, F64]:
    """Return a product and its rounding error (Dekker)."""
    high = values * by
    (a, b), (c, d) = _halves(values), _halves(np.asarray(by))
    return high, ((a * c - high) + a * d + b * c) + b * d


def _halves(values: F64) -> tuple[F64, F64]:
    """Split each number into two numbers of half as many bits that add up to it."""
    far = values * _SPLIT
    upper = far - (far - values)
    return upper, values - upper

"""Floats rounded to so many places, as DuckDB rounds them: to the nearest, halves away from zero.

**Law** a half is told by the value itself, not by its product with a power of ten, which may be rounded to one: 2.675 is a little
less than it looks, and 2.67 of two places. What is nearest is looked for among the multiples of a power of ten, each as the float
next to it; a value too great to have such places is itself, and one too small for its whole digits is 0.
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
    """The values with so many digits behind the point; a negative number counts those before it."""
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
    """Which products are a half, and were rounded up to it."""
    found = scaled - np.floor(scaled) == _HALF
    halves = np.flatnonzero(found)
    found[halves] = _product(given[halves], by)[1] < 0
    return np.asarray(found)


def _product(values: F64, by: np.float64) -> tuple[F64, F64]:
    """A product, and what it was rounded by (Dekker)."""
    high = values * by
    (a, b), (c, d) = _halves(values), _halves(np.asarray(by))
    return high, ((a * c - high) + a * d + b * c) + b * d


def _halves(values: F64) -> tuple[F64, F64]:
    """Two numbers of half as many bits that add up to each."""
    far = values * _SPLIT
    upper = far - (far - values)
    return upper, values - upper

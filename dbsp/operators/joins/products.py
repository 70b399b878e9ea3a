"""Checked products of weights: the products in joins and weighted sums must fit into 64 signed bits."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dbsp.errors import CapacityError
from dbsp.zset.kernels import OVERFLOW_HINT

Integers = npt.NDArray[np.int64]
_LIMIT = 1 << 63


def product(left: Integers, right: Integers) -> Integers:
    """Return the element-wise product `left * right`; raise `CapacityError` if a product exceeds 64 bits.

    **Example**

    >>> import numpy as np
    >>> product(np.array([3, -2]), np.array([5, 7])).tolist()
    [15, -14]
    """
    wrapped = left * right
    if len(left) == 0 or _peak(left) * _peak(right) < _LIMIT:
        return wrapped
    exact = left.astype(object) * right.astype(object)
    if (exact != wrapped).any():
        raise CapacityError("weight overflow: a product leaves bits=64", OVERFLOW_HINT)
    return wrapped


def _peak(values: Integers) -> int:
    """Return the greatest absolute value of a non-empty array."""
    return max(int(values.max()), -int(values.min()))

"""Products of weights, checked: what a join and a weighted sum multiply must stay within 64 signed bits."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dbsp.errors import CapacityError
from dbsp.zset.kernels import OVERFLOW_HINT

Integers = npt.NDArray[np.int64]
_LIMIT = 1 << 63


def product(left: Integers, right: Integers) -> Integers:
    """`left * right`, element by element; `CapacityError` where it leaves 64 bits.

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
    """The greatest magnitude."""
    return max(int(values.max()), -int(values.min()))

"""Runs of equal values that are neighbours: where each begins, where it ends, how long it is.

As `dbsp.zset.kernels.run_starts`, which takes the three words of a sorted batch; here the keys are any arrays, as many as wanted.

>>> import numpy as np
>>> keys, times = np.array([1, 1, 1, 2]), np.array([7, 7, 8, 8])
>>> begins(keys).tolist(), begins(keys, times).tolist(), ends(keys).tolist()
([True, False, False, True], [True, False, True, True], [False, False, True, True])
>>> lengths(np.flatnonzero(begins(keys)), len(keys)).tolist()
[3, 1]
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Mask = npt.NDArray[np.bool_]
Positions = npt.NDArray[np.int64]


def begins(*keys: npt.NDArray[Any]) -> Mask:
    """Whether each row differs from the one before in one of the keys; the first does."""
    fresh = np.zeros(len(keys[0]), np.bool_)
    fresh[:1] = True
    for key in keys:
        fresh[1:] |= key[1:] != key[:-1]
    return fresh


def ends(*keys: npt.NDArray[Any]) -> Mask:
    """Whether each row differs from the one behind it in one of the keys; the last does."""
    fresh = np.zeros(len(keys[0]), np.bool_)
    fresh[-1:] = True
    for key in keys:
        fresh[:-1] |= key[1:] != key[:-1]
    return fresh


def lengths(starts: Positions, rows: int) -> Positions:
    """How many of the rows each run has, given where all of them begin."""
    return np.diff(np.append(starts, rows))

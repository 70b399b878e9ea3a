"""Runs of equal neighbours: where each begins, where it ends, and its length.

The functions resemble `dbsp.zset.kernels.run_starts`, which takes the three words of a sorted batch; here the keys are
any number of arrays.

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
    """Return the mask of the rows that differ from the previous row in one of the keys; true for the first row."""
    fresh = np.zeros(len(keys[0]), np.bool_)
    fresh[:1] = True
    for key in keys:
        fresh[1:] |= key[1:] != key[:-1]
    return fresh


def ends(*keys: npt.NDArray[Any]) -> Mask:
    """Return the mask of the rows that differ from the next row in one of the keys; true for the last row."""
    fresh = np.zeros(len(keys[0]), np.bool_)
    fresh[-1:] = True
    for key in keys:
        fresh[:-1] |= key[1:] != key[:-1]
    return fresh


def lengths(starts: Positions, rows: int) -> Positions:
    """Return the number of rows of each run, given the starts of all runs."""
    return np.diff(np.append(starts, rows))

"""Gathering of texts and bytes from their spans in a larger buffer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numba import njit
from numpy.typing import NDArray

_BYTES_MAX = 1 << 31


@njit(cache=True)
def _copy_spans(
    data: NDArray[np.uint8], starts: NDArray[np.int64], offsets: NDArray[np.int64], out: NDArray[np.uint8]
) -> None:
    for row in range(len(starts)):
        begin, first = offsets[row], starts[row]
        for place in range(offsets[row + 1] - begin):
            out[begin + place] = data[first + place]


def gathered(
    data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64], valid: NDArray[np.bool_], type_: Any
) -> pa.Array:
    """Return an array of the given spans of `data`; null where not `valid`, where the length must be 0.

    **Errors** `ArrowInvalid` if the values exceed the limit of an array, 2 GiB.

    >>> data = np.frombuffer(b"hello world", np.uint8)
    >>> gathered(data, np.array([6, 0]), np.array([5, 0]), np.array([True, False]), pa.string()).to_pylist()
    ['world', None]
    """
    offsets = np.zeros(len(starts) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    if offsets[-1] >= _BYTES_MAX:
        raise pa.ArrowInvalid("more than 2 GiB of values")
    out = np.empty(int(offsets[-1]), np.uint8)
    _copy_spans(data, starts, offsets, out)
    mask = None if valid.all() else pa.array(valid).buffers()[1]
    return pa.Array.from_buffers(type_, len(starts), [mask, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(out)])

"""View Arrow buffers as numpy arrays without copying."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


def buffer_view(buffer: pa.Buffer | None, dtype: np.dtype[Any], offset: int, count: int) -> NDArray[Any]:
    """Return `count` values of a buffer as a view, from the value at `offset` on."""
    if count == 0 or buffer is None:
        return np.empty(0, dtype)
    return np.frombuffer(buffer, dtype, count, offset * dtype.itemsize)


SHARED_MAX = 1 << 20
"""Maximum elements of a cached array of `repeated`; no chunk has more rows."""


def repeated(value: int, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
    """Return an array that repeats a number, not to be written to.

    Up to `SHARED_MAX` elements, the memory is shared by all batches of a process.
    """
    if count > SHARED_MAX:
        return np.full(count, value, dtype)
    return _shared(value, dtype, max(0, count - 1).bit_length())[:count]


@cache
def _shared(value: int, dtype: np.dtype[Any], bits: int) -> NDArray[Any]:
    """Return a cached array of a power of two elements, so that a process with small chunks alone touches little memory."""
    found = np.full(1 << bits, value, dtype)
    found.flags.writeable = False
    return found


def width_of(size: int, rows: int) -> int | None:
    """Return the bytes per number in a buffer of `rows` numbers: 0 for an empty buffer, None if the size does not fit."""
    return next((width for width in (0, 1, 2, 4, 8) if size == width * rows), None)


def text_view(array: pa.Array) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
    """Return the n + 1 offsets and the bytes of a plain string or binary column."""
    _, offsets, data = array.buffers()
    if offsets is None or offsets.size == 0:
        return np.zeros(1, np.int32), np.empty(0, np.uint8)
    bounds = buffer_view(offsets, np.dtype(np.int32), array.offset, len(array) + 1)
    return bounds, np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)


def text_array(offsets: NDArray[np.int32], data: NDArray[np.uint8], type_: pa.DataType) -> pa.Array:
    """Return a null-free column of strings or binary that shares this memory."""
    return pa.Array.from_buffers(type_, len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)], 0)

"""Arrow columns built from numpy values and a validity mask."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dbsp.zset.arrays import from_values

Mask = npt.NDArray[np.bool_]


def column_of(values: npt.NDArray[Any], valid: Mask, type_: pa.DataType) -> pa.Array:
    """Return a column of values of at most 64 bits, or of decimals as (n, 2) words; null where `valid` is False.

    **Example**

    >>> import numpy as np, pyarrow as pa
    >>> column_of(np.array([1, 2]), np.array([True, False]), pa.int64()).to_pylist()
    [1, None]
    """
    if valid.all():
        return from_values(values, type_)
    bitmap = pa.py_buffer(np.packbits(valid, bitorder="little"))
    buffers = [bitmap, pa.py_buffer(np.ascontiguousarray(values))]
    return pa.Array.from_buffers(type_, len(values), buffers, int(len(valid) - np.count_nonzero(valid)))

"""Kernels of expressions over texts: offsets into one array of bytes, as in Arrow."""

from __future__ import annotations

import numpy as np
from numba import types

from dbsp.zset.kernels.kernel import kernel, reads, writes

_OFFSETS, _BYTES = reads(types.int32), reads(types.uint8)


@kernel(types.int64(_OFFSETS, _BYTES, _BYTES, types.int64, writes(types.int32), writes(types.int32)))
def part_bounds(offsets, data, separator, number, starts, ends):  # type: ignore[no-untyped-def]
    """Write the bounds of the number-th part of each row, empty if there are fewer parts; return the total bytes of the parts.

    A row is read up to the end of that part.
    """
    width, first, size = len(separator), separator[0], np.int64(0)
    for i in range(len(starts)):
        at, end = np.int64(offsets[i]), np.int64(offsets[i + 1])
        start, part, stop = at, np.int64(1), end
        while at + width <= end:
            found = data[at] == first
            for k in range(1, width):
                found = found and data[at + k] == separator[k]
            if not found:
                at += 1
            elif part == number:
                stop = at
                break
            else:
                at += width
                start = at
                part += 1
        if part < number:
            start = end
        starts[i], ends[i] = start, stop
        size += stop - start
    return size


@kernel(types.void(_BYTES, _OFFSETS, _OFFSETS, writes(types.int32), writes(types.uint8)))
def copy_parts(data, starts, ends, offsets, out):  # type: ignore[no-untyped-def]
    """Copy the bytes between these bounds, one row after the other."""
    at = np.int64(0)
    offsets[0] = 0
    for i in range(len(starts)):
        start, size = np.int64(starts[i]), np.int64(ends[i]) - np.int64(starts[i])
        for k in range(size):
            out[at + k] = data[start + k]
        at += size
        offsets[i + 1] = at

"""Kernels that take rows out of two columns, numbered as if the right one lay below the left one, without laying them so.

Rows of one side that follow each other, as most rows of two merged runs do, are copied at once where they are byte strings.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from dbsp.zset.kernels.kernel import helper, kernel, reads, writes

STRETCH_ROWS = 4
"""So many rows that follow each other are copied faster at once than one by one, on the average."""
PROBED_ROWS = 512
"""After so many rows it is seen whether rows follow each other."""

_U64, _U64_OUT, _I64 = reads(types.uint64), writes(types.uint64), reads(types.int64)
_OFFSETS, _OFFSETS_OUT = reads(types.int32), writes(types.int32)
_BYTES, _BYTES_OUT = reads(types.uint8), writes(types.uint8)


@intrinsic
def _copy_bytes(typing: Any, out: Any, at: Any, source: Any, first: Any, size: Any) -> Any:  # noqa: ARG001
    """Copy `size` bytes of `source` from `first` on to `out` from `at` on; a loop over bytes would take one at a time."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        to, of = (context.make_array(signature.args[i])(context, builder, arguments[i]) for i in (0, 2))
        target, origin = builder.gep(to.data, [arguments[1]]), builder.gep(of.data, [arguments[3]])
        cgutils.raw_memcpy(builder, target, origin, arguments[4], 1)  # type: ignore[no-untyped-call]
        return context.get_dummy_value()

    return types.void(out, at, source, first, size), generate


@kernel(types.int64(_OFFSETS, _I64))
def size_in_stretches(offsets, rows):  # type: ignore[no-untyped-def]
    """How many bytes the byte strings at these rows have; -1 where of the first rows too few follow the one before them."""
    breaks, seen = np.int64(1), min(len(rows), PROBED_ROWS)
    for k in range(1, seen):
        breaks += np.int64(rows[k] != rows[k - 1] + 1)
    if STRETCH_ROWS * breaks > seen:
        return -1
    size = np.int64(0)
    for row in rows:
        size += np.int64(offsets[row + 1]) - np.int64(offsets[row])
    return size


@kernel(types.void(_U64, _U64, _I64, _U64_OUT))
def pick_words(left, right, rows, out):  # type: ignore[no-untyped-def]
    """Write the words at these rows."""
    n = len(left)
    for k in range(len(rows)):
        row = rows[k]
        out[k] = left[row] if row < n else right[row - n]


@helper
def _pick_stretch(source, data, first, offsets, out, begin, end):  # type: ignore[no-untyped-def]
    """Copy the byte strings of neighbouring rows from `first` on to where the rows from `begin` to `end` belong."""
    start, at = np.int64(source[first]), np.int64(offsets[begin])
    shift = at - start
    for k in range(end - begin):
        offsets[begin + k + 1] = np.int64(source[first + k + 1]) + shift
    _copy_bytes(out, at, data, start, np.int64(offsets[end]) - at)  # type: ignore[call-arg]  # numba passes the first


@kernel(types.void(_OFFSETS, _BYTES, _OFFSETS, _BYTES, _I64, _OFFSETS_OUT, _BYTES_OUT))
def pick_bytes(left_offsets, left, right_offsets, right, rows, offsets, out):  # type: ignore[no-untyped-def]
    """Write the byte strings at these rows; `out` has room for all of them."""
    n, begin = len(left_offsets) - 1, 0
    offsets[0] = 0
    while begin < len(rows):
        row, end = rows[begin], begin + 1
        last = len(rows) if row >= n else min(len(rows), begin + n - row)
        while end < last and rows[end] == row + (end - begin):
            end += 1
        if row < n:
            _pick_stretch(left_offsets, left, row, offsets, out, begin, end)
        else:
            _pick_stretch(right_offsets, right, row - n, offsets, out, begin, end)
        begin = end

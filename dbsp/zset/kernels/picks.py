"""Kernels that take rows out of several columns without joining the columns first.

A row is the number of its column, shifted by `RUN_SHIFT` bits, plus its place there. A column is the address of its
first value, because a signature cannot hold any number of arrays; the caller keeps the columns alive. Consecutive rows
of a column, as merged runs have many, are copied at once if they are byte strings.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from dbsp.zset.kernels.kernel import kernel, reads, writes

RUN_SHIFT = 40
_PLACE = (1 << RUN_SHIFT) - 1

STRETCH_ROWS = 4
"""Shortest stretch of consecutive rows that is copied faster as a whole than row by row, on average."""
PROBED_ROWS = 512
"""Number of first rows that decide whether enough rows are consecutive for block copies to pay."""

_U64, _U64_OUT, _I64 = reads(types.uint64), writes(types.uint64), reads(types.int64)
_OFFSETS, _OFFSETS_OUT, _BYTES_OUT = reads(types.int32), writes(types.int32), writes(types.uint8)


@intrinsic
def _word_at(typing: Any, address: Any, index: Any) -> Any:  # noqa: ARG001
    """Return the word at an index after an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        words = builder.inttoptr(arguments[0], ir.IntType(64).as_pointer())
        return builder.load(builder.gep(words, [arguments[1]]))

    return types.uint64(address, index), generate


@intrinsic
def _offset_at(typing: Any, address: Any, index: Any) -> Any:  # noqa: ARG001
    """Return the int32 offset at an index after an address, as int64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        offsets = builder.inttoptr(arguments[0], ir.IntType(32).as_pointer())
        return builder.sext(builder.load(builder.gep(offsets, [arguments[1]])), ir.IntType(64))

    return types.int64(address, index), generate


@intrinsic
def _copy_bytes(typing: Any, out: Any, at: Any, address: Any, first: Any, size: Any) -> Any:  # noqa: ARG001
    """Copy `size` bytes, from `first` bytes after an address, to `out` from `at` on.

    A loop in numba would copy one byte at a time.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        to = context.make_array(signature.args[0])(context, builder, arguments[0])
        source = builder.inttoptr(arguments[2], ir.IntType(8).as_pointer())
        target, origin = builder.gep(to.data, [arguments[1]]), builder.gep(source, [arguments[3]])
        cgutils.raw_memcpy(builder, target, origin, arguments[4], 1)  # type: ignore[no-untyped-call]
        return context.get_dummy_value()

    return types.void(out, at, address, first, size), generate


@kernel(types.int64(_OFFSETS, _I64))
def size_in_stretches(offsets, rows):  # type: ignore[no-untyped-def]
    """Return the total bytes of the byte strings at these rows, or -1 if too few of the first rows are consecutive."""
    breaks, seen = np.int64(1), min(len(rows), PROBED_ROWS)
    for k in range(1, seen):
        breaks += np.int64(rows[k] != rows[k - 1] + 1)
    if STRETCH_ROWS * breaks > seen:
        return -1
    size = np.int64(0)
    for row in rows:
        size += np.int64(offsets[row + 1]) - np.int64(offsets[row])
    return size


@kernel(types.void(_U64, _I64, _U64_OUT))
def pick_words(columns, rows, out):  # type: ignore[no-untyped-def]
    """Write the words at these rows."""
    for k in range(len(rows)):
        row = rows[k]
        out[k] = _word_at(columns[row >> RUN_SHIFT], row & _PLACE)  # type: ignore[call-arg]  # numba passes the first


@kernel(types.void(_U64, _I64, writes(types.uint64, 2)))
def pick_rows(columns, rows, out):  # type: ignore[no-untyped-def]
    """Write the rows of several words each at these rows."""
    width = out.shape[1]
    for k in range(len(rows)):
        row = rows[k]
        for n in range(width):
            out[k, n] = _word_at(columns[row >> RUN_SHIFT], (row & _PLACE) * width + n)  # type: ignore[call-arg]


@kernel(types.void(_U64, _U64, _I64, _OFFSETS_OUT, _BYTES_OUT))
def pick_bytes(bounds, columns, rows, offsets, out):  # type: ignore[no-untyped-def]
    """Write the byte strings at these rows; `bounds` are the addresses of the columns' offsets.

    The array `out` has room for all strings.
    """
    begin = 0
    offsets[0] = 0
    while begin < len(rows):
        row, end = rows[begin], begin + 1
        while end < len(rows) and rows[end] == row + (end - begin):
            end += 1
        run, first, at = row >> RUN_SHIFT, row & _PLACE, np.int64(offsets[begin])
        start = _offset_at(bounds[run], first)  # type: ignore[call-arg,var-annotated]
        for k in range(end - begin):
            offsets[begin + k + 1] = _offset_at(bounds[run], first + k + 1) + (at - start)
        _copy_bytes(out, at, columns[run], start, np.int64(offsets[end]) - at)
        begin = end

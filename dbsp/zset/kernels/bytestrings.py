"""Kernels over Arrow's byte strings: an array of int32 offsets into one array of bytes."""

from __future__ import annotations

import numpy as np
from numba import types

from dbsp.zset.kernels.kernel import kernel, reads, writes

_I64, _OFFSETS, _BYTES = reads(types.int64), reads(types.int32), reads(types.uint8)


@kernel(types.void(_OFFSETS, _BYTES, _I64, _OFFSETS, _BYTES, _I64, writes(types.boolean)))
def equal_bytes(left_offsets, left, left_rows, right_offsets, right, right_rows, out):  # type: ignore[no-untyped-def]
    """Whether row `left_rows[i]` of the left equals row `right_rows[i]` of the right."""
    for i in range(len(out)):
        p = np.int64(left_offsets[left_rows[i]])
        q = np.int64(right_offsets[right_rows[i]])
        length = np.int64(left_offsets[left_rows[i] + 1]) - p
        same = length == np.int64(right_offsets[right_rows[i] + 1]) - q
        k = 0
        while same and k < length:
            same = left[p + k] == right[q + k]
            k += 1
        out[i] = same


@kernel(types.void(_OFFSETS, _BYTES, writes(types.uint64)))
def leading_words(offsets, data, out):  # type: ignore[no-untyped-def]
    """The first eight bytes of each row, big-endian, zeros after a shorter one."""
    for i in range(len(out)):
        start = np.int64(offsets[i])
        length = min(np.int64(8), np.int64(offsets[i + 1]) - start)
        word = np.uint64(0)
        for k in range(length):
            word = (word << np.uint64(8)) | np.uint64(data[start + k])
        out[i] = word << np.uint64(8 * (8 - length)) if length else np.uint64(0)

"""Kernels over Arrow's byte strings: an array of int32 offsets into one array of bytes."""

from __future__ import annotations

import numpy as np
from numba import types

from dbsp.zset.kernels.hashes import load_word, tail_word
from dbsp.zset.kernels.kernel import kernel, reads, writes

_I64, _OFFSETS, _BYTES = reads(types.int64), reads(types.int32), reads(types.uint8)


@kernel(types.void(_OFFSETS, _BYTES, _I64, _OFFSETS, _BYTES, _I64, writes(types.boolean)))
def equal_bytes(left_offsets, left, left_rows, right_offsets, right, right_rows, out):  # type: ignore[no-untyped-def]
    """Write whether row `left_rows[i]` of the left column equals row `right_rows[i]` of the right one."""
    for i in range(len(out)):
        p = np.int64(left_offsets[left_rows[i]])
        q = np.int64(right_offsets[right_rows[i]])
        length = np.int64(left_offsets[left_rows[i] + 1]) - p
        same = length == np.int64(right_offsets[right_rows[i] + 1]) - q
        k = np.int64(0)
        while same and k + 8 <= length:
            same = load_word(left, p + k) == load_word(right, q + k)  # type: ignore[call-arg]  # numba passes the first
            k += 8
        if same and k < length:
            same = tail_word(left, p + k, length - k) == tail_word(right, q + k, length - k)
        out[i] = same


@kernel(types.boolean(_OFFSETS, _BYTES))
def bytes_repeat(offsets, data):  # type: ignore[no-untyped-def]
    """Return whether all rows, at least one, are the same byte string; a difference near the beginning ends the search.

    Equal strings make the data periodic with the length of one, so the data is compared with itself, eight bytes at a
    time.
    """
    rows, first, end = len(offsets) - 1, np.int64(offsets[0]), np.int64(offsets[-1])
    length = np.int64(offsets[1]) - first
    if length * rows != end - first:
        return False
    k = first + length
    while k + 8 <= end:
        if load_word(data, k) != load_word(data, k - length):  # type: ignore[call-arg]  # numba passes the first
            return False
        k += 8
    if k < end and tail_word(data, k, end - k) != tail_word(data, k - length, end - k):
        return False
    same = True
    for i in range(rows):
        same &= np.int64(offsets[i + 1]) - np.int64(offsets[i]) == length
    return same


@kernel(types.boolean(_OFFSETS, _BYTES, _I64, _I64))
def bytes_by_group(offsets, data, group, firsts):  # type: ignore[no-untyped-def]
    """Return whether every row equals the first one of its group; groups are numbered by their first rows.

    Consecutive rows with one text form a stretch. No comparison is needed if the group's first row is in the same
    stretch, or in the stretch that was last compared with it.
    """
    stretch = np.zeros(len(firsts), np.int64)
    at, seen, before, length_before = np.int64(0), np.int64(0), np.int64(0), np.int64(-1)
    for i in range(len(group)):
        p = np.int64(offsets[i])
        length = np.int64(offsets[i + 1]) - p
        same, k = length == length_before, np.int64(0)
        while same and k + 8 <= length:
            same = load_word(data, p + k) == load_word(data, before + k)  # type: ignore[call-arg]  # numba passes the first
            k += 8
        if same and k < length:
            same = tail_word(data, p + k, length - k) == tail_word(data, before + k, length - k)
        at += np.int64(not same)
        before, length_before = p, length
        g = group[i]
        if g == seen:
            stretch[g] = at
            seen += 1
        elif stretch[g] != at:
            q, k = np.int64(offsets[firsts[g]]), np.int64(0)
            if length != np.int64(offsets[firsts[g] + 1]) - q:
                return False
            while k + 8 <= length:
                if load_word(data, p + k) != load_word(data, q + k):  # type: ignore[call-arg]  # numba passes the first
                    return False
                k += 8
            if k < length and tail_word(data, p + k, length - k) != tail_word(data, q + k, length - k):
                return False
            stretch[g] = at
    return True


@kernel(types.void(_OFFSETS, _BYTES, writes(types.uint64)))
def leading_words(offsets, data, out):  # type: ignore[no-untyped-def]
    """Write the first eight bytes of each row, big-endian, zero-padded."""
    for i in range(len(out)):
        start = np.int64(offsets[i])
        length = min(np.int64(8), np.int64(offsets[i + 1]) - start)
        word = np.uint64(0)
        for k in range(length):
            word = (word << np.uint64(8)) | np.uint64(data[start + k])
        out[i] = word << np.uint64(8 * (8 - length)) if length else np.uint64(0)

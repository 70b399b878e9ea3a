"""Kernels that sort hashes: stable bucket sorts, which rely on evenly spread hashes.

A large input is first dealt into blocks that fit the cache, and each block into about as many buckets as it has rows.
Each bucket is then sorted by insertion. A crowded bucket (a key with many rows, or an uneven range such as that of
prices) is dealt once more by its own range. A bucket that is still crowded is sorted by merging, so the cost never
exceeds n log n.
"""

from __future__ import annotations

import numpy as np
from numba import types

from dbsp.zset.kernels.kernel import helper, kernel, reads, writes

BLOCK_BITS = 12
BLOCK_ROWS = 1 << BLOCK_BITS
BLOCKS_BITS = 13
SPARE_BITS = 1
INSERTION_ROWS = 24
CROWDED_ROWS_MIN = 96
"""Least rows of a crowded bucket that is distributed once more; a smaller bucket is sorted by merging."""

_U64, _U64_OUT = reads(types.uint64), writes(types.uint64)
_I64, _I64_OUT = reads(types.int64), writes(types.int64)
_FLAGS, _FLAGS_OUT = reads(types.uint8), writes(types.uint8)


@helper
def _bit_length(value):  # type: ignore[no-untyped-def]
    """Return the number of bits of `value`."""
    bits = 0
    while value:
        value >>= np.uint64(1)
        bits += 1
    return bits


@helper
def _insertion_sort(keys, rows, lo, hi):  # type: ignore[no-untyped-def]
    """Sort a few rows by insertion."""
    for i in range(lo + 1, hi):
        key = keys[i]
        if keys[i - 1] <= key:
            continue
        row = rows[i]
        j = i - 1
        while j >= lo and keys[j] > key:
            keys[j + 1] = keys[j]
            rows[j + 1] = rows[j]
            j -= 1
        keys[j + 1] = key
        rows[j + 1] = row


@helper
def _merge_runs(keys, rows, out_keys, out_rows, lo, middle, hi):  # type: ignore[no-untyped-def]
    """Merge two adjacent sorted runs into the output arrays."""
    i, j = lo, middle
    for k in range(lo, hi):
        if i < middle and (j >= hi or keys[i] <= keys[j]):
            out_keys[k] = keys[i]
            out_rows[k] = rows[i]
            i += 1
        else:
            out_keys[k] = keys[j]
            out_rows[k] = rows[j]
            j += 1


@helper
def _merge_sort(keys, rows, spare_keys, spare_rows, lo, hi):  # type: ignore[no-untyped-def]
    """Sort a crowded bucket in place; a bucket that is sorted already, such as one key many times, only takes a check."""
    i = lo + 1
    while i < hi and keys[i - 1] <= keys[i]:
        i += 1
    if i == hi:
        return
    for start in range(lo, hi, INSERTION_ROWS):
        _insertion_sort(keys, rows, start, min(start + INSERTION_ROWS, hi))
    width = INSERTION_ROWS
    while width < hi - lo:
        for start in range(lo, hi, 2 * width):
            middle = min(start + width, hi)
            _merge_runs(keys, rows, spare_keys, spare_rows, start, middle, min(start + 2 * width, hi))
        for i in range(lo, hi):
            keys[i] = spare_keys[i]
            rows[i] = spare_rows[i]
        width *= 2


@helper
def _deal(keys, rows, out_keys, out_rows, lo, hi, least, shift, ends):  # type: ignore[no-untyped-def]  # noqa: PLR0913, PLR0917  a kernel has no structs
    """Deal rows into buckets by `(key - least) >> shift`; `ends[b]` becomes the end of bucket b."""
    buckets = len(ends) - 1
    for b in range(buckets + 1):
        ends[b] = 0
    ends[0] = lo
    for i in range(lo, hi):
        ends[np.int64((keys[i] - least) >> shift) + 1] += 1
    for b in range(buckets):
        ends[b + 1] += ends[b]
    for i in range(lo, hi):
        key = keys[i]
        bucket = np.int64((key - least) >> shift)
        position = ends[bucket]
        ends[bucket] = position + 1
        out_keys[position] = key
        out_rows[position] = rows[i]


@helper
def _sort_crowded(keys, rows, spare_keys, spare_rows, lo, hi):  # type: ignore[no-untyped-def]
    """Sort a crowded bucket in place: deal it by its own range, and sort buckets that are still crowded by merging."""
    least, most = keys[lo], keys[lo]
    for i in range(lo, hi):
        least = min(least, keys[i])
        most = max(most, keys[i])
    if least == most:
        return
    if hi - lo < CROWDED_ROWS_MIN:
        _merge_sort(keys, rows, spare_keys, spare_rows, lo, hi)
        return
    span_bits = _bit_length(most - least)
    bits = min(span_bits, _bit_length(np.uint64(hi - lo - 1)) + SPARE_BITS)
    ends = np.empty((1 << bits) + 1, np.int64)
    _deal(keys, rows, spare_keys, spare_rows, lo, hi, least, np.uint64(span_bits - bits), ends)
    start = lo
    for b in range(1 << bits):
        end = ends[b]
        if end - start > INSERTION_ROWS:
            _merge_sort(spare_keys, spare_rows, keys, rows, start, end)
        elif end - start > 1:
            _insertion_sort(spare_keys, spare_rows, start, end)
        start = end
    for i in range(lo, hi):
        keys[i] = spare_keys[i]
        rows[i] = spare_rows[i]


@helper
def _sort_buckets(spare_keys, spare_rows, keys, rows, lo, ends):  # type: ignore[no-untyped-def]
    """Sort within each bucket.

    If no bucket is crowded, one insertion sort passes over all of them, because branches per bucket cost more than its
    steps.
    """
    buckets = len(ends) - 1
    largest = ends[0] - lo
    for b in range(1, buckets):
        largest = max(largest, ends[b] - ends[b - 1])
    if largest <= INSERTION_ROWS:
        _insertion_sort(keys, rows, lo, ends[buckets - 1])
        return
    start = lo
    for b in range(buckets):
        end = ends[b]
        if end - start > INSERTION_ROWS:
            _sort_crowded(keys, rows, spare_keys, spare_rows, start, end)
        elif end - start > 1:
            _insertion_sort(keys, rows, start, end)
        start = end


@helper
def _sort_all(keys, rows, out_keys, out_rows):  # type: ignore[no-untyped-def]
    """Sort (key, row) pairs; return True if the result is in the input arrays, False if it is in the output arrays.

    The other pair of arrays is scratch space.
    """
    n = len(keys)
    least, most = keys[0], keys[0]
    for i in range(n):
        least = min(least, keys[i])
        most = max(most, keys[i])
    span_bits = _bit_length(most - least)
    bits = _bit_length(np.uint64(n - 1)) + SPARE_BITS
    block_ends = np.empty(1, np.int64)
    block_ends[0] = n
    shift = np.uint64(span_bits)
    if n > 2 * BLOCK_ROWS:
        # Blocks of about BLOCK_ROWS rows, so that the scattered writes of the inner deal stay in the cache.
        shift = np.uint64(max(0, span_bits - min(BLOCKS_BITS, bits - BLOCK_BITS - SPARE_BITS)))
        block_ends = np.empty(np.int64((most - least) >> shift) + 2, np.int64)
        _deal(keys, rows, out_keys, out_rows, np.int64(0), n, least, shift, block_ends)
        keys, rows, out_keys, out_rows = out_keys, out_rows, keys, rows
    start = np.int64(0)  # a plain 0 has another type, so that numba would compile every helper twice
    ends = np.empty(1, np.int64)
    for b in range(max(1, len(block_ends) - 1)):
        end = block_ends[b]
        # Two to four buckets per row, so that few buckets hold several rows.
        inner_bits = min(np.int64(shift), _bit_length(np.uint64(end - start)) + SPARE_BITS)
        first = least + (np.uint64(b) << shift)
        if len(ends) != (1 << inner_bits) + 1:
            ends = np.empty((1 << inner_bits) + 1, np.int64)
        _deal(keys, rows, out_keys, out_rows, start, end, first, shift - np.uint64(inner_bits), ends)
        _sort_buckets(keys, rows, out_keys, out_rows, start, ends)
        start = end
    return n > 2 * BLOCK_ROWS


@kernel(types.void(_FLAGS, _U64_OUT, _I64_OUT))
def sort_runs(fresh, words, rows):  # type: ignore[no-untyped-def]
    """Sort (word, row) pairs stably by word, in place and within each run; `fresh[i]` marks that a run starts at i."""
    n = len(words)
    start = np.int64(0)
    while start < n:
        end = start + 1
        while end < n and not fresh[end]:
            end += 1
        if end - start > INSERTION_ROWS:
            spare_words, spare_rows = np.empty(end - start, np.uint64), np.empty(end - start, np.int64)
            if not _sort_all(words[start:end], rows[start:end], spare_words, spare_rows):
                for i in range(end - start):
                    words[start + i] = spare_words[i]
                    rows[start + i] = spare_rows[i]
        elif end - start > 1:
            _insertion_sort(words, rows, start, end)
        start = end


@kernel(types.void(_U64, _FLAGS_OUT))
def mark_changes(words, fresh):  # type: ignore[no-untyped-def]
    """Set `fresh[i]` where `words[i]` differs from its predecessor."""
    for i in range(1, len(words)):
        if words[i] != words[i - 1]:
            fresh[i] = 1


@kernel(types.int64(_FLAGS, _I64_OUT))
def positions_of(fresh, out):  # type: ignore[no-untyped-def]
    """Write the positions of the set flags; return their number."""
    count = 0
    for i in range(len(fresh)):
        out[count] = i
        count += fresh[i]
    return count


@kernel(types.void(_I64, _I64_OUT, _I64_OUT))
def deal_by(dest, offsets, order):  # type: ignore[no-untyped-def]
    """Order rows stably by destination; `offsets`, zeroed, of W + 1 entries, becomes the bounds."""
    for i in range(len(dest)):
        offsets[dest[i] + 1] += 1
    for b in range(1, len(offsets)):
        offsets[b] += offsets[b - 1]
    cursor = offsets.copy()
    for i in range(len(dest)):
        order[cursor[dest[i]]] = i
        cursor[dest[i]] += 1

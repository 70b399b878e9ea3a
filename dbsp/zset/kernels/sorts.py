"""Kernels that sort hashes: stable, by buckets, because hashes are spread evenly.

A large input is first dealt into blocks that fit the cache, each block into about as many buckets as it has rows, each
bucket sorted by insertion. A crowded bucket (a key with many rows, an uneven range) is sorted by merging: the cost never
exceeds n log n.
"""

from __future__ import annotations

import numpy as np
from numba import types

from dbsp.zset.kernels.kernel import helper, kernel, reads, writes

BLOCK_ROWS = 8192
INSERTION_ROWS = 24

_U64, _U64_OUT = reads(types.uint64), writes(types.uint64)
_I64, _I64_OUT = reads(types.int64), writes(types.int64)
_FLAGS, _FLAGS_OUT = reads(types.uint8), writes(types.uint8)


@helper
def _bit_length(value):  # type: ignore[no-untyped-def]
    """How many bits `value` needs."""
    bits = 0
    while value:
        value >>= np.uint64(1)
        bits += 1
    return bits


@helper
def _insertion_sort(keys, rows, lo, hi):  # type: ignore[no-untyped-def]
    """Sort a few rows."""
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
    """Merge two neighbouring sorted runs into the other array."""
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
    """Sort a crowded bucket in place."""
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
def _deal(keys, rows, out_keys, out_rows, ends, lo, hi, bits):  # type: ignore[no-untyped-def]  # noqa: PLR0917  a kernel has no structs
    """Deal rows into at most 2**bits buckets by their leading bits; `ends[b]` becomes where bucket b ends; how many."""
    least, most = keys[lo], keys[lo]
    for i in range(lo + 1, hi):
        least = min(least, keys[i])
        most = max(most, keys[i])
    shift = np.uint64(max(0, _bit_length(most - least) - bits))
    buckets = np.int64((most - least) >> shift) + 1
    ends[: buckets + 1] = 0
    for i in range(lo, hi):
        ends[np.int64((keys[i] - least) >> shift) + 1] += 1
    ends[0] = lo
    for b in range(buckets):
        ends[b + 1] += ends[b]
    for i in range(lo, hi):
        b = np.int64((keys[i] - least) >> shift)
        position = ends[b]
        ends[b] = position + 1
        out_keys[position] = keys[i]
        out_rows[position] = rows[i]
    return buckets


@helper
def _sort_block(keys, rows, out_keys, out_rows, ends, lo, hi):  # type: ignore[no-untyped-def]
    """Sort one block from `keys`, `rows` into `out_keys`, `out_rows`; the former are scratch afterwards."""
    if hi - lo <= INSERTION_ROWS:
        for i in range(lo, hi):
            out_keys[i] = keys[i]
            out_rows[i] = rows[i]
        _insertion_sort(out_keys, out_rows, lo, hi)
        return
    bits = min(_bit_length(np.uint64(hi - lo - 1)), _bit_length(np.uint64(BLOCK_ROWS - 1)))
    buckets = _deal(keys, rows, out_keys, out_rows, ends, lo, hi, bits)
    start = lo
    for b in range(buckets):
        end = ends[b]
        if end - start > INSERTION_ROWS:
            _merge_sort(out_keys, out_rows, keys, rows, start, end)
        elif end - start > 1:
            _insertion_sort(out_keys, out_rows, start, end)
        start = end


@helper
def _sort_large(keys, rows, out_keys, out_rows, lo, hi):  # type: ignore[no-untyped-def]
    """Sort any number of rows; the input becomes scratch."""
    ends = np.empty(BLOCK_ROWS + 2, np.int64)
    if hi - lo <= 2 * BLOCK_ROWS:
        _sort_block(keys, rows, out_keys, out_rows, ends, lo, hi)
        return
    blocks_bits = min(13, _bit_length(np.uint64((hi - lo) // BLOCK_ROWS)))
    block_ends = np.empty((1 << blocks_bits) + 2, np.int64)
    blocks = _deal(keys, rows, out_keys, out_rows, block_ends, lo, hi, blocks_bits)
    start = lo
    for b in range(blocks):
        end = block_ends[b]
        if end > start:
            for i in range(start, end):
                keys[i] = out_keys[i]
                rows[i] = out_rows[i]
            _sort_block(keys, rows, out_keys, out_rows, ends, start, end)
        start = end


@kernel(types.void(_U64_OUT, _I64_OUT, _U64_OUT, _I64_OUT))
def sort_words(keys, rows, out_keys, out_rows):  # type: ignore[no-untyped-def]
    """Sort (key, row) pairs stably by key into the outputs; the inputs become scratch."""
    if len(keys):
        _sort_large(keys, rows, out_keys, out_rows, 0, len(keys))


@kernel(types.void(_FLAGS, _U64_OUT, _I64_OUT))
def refine(fresh, words, rows):  # type: ignore[no-untyped-def]
    """Sort (word, row) pairs within each run; `fresh[i]` says that a run starts at i."""
    n = len(words)
    spare_words = np.empty(0, np.uint64)
    spare_rows = np.empty(0, np.int64)
    start = 0
    while start < n:
        end = start + 1
        while end < n and not fresh[end]:
            end += 1
        if end - start > INSERTION_ROWS:
            if len(spare_words) < n:
                spare_words = np.empty(n, np.uint64)
                spare_rows = np.empty(n, np.int64)
            spare_words[start:end] = words[start:end]
            spare_rows[start:end] = rows[start:end]
            _sort_large(spare_words, spare_rows, words, rows, start, end)
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
    """Write the positions of the set flags; how many."""
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

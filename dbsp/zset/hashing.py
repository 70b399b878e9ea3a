"""The 64-bit hash of a key: it is stored on disk and decides the shard of a row, so it must never change.

1. A column hashes by value. Integers of any width, booleans, dates, times and durations hash by their 64-bit integer. Floats
   hash by the bits of the canonical float64 (one NaN, one zero), decimals by the two words of the unscaled value. Strings and
   binary hash by their bytes, lists by theirs (`dbsp.zset.nested`). A struct hashes like a constant and its fields as columns. A
   null hashes to one constant.
2. One null-free column of at most 64 bits hashes without collision.
3. Several columns are combined in order, so that (a, b) and (b, a) differ; no column at all hashes to 0.
4. The result is the same on every machine, in every process and version: golden values in the tests.

Source: docs/concepts/data.md; `kernels.hashes` has the arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dbsp.zset import kernels
from dbsp.zset.arrays import (
    NAN,
    bool_values,
    bytes_view,
    fields_of,
    is_bool,
    is_bytes,
    is_decimal,
    is_float,
    is_struct,
    pair_view,
    valid_rows,
    value_view,
)
from dbsp.zset.coded import codes_of, is_coded
from dbsp.zset.schema import Arrangement, fits_a_word

NULL_HASH = np.uint64(0x5BD1E9955A3C9E37)
"""The hash of a null in any column."""

STRUCT_HASH = np.uint64(0x9E6C63D0876A3F35)
"""Initial value of a struct's hash, so that a struct whose fields are all null is not hashed like a null."""

_bits_kept: ContextVar[int | None] = ContextVar("hash bits kept", default=None)


@contextmanager
def narrow_hash(bits: int) -> Iterator[None]:
    """Keep only the top `bits` of every hash, in this thread, so that a test has collisions for certain."""
    token = _bits_kept.set(bits)
    try:
        yield
    finally:
        _bits_kept.reset(token)


def hash_columns(arrays: Sequence[pa.Array], n: int) -> NDArray[np.uint64]:
    """Return the hash of each of n rows over these columns.

    **Shape** Columns of n rows each; n words.

    **Example**

    >>> import pyarrow as pa
    >>> hash_columns([pa.array([5, None])], 2).tolist() == hash_columns([pa.array([5, None], pa.int8())], 2).tolist()
    True
    """
    if not arrays:
        return np.zeros(n, np.uint64)
    hashed = _combined(hash_column(arrays[0]), arrays[1:])
    bits = _bits_kept.get()
    return hashed if bits is None else hashed & np.uint64(((1 << bits) - 1) << (64 - bits))


def _combined(hashed: NDArray[np.uint64], arrays: Sequence[pa.Array]) -> NDArray[np.uint64]:
    """Return hashes with those of more columns combined into them, in order."""
    for array in arrays:
        hashed = kernels.combine_hashes(hashed, hash_column(array))
    return hashed


def hash_column(array: pa.Array) -> NDArray[np.uint64]:
    """Return the hash of each value of a column."""
    if is_coded(array):
        hashed = _hash_coded(array)
    elif is_bytes(array):
        hashed = kernels.hash_bytes(*bytes_view(array))
    elif is_struct(array):
        hashed = _combined(np.full(len(array), STRUCT_HASH), fields_of(array))
    elif is_decimal(array):
        hashed = kernels.hash_word_pairs(pair_view(array))
    else:
        hashed = kernels.hash_words(_words(array))
    valid = valid_rows(array)
    if valid is not None:
        hashed[~valid] = NULL_HASH
    return hashed


def _hash_coded(array: pa.Array) -> NDArray[np.uint64]:
    """Return the hash of each value of coded texts.

    Each dictionary value is hashed once, unless the dictionary has more values than rows or the column has nulls.
    """
    dictionary = array.dictionary
    if len(dictionary) > len(array) or array.null_count:
        return kernels.hash_bytes(*bytes_view(array))
    hashes = kernels.hash_bytes(*bytes_view(dictionary))
    return np.repeat(hashes, len(array)) if len(hashes) == 1 else hashes.take(codes_of(array))


def _words(array: pa.Array) -> NDArray[np.uint64]:
    """Return the 64-bit word that represents each value of a column of at most 64 bits."""
    if is_bool(array):
        return bool_values(array).astype(np.uint64)
    values: NDArray[Any] = value_view(array)
    if is_float(array):
        wide = values.astype(np.float64) + 0.0  # -0.0 + 0.0 is 0.0
        wide[np.isnan(wide)] = NAN[wide.dtype]
        return wide.view(np.uint64)
    if values.dtype.kind == "i":
        return values.astype(np.int64, copy=False).view(np.uint64)
    return values.astype(np.uint64, copy=False)


def hash_decides(arrays: Sequence[pa.Array]) -> bool:
    """Return whether equal hashes guarantee equal rows: true for no column, or one null-free column of at most 64 bits."""
    if _bits_kept.get() is not None:
        return False
    return len(arrays) == 0 or (len(arrays) == 1 and fits_a_word(arrays[0].type) and arrays[0].null_count == 0)


def hash_is_injective(arrangement: Arrangement) -> bool:
    """Return whether the schema alone guarantees that keys with one hash are the same key.

    True for a key of one column of at most 64 bits without nulls by its schema (and for the empty key). For a batch
    whose column merely happens to hold no null, call `hash_decides` with its arrays.
    """
    if _bits_kept.get() is not None:
        return False
    columns = [arrangement.schema[name] for name in arrangement.key]
    return len(columns) == 0 or (len(columns) == 1 and fits_a_word(columns[0].type) and not columns[0].nullable)

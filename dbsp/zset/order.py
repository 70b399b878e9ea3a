"""Order of columns: codes that sort like values, and the exact order of rows.

1. The code of a column is weakly monotone: a < b implies code(a) <= code(b). It is exact for types of less than 64 bits and for
   floats. For 64-bit types it is exact except that their extremes share the codes of null. A string's code has its first eight
   bytes; decimals are clamped to 64 bits. Callers that need the exact order settle ties on the columns.
2. Values sort like numbers, strings like their bytes, false before true, NaN above every number. Descending reverses that,
   so NaN is first. Nulls are last unless `nulls_first`, in either direction. Structs sort by their fields in
   order, a null field above every value; the code is that of the first field. Lists sort element by element, a null element
   above every value, and a prefix before the longer list. A list's code is that of its first element, the least if empty.
3. The codes are stored, so they must never change: golden values in the tests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dbsp.zset import kernels
from dbsp.zset.arrays import (
    NAN,
    Positions,
    bool_values,
    bytes_view,
    fields_of,
    gather,
    is_bool,
    is_bytes,
    is_decimal,
    is_struct,
    join,
    pair_view,
    storage_type,
    valid_rows,
    value_view,
)
from dbsp.zset.coded import codes_of, is_coded, plain
from dbsp.zset.runs import begins
from dbsp.zset.schema import OrderBy, is_list

_SIGN = np.uint64(1 << 63)
_LEAST, _MOST = np.uint64(0), np.uint64((1 << 64) - 1)


def order_codes(array: pa.Array, order_by: OrderBy) -> NDArray[np.uint64]:
    """Return the order code of each value: smaller codes are first in the requested order.

    **Example**

    >>> import pyarrow as pa
    >>> from dbsp.zset.schema import OrderBy
    >>> order_codes(pa.array([3, None, -1]), OrderBy("a", descending=True)).argsort().tolist()
    [0, 2, 1]
    """
    codes = _ascending_codes(array)
    if order_by.descending:
        codes = ~codes
    valid = valid_rows(array)
    if valid is not None:
        codes[~valid] = _LEAST if order_by.nulls_first else _MOST
    return codes


def _ascending_codes(array: pa.Array) -> NDArray[np.uint64]:
    """Return the codes in ascending order, without regard to nulls, as a new array."""
    if is_coded(array) and not array.null_count and len(array.dictionary) <= len(array):
        return _ascending_codes(array.dictionary).take(codes_of(array))
    if is_list(array.type):
        return _first_codes(array)
    if is_bytes(array):
        return kernels.leading_words(*bytes_view(array))
    if is_struct(array):
        return order_codes(fields_of(array)[0], OrderBy(""))
    if is_bool(array):
        return bool_values(array).astype(np.uint64) ^ _SIGN
    if is_decimal(array):
        return _clamped(pair_view(array))
    return _word_codes(value_view(array))


def _first_codes(lists: pa.Array) -> NDArray[np.uint64]:
    """Return the code of each list's first element; the least code for an empty list."""
    counts, elements = _elements(lists)
    some = np.flatnonzero(counts)
    codes = np.full(len(lists), _LEAST)
    codes[some] = order_codes(gather(elements, (np.cumsum(counts) - counts)[some]), OrderBy(""))
    return codes


def _elements(lists: pa.Array) -> tuple[Positions, pa.Array]:
    """Return each list's number of elements, and all elements concatenated; a null list has none."""
    return np.asarray(pc.fill_null(pc.list_value_length(lists), 0)).astype(np.int64), lists.flatten()


def not_above(left: pa.Array, right: pa.Array) -> NDArray[np.bool_]:
    """Return whether left <= right in ascending order, row by row; false where the right value is null.

    **Example**

    >>> not_above(pa.array([1.0, float("nan"), 2.0]), pa.array([1.0, 5.0, None])).tolist()
    [True, False, False]
    """
    rows = len(left)
    below, same = np.zeros(rows, np.bool_), np.ones(rows, np.bool_)
    for word in _exact_words(join([left, right]), OrderBy("")):
        below |= same & (word[:rows] < word[rows:])
        same &= word[:rows] == word[rows:]
    valid = valid_rows(right)
    return below | same if valid is None else (below | same) & valid


def _word_codes(values: NDArray[Any]) -> NDArray[np.uint64]:
    """Return exact codes of numbers of at most 64 bits."""
    if values.dtype == np.uint64:
        return values.copy()
    if values.dtype.kind in "iu":
        return values.astype(np.int64, copy=False).view(np.uint64) ^ _SIGN
    wide = values.astype(np.float64) + 0.0  # -0.0 + 0.0 is 0.0
    wide[np.isnan(wide)] = NAN[wide.dtype]
    bits = wide.view(np.uint64)
    return np.where(bits >= _SIGN, ~bits, bits | _SIGN)


def number_words(array: pa.Array) -> NDArray[np.uint64]:
    """Return a word for each number, or time, of at most 64 bits, in exactly the numbers' order; a null's word is undefined.

    **Law** `numbers_of(number_words(array), array.type)` are the values, with canonical floats.

    **Example**

    >>> import pyarrow as pa
    >>> words = number_words(pa.array([2.5, -1.0, 0.0]))
    >>> words.argsort().tolist()
    [1, 2, 0]
    >>> numbers_of(words, pa.float64()).tolist()
    [2.5, -1.0, 0.0]
    """
    return _word_codes(value_view(array))


def numbers_of(words: NDArray[np.uint64], type_: pa.DataType) -> NDArray[Any]:
    """Return the numbers of words from `number_words`, in the type's storage."""
    dtype = np.dtype(storage_type(type_))
    if dtype == np.uint64:
        return words
    if dtype.kind in "iu":
        return (words ^ _SIGN).view(np.int64).astype(dtype, copy=False)
    return np.where(words >= _SIGN, words ^ _SIGN, ~words).view(np.float64).astype(dtype)


def _clamped(pairs: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return codes of 128-bit integers: exact within 64 signed bits, the extremes beyond."""
    low, high = pairs[:, 0], pairs[:, 1].astype(np.int64)
    codes = low ^ _SIGN
    codes[(high > 0) | ((high == 0) & (low >= _SIGN))] = _MOST
    codes[(high < -1) | ((high == -1) & (low < _SIGN))] = _LEAST
    return codes


def sort_named(
    column: Callable[[str], pa.Array], names: Sequence[str], rows: int, order: Sequence[OrderBy]
) -> Positions:
    """Return the positions of rows in exact order; ties are broken by all other columns, ascending, nulls last.

    `column` is asked for the other columns only where rows tie.
    """
    named = {by.column for by in order}
    ties = [OrderBy(name) for name in names if name not in named]
    keys = [word for by in order for word in _exact_words(column(by.column), by)]
    if keys:
        positions = np.lexsort(keys[::-1])
        if not ties or not _has_ties(keys, positions):
            return positions
    keys += [word for by in ties for word in _exact_words(column(by.column), by)]
    return np.lexsort(keys[::-1]) if keys else np.arange(rows)


def sort_columns(arrays: Sequence[pa.Array], first: NDArray[Any]) -> Positions:
    """Return the order of rows by `first`, then by all columns ascending, nulls last: the canonical order of rows."""
    keys = [first] + [word for array in arrays for word in _exact_words(array, OrderBy(""))]
    return np.lexsort(keys[::-1])


def _has_ties(keys: list[NDArray[Any]], positions: Positions) -> bool:
    """Return whether two neighbours in the sorted order agree in all keys."""
    same = np.ones(max(len(positions) - 1, 0), np.bool_)
    for key in keys:
        ordered = key[positions]
        same &= ordered[1:] == ordered[:-1]
    return bool(same.any())


def _exact_words(array: pa.Array, order_by: OrderBy) -> list[NDArray[Any]]:
    """Return arrays that together sort exactly like the column, the most significant first."""
    if is_bytes(array):
        ranks = pc.rank(_ranked(array), sort_keys="ascending", tiebreaker="dense")
        words: list[NDArray[Any]] = [np.asarray(ranks).astype(np.uint64)]
    elif is_struct(array):
        words = [word for field in fields_of(array) for word in _exact_words(field, OrderBy(""))]
    elif is_decimal(array):
        pairs = pair_view(array)
        words = [pairs[:, 1] ^ _SIGN, pairs[:, 0].copy()]
    else:
        words = [_ascending_codes(array)]
    if order_by.descending:
        words = [~word for word in words]
    valid = valid_rows(array)
    if valid is None:
        return words
    for word in words:
        word[~valid] = 0
    return [valid if order_by.nulls_first else ~valid, *words]


def _ranked(array: pa.Array) -> pa.Array:
    """Return texts or lists in a form whose bytes sort like the values: a list becomes the big-endian ranks of its elements."""
    if not is_list(array.type):
        return plain(array)
    counts, elements = _elements(array)
    ranks = _dense_ranks(_exact_words(elements, OrderBy("")), len(elements)).astype(">u4")
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts * ranks.itemsize)])
    return pa.Array.from_buffers(pa.large_binary(), len(array), [None, pa.py_buffer(ends), pa.py_buffer(ranks)])


def _dense_ranks(keys: list[NDArray[Any]], rows: int) -> Positions:
    """Return the rank of each row's value among the distinct values, from 0."""
    order = np.lexsort(keys[::-1])
    ranks = np.empty(rows, np.int64)
    ranks[order] = np.cumsum(begins(*(key[order] for key in keys))) - 1
    return ranks

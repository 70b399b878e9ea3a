"""Equality of rows: SQL's `is not distinct from`, column by column, for many pairs at once.

Null equals null and nothing else; -0.0 equals 0.0; every NaN equals every NaN. Decimals and times are compared by
value, lists by their elements, structs by their fields. A null struct differs from a struct whose fields are all null.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dbsp.zset import kernels
from dbsp.zset.arrays import (
    Positions,
    bool_values,
    bytes_view,
    fields_of,
    gather,
    is_bool,
    is_bytes,
    is_decimal,
    is_float,
    is_struct,
    is_word,
    pair_view,
    valid_rows,
    value_view,
)
from dbsp.zset.coded import codes_of, is_coded, plain, share_dictionary
from dbsp.zset.schema import is_list


def equal_keys(left: pa.Array, left_rows: Positions, right: pa.Array, right_rows: Positions) -> NDArray[np.bool_]:
    """Return the mask of the pairs i in which row `left_rows[i]` of the left column equals row `right_rows[i]` of the right.

    **Shape** Two columns of one type, two int64 arrays of m positions; m booleans out.

    **Example**

    >>> import numpy as np, pyarrow as pa
    >>> left, right = pa.array([1, None, 3]), pa.array([None, 3])
    >>> equal_keys(left, np.array([0, 1, 2]), right, np.array([0, 0, 1])).tolist()
    [False, True, True]
    """
    same: NDArray[np.bool_] = _equal_values(left, left_rows, right, right_rows)
    left_valid, right_valid = valid_rows(left, left_rows), valid_rows(right, right_rows)
    if left_valid is None and right_valid is None:
        return same
    if left_valid is not None and right_valid is not None:
        return np.where(left_valid & right_valid, same, left_valid == right_valid)
    return same & (left_valid if left_valid is not None else right_valid)  # type: ignore[operator]  # one is there


def _equal_values(left: pa.Array, left_rows: Positions, right: pa.Array, right_rows: Positions) -> NDArray[np.bool_]:
    """Return whether values are equal, without regard to nulls."""
    if is_list(left.type):
        return _equal_lists(left, left_rows, right, right_rows)
    if is_coded(left) or is_coded(right):
        return _equal_texts(left, left_rows, right, right_rows)
    if is_bytes(left):
        return kernels.equal_bytes(bytes_view(left), left_rows, bytes_view(right), right_rows)
    if is_struct(left):
        return equal_columns(fields_of(left), left_rows, fields_of(right), right_rows)
    if is_bool(left):
        return np.equal(bool_values(left, left_rows), bool_values(right, right_rows))
    if is_decimal(left):
        pairs = pair_view(left).take(left_rows, axis=0) == pair_view(right).take(right_rows, axis=0)
        return np.asarray(pairs.all(axis=1))
    a, b = value_view(left).take(left_rows), value_view(right).take(right_rows)
    if is_float(left):
        return np.asarray((a == b) | ((a != a) & (b != b)))  # noqa: PLR0124  NaN differs from itself
    return np.asarray(a == b)


def _equal_texts(left: pa.Array, left_rows: Positions, right: pa.Array, right_rows: Positions) -> NDArray[np.bool_]:
    """Return whether texts are equal, with at least one side coded; codes are compared if both share a dictionary."""
    if is_coded(left) and is_coded(right) and share_dictionary(left, right):
        if len(left.dictionary) == 1:
            return np.ones(len(left_rows), np.bool_)
        return np.asarray(codes_of(left).take(left_rows) == codes_of(right).take(right_rows))
    every = np.arange(len(left_rows))
    sides = [bytes_view(plain(gather(*side))) for side in ((left, left_rows), (right, right_rows))]
    return kernels.equal_bytes(sides[0], every, sides[1], every)


def _equal_lists(left: pa.Array, left_rows: Positions, right: pa.Array, right_rows: Positions) -> NDArray[np.bool_]:
    """Return whether lists have equal elements; the work depends on the pairs, not on the size of the columns."""
    starts, others = (np.asarray(array.offsets).astype(np.int64) for array in (left, right))
    counts = np.diff(starts)[left_rows]
    same = np.asarray(counts == np.diff(others)[right_rows])
    pairs = np.flatnonzero(same & (counts > 0))
    if len(pairs):
        counts = counts[pairs]
        first = np.cumsum(counts) - counts
        within = np.arange(int(counts.sum())) - np.repeat(first, counts)
        at, beside = (
            np.repeat(bounds[rows[pairs]], counts) + within
            for bounds, rows in ((starts, left_rows), (others, right_rows))
        )
        same[pairs] = np.logical_and.reduceat(equal_keys(left.values, at, right.values, beside), first)
    return same


def equal_columns(
    left: Sequence[pa.Array], left_rows: Positions, right: Sequence[pa.Array], right_rows: Positions
) -> NDArray[np.bool_]:
    """Return the mask of the pairs of rows that agree in all columns; left and right columns correspond by position."""
    same = np.ones(len(left_rows), np.bool_)
    for a, b in zip(left, right, strict=True):
        same &= equal_keys(a, left_rows, b, right_rows)
    return same


def equal_by_group(array: pa.Array, group: Positions, firsts: Positions) -> bool:
    """Return whether every row of a column equals the first row of its group, `firsts[group[i]]`."""
    if is_word(array):
        return kernels.words_by_group(value_view(array).view(np.uint64), group, firsts)
    if is_coded(array) and not array.null_count:
        codes = codes_of(array)
        return len(array.dictionary) == 1 or bool((codes == codes.take(firsts).take(group)).all())
    if is_bytes(array) and not array.null_count:
        return kernels.bytes_by_group(bytes_view(array), group, firsts)
    return bool(equal_keys(array, np.arange(len(array)), array, firsts.take(group)).all())

"""Rows in the order of their values, for aggregates that take a value from one of the rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from dbsp.operators.order.window_places import I64, Mask
from dbsp.zset.arrays import valid_rows
from dbsp.zset.batch import Batch
from dbsp.zset.batch_rows import sort_rows
from dbsp.zset.equality import equal_keys
from dbsp.zset.schema import Column, OrderBy, Schema

Way = tuple[bool, bool]
"""A column's direction: whether it is descending, and whether its nulls are first."""


def sorted_by(columns: Sequence[pa.Array], valid: Mask, ways: Sequence[Way]) -> I64:
    """Return the indices of the `valid` rows, in the order of the columns."""
    schema = Schema(tuple(Column(str(at), column.type) for at, column in enumerate(columns)))
    rows = Batch(schema=schema, columns=tuple(columns), weights=np.ones((len(valid), 1), np.int64))
    order = sort_rows(rows, [OrderBy(name, *way) for name, way in zip(schema.names, ways, strict=True)])
    return np.asarray(order[valid[order]])


def ranks_by(columns: Sequence[pa.Array], valid: Mask, ways: Sequence[Way]) -> I64:
    """Return the place of each row among the `valid` rows in the order of the columns; -1 for other rows."""
    order = sorted_by(columns, valid, ways)
    ranks = np.full(len(valid), -1, np.int64)
    ranks[order] = np.arange(len(order))
    return ranks


def codes_of(array: pa.Array, valid: Mask) -> tuple[I64, I64]:
    """Return each row's code, and the index of one row for each code.

    A code is the place of the row's value among the different values in ascending order; -1 for rows that are not `valid`.
    """
    order = sorted_by([array], valid, [(False, False)])
    fresh = np.ones(len(order), np.bool_)
    fresh[1:] = ~equal_keys(array, order[:-1], array, order[1:])
    codes = np.full(len(array), -1, np.int64)
    codes[order] = np.cumsum(fresh) - 1
    return codes, order[fresh]


def all_valid(columns: Sequence[pa.Array]) -> Mask:
    """Return the mask of the rows without a null in any of the columns."""
    valid = np.ones(len(columns[0]), np.bool_)
    for column in columns:
        some = valid_rows(column)
        valid = valid if some is None else valid & some
    return valid

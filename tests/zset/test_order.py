"""Order codes are weakly monotone, and sorting rows is exact: both against Python's own comparison."""

from __future__ import annotations

import math
from functools import cmp_to_key
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dbsp.zset import schema as z
from dbsp.zset.batch import Batch
from dbsp.zset.batch_rows import sort_rows
from dbsp.zset.order import order_codes
from dbsp.zset.schema import OrderBy, Schema
from tests.pace import examples
from tests.zset.strategies import SCALARS, TYPES, VALUES, batches, schemas

EXACT = [type_ for type_ in SCALARS if type_ not in (z.STRING, z.BINARY, z.decimal(38, 2))]


def compare(a: Any, b: Any) -> int:
    """The order of two values that are not null: NaN is above all numbers, strings compare by bytes, lists element by element."""
    if isinstance(a, float):
        return compare((math.isnan(a), 0 if math.isnan(a) else a), (math.isnan(b), 0 if math.isnan(b) else b))
    if isinstance(a, str):
        return compare(a.encode(), b.encode())
    if isinstance(a, list):
        return next(filter(None, map(compare_above, a, b)), len(a) - len(b))
    if isinstance(a, dict):
        return next(filter(None, (compare_above(a[name], b[name]) for name in a)), 0)
    return (a > b) - (a < b)


def compare_above(a: Any, b: Any) -> int:
    """The order of elements and fields: a null one is above every value."""
    return compare_by(a, b, OrderBy(""))


def compare_by(a: Any, b: Any, by: OrderBy) -> int:
    """The order asked for."""
    if a is None or b is None:
        side = -1 if by.nulls_first else 1
        return side * ((a is None) - (b is None))
    return -compare(a, b) if by.descending else compare(a, b)


@pytest.mark.parametrize("nulls_first", [False, True])
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("type_", TYPES, ids=str)
def test_codes_are_monotone(type_: pa.DataType, descending: bool, nulls_first: bool) -> None:
    """a before b implies code(a) <= code(b); strictly where the type is exact."""
    by = OrderBy("", descending, nulls_first)
    array = pa.array([None, *VALUES[type_], None], type_).slice(1)
    values, codes = array.to_pylist(), order_codes(array, by).tolist()
    for a, code_a in zip(values, codes, strict=True):
        for b, code_b in zip(values, codes, strict=True):
            before = compare_by(a, b, by)
            if before < 0:
                assert code_a <= code_b
                extreme = type_ in (z.INT64, z.UINT64) and (a is None or b is None)
                assert code_a < code_b or type_ not in EXACT or extreme
            elif before == 0:
                assert code_a == code_b


@settings(max_examples=examples(150), deadline=None)
@given(data=st.data())
def test_rows_sort_exactly(data: st.DataObject) -> None:
    """Any order, ties broken by the other columns, ascending, nulls last."""
    schema = data.draw(schemas())
    batch = data.draw(batches(schema))
    names = data.draw(st.permutations(schema.names))[: data.draw(st.integers(0, len(schema)))]
    order = tuple(OrderBy(name, data.draw(st.booleans()), data.draw(st.booleans())) for name in names)
    full = [*order, *(OrderBy(name) for name in schema.names if name not in names)]
    rows = [dict(zip(schema.names, row, strict=True)) for row, _ in batch.to_rows()]

    def before(i: int, j: int) -> int:
        for by in full:
            found = compare_by(rows[i][by.column], rows[j][by.column], by)
            if found:
                return found
        return i - j

    assert sort_rows(batch, order).tolist() == sorted(range(len(rows)), key=cmp_to_key(before))


def test_no_columns() -> None:
    """Nothing to sort by keeps the order."""
    schema = Schema(())
    batch = Batch(schema=schema, columns=(), weights=np.ones((3, 1), np.int64))
    assert sort_rows(batch, ()).tolist() == [0, 1, 2]

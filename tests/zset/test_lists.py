"""Lists as bytes: there and back, equal exactly when equal, in one order everywhere."""

from __future__ import annotations

from functools import cmp_to_key
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dbsp.errors import CircuitError, DataError
from dbsp.zset.batch import Batch
from dbsp.zset.batch_rows import sort_rows
from dbsp.zset.lists import list_bytes, lists_of
from dbsp.zset.order import order_codes
from dbsp.zset.schema import Column, OrderBy, Schema, list_of
from tests.pace import examples
from tests.zset.strategies import SCALARS, VALUES, canonical
from tests.zset.test_order import compare_above


@st.composite
def columns(draw: st.DrawFn) -> pa.Array:
    """A column of lists of any scalars, often a slice of a longer one."""
    type_ = draw(st.sampled_from(SCALARS))
    lists = st.none() | st.lists(st.none() | st.sampled_from(VALUES[type_]), max_size=4)
    array = pa.array(draw(st.lists(lists, max_size=12)), list_of(type_))
    return array.slice(draw(st.integers(0, 2)))


@settings(max_examples=examples(300), deadline=None)
@given(columns())
def test_there_and_back(array: pa.Array) -> None:
    """Every scalar, nulls inside and outside, slices."""
    stored = list_bytes(array)
    stored.validate(full=True)
    back = lists_of(stored, array.type)
    back.validate(full=True)
    assert back.type == array.type
    assert list(map(canonical, back.to_pylist())) == list(map(canonical, array.to_pylist()))
    assert list_bytes(back).equals(stored)


@settings(max_examples=examples(200), deadline=None)
@given(columns())
def test_equal_bytes_are_equal_lists(array: pa.Array) -> None:
    """And different ones different."""
    values, stored = list(map(canonical, array.to_pylist())), list_bytes(array).to_pylist()
    for a, x in zip(values, stored, strict=True):
        for b, y in zip(values, stored, strict=True):
            assert (a == b) == (x == y)


@settings(max_examples=examples(100), deadline=None)
@given(columns())
def test_one_order(array: pa.Array) -> None:
    """Sorting goes element by element, then by length, and codes agree with it."""
    values = array.to_pylist()
    rows = sort_rows(Batch.of(Schema((Column("x", array.type),)), [array]), (OrderBy("x"),)).tolist()
    assert rows == sorted(range(len(values)), key=cmp_to_key(lambda a, b: compare_above(values[a], values[b])))
    codes = order_codes(array, OrderBy("x"))[rows].tolist()
    assert codes == sorted(codes)


@pytest.mark.parametrize("type_", [pa.int32(), pa.string()])
def test_damage_is_found(type_: pa.DataType) -> None:
    """Bytes that no list has."""
    with pytest.raises(DataError, match="damaged list"):
        lists_of(pa.array([b"\2\0\0\0\1\1"], pa.binary()), list_of(type_))


@pytest.mark.parametrize(
    "type_",
    [
        pa.map_(pa.string(), pa.int64()),
        pa.struct([]),
        pa.struct([("a", pa.int64()), ("a", pa.int64())]),
        pa.list_(pa.struct([("a", pa.float16())])),
    ],
)
def test_other_types_are_refused(type_: Any) -> None:
    """Maps, structs without fields or with two of one name, and what is no column type deep inside."""
    with pytest.raises(CircuitError, match="unsupported column type"):
        Column("x", type_)

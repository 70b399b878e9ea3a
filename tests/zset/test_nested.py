"""Lists and structs inside each other: there and back, equal exactly when equal, one order, one form on disk."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dbsp.errors import CircuitError, DataError
from dbsp.zset.batch import Batch, arrange
from dbsp.zset.batch_rows import sort_rows
from dbsp.zset.encoding import decode, encode, schema_id
from dbsp.zset.equality import equal_keys
from dbsp.zset.fitting import array_of, cast_to
from dbsp.zset.hashing import hash_columns
from dbsp.zset.nested import nested_bytes, nested_of
from dbsp.zset.order import order_codes
from dbsp.zset.schema import BINARY, INT32, INT64, STRING, Arrangement, Column, OrderBy, Schema, list_of, struct_of
from tests.pace import examples
from tests.zset.strategies import SCALARS, VALUES, canonical

NAMES = ["a", "b", "a.b", ""]


def structs(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    """Structs of one to four fields."""
    return st.dictionaries(st.sampled_from(NAMES), inner, min_size=1).map(struct_of)


TYPES = st.recursive(st.sampled_from(SCALARS), lambda inner: inner.map(list_of) | structs(inner), max_leaves=5)
NESTED = TYPES.filter(pa.types.is_nested)


def values(type_: pa.DataType) -> st.SearchStrategy[Any]:
    """Values of a type, nulls everywhere."""
    if pa.types.is_list(type_):
        return st.none() | st.lists(values(type_.value_type), max_size=3)
    if pa.types.is_struct(type_):
        return st.none() | st.fixed_dictionaries({field.name: values(field.type) for field in type_})
    return st.none() | st.sampled_from(VALUES[type_])


@st.composite
def columns(draw: st.DrawFn) -> pa.Array:
    """A column of a nested type, often a slice, often with values under null structs."""
    type_ = draw(NESTED)
    array = pa.array(draw(st.lists(values(type_), max_size=8)), type_)
    if pa.types.is_struct(type_) and len(array) and draw(st.booleans()):
        mask = pa.array(draw(st.lists(st.booleans(), min_size=len(array), max_size=len(array))))
        array = pa.StructArray.from_arrays(array.flatten(), fields=list(type_), mask=mask)
    return array.slice(draw(st.integers(0, 2)))


def listed(array: pa.Array) -> list[Any]:
    """Its values, comparable."""
    return list(map(canonical, array.to_pylist()))


@settings(max_examples=examples(300), deadline=None)
@given(columns())
def test_there_and_back(array: pa.Array) -> None:
    """As bytes, and in an encoded batch; both have one form for equal values."""
    stored = nested_bytes(array)
    stored.validate(full=True)
    back = nested_of(stored, array.type)
    back.validate(full=True)
    assert back.type == array.type
    assert listed(back) == listed(array)
    assert nested_bytes(back).equals(stored)
    schema = Schema((Column("x", array.type),))
    batch = Batch.of(schema, [array])
    written = encode(batch)
    again = decode(written, schema)
    again.columns[0].validate(full=True)
    assert listed(again.columns[0]) == listed(array)
    assert encode(again) == written == encode(Batch.of(schema, [back]))


@settings(max_examples=examples(200), deadline=None)
@given(columns())
def test_equal_values_are_equal_in_all_forms(array: pa.Array) -> None:
    """Bytes, hashes and comparison say what Python says."""
    shown, stored, hashes = listed(array), nested_bytes(array).to_pylist(), hash_columns([array], len(array))
    left, right = (grid.reshape(-1) for grid in np.meshgrid(np.arange(len(array)), np.arange(len(array))))
    same = equal_keys(array, left, array, right)
    for a, b, equal in zip(left.tolist(), right.tolist(), same.tolist(), strict=True):
        assert equal == (shown[a] == shown[b]) == (stored[a] == stored[b])
        assert not equal or hashes[a] == hashes[b]


@settings(max_examples=examples(200), deadline=None)
@given(columns(), st.booleans(), st.booleans())
def test_one_order(array: pa.Array, descending: bool, nulls_first: bool) -> None:
    """Codes never contradict the order of rows; equal values stand together."""
    by = OrderBy("x", descending, nulls_first)
    rows = sort_rows(Batch.of(Schema((Column("x", array.type),)), [array]), (by,))
    codes = order_codes(array, by)[rows].tolist()
    assert codes == sorted(codes)
    shown = [repr(listed(array)[row]) for row in rows]
    runs = [value for before, value in zip([None, *shown], shown, strict=False) if value != before]
    assert len(runs) == len(set(runs))


def test_structs_sort_by_their_fields() -> None:
    """The first field decides, a null field is above, a null struct last."""
    type_ = struct_of({"a": INT64, "b": STRING})
    given_ = [{"a": 2, "b": "a"}, {"a": None, "b": "a"}, None, {"a": 1, "b": None}, {"a": 1, "b": "z"}]
    batch = Batch.of(Schema((Column("x", type_),)), [pa.array(given_, type_)])
    assert [given_[row] for row in sort_rows(batch, (OrderBy("x"),))] == [given_[i] for i in (4, 3, 0, 1, 2)]


def test_a_null_struct_is_no_struct_of_nulls() -> None:
    """They are two rows."""
    schema = Schema.of({"x": struct_of({"a": INT32})})
    batch = Batch.from_rows(schema, [((None,), 1), (({"a": None},), 1), ((None,), -1)])
    assert arrange(batch, Arrangement(schema=schema, key=("x",))).to_rows() == [(({"a": None},), 1)]


def test_a_schema_has_its_own_number() -> None:
    """Whatever fields are called."""
    types = [struct_of({"a": INT64, "b": INT64}), struct_of({"a: int64, b": INT64}), struct_of({"a": INT64})]
    types += [list_of(type_) for type_ in types]
    assert len({schema_id(Schema.of({"x": type_})) for type_ in types}) == len(types)


def test_damage_is_found() -> None:
    """A list of another length is no struct."""
    lists = nested_bytes(pa.array([[b"1"]], list_of(BINARY)))
    with pytest.raises(DataError, match="damaged struct"):
        nested_of(lists, struct_of({"a": INT32, "b": INT32}))
    with pytest.raises(DataError, match="damaged list"):
        nested_of(lists, struct_of({"a": INT32}))


def test_no_field_is_dropped() -> None:
    """A field that the type does not have is an error, at any depth; one that is missing is null."""
    type_ = list_of(struct_of({"a": struct_of({"b": INT64, "c": INT64})}))
    assert array_of([[{"a": {"b": 1}}, {}]], type_).to_pylist() == [[{"a": {"b": 1, "c": None}}, {"a": None}]]
    with pytest.raises(pa.ArrowInvalid, match="no such field: field=x"):
        array_of([[{"a": {"b": 1, "x": 2}}]], type_)
    wider = list_of(struct_of({"a": struct_of({"c": INT32, "x": INT64})}))
    with pytest.raises(pa.ArrowInvalid, match="no such field: field=x"):
        cast_to(pa.array([], wider), type_)
    fewer = pa.array([[{"a": {"c": 1}}]], list_of(struct_of({"a": struct_of({"c": INT32})})))
    assert cast_to(fewer, type_).to_pylist() == [[{"a": {"b": None, "c": 1}}]]


def test_a_type_has_one_spelling() -> None:
    """Promises of no nulls inside and names of elements are Arrow's business."""
    inner = pa.struct([pa.field("a", pa.int64(), nullable=False)])
    column = Column("x", pa.list_(pa.field("element", inner, nullable=False)))
    assert str(column.type) == str(list_of(struct_of({"a": INT64})))


def test_what_is_no_struct_is_refused() -> None:
    """Fields are names and types."""
    with pytest.raises(CircuitError, match="not the fields of a struct"):
        struct_of({"a": int})  # type: ignore[dict-item]

"""Lists and structs, nested in each other, as bytes and back, so that a list of anything is hashed and stored like a
string.

A list of scalars is written by `dbsp.zset.lists`. Elements that are lists or structs are written as bytes first, and
the list as one of binary. A struct inside a list is written as the list of its fields. A field is one binary element,
null or the canonical bytes of the value. Outside lists, structs are stored field by field.

1. Equal values have equal bytes, and different ones different bytes; a null struct is not a struct of nulls.
2. The bytes are stored, so they must never change: golden values in the tests.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dbsp.errors import DataError
from dbsp.zset.lists import elements_of, fixed_bytes, is_text, list_bytes, lists_of
from dbsp.zset.schema import BINARY, is_struct, list_of


def nested_bytes(array: pa.Array) -> pa.Array:
    """Return a column of lists or structs as a binary column; null where the value is null.

    **Example**

    >>> import pyarrow as pa
    >>> from dbsp.zset.schema import INT8, list_of, struct_of
    >>> nested_bytes(pa.array([[{"a": 1}, None], []], list_of(struct_of({"a": INT8})))).to_pylist()[1]
    b'\\x00\\x00\\x00\\x00'
    """
    if is_struct(array.type):
        return list_bytes(_struct_lists(array))
    if pa.types.is_nested(array.type.value_type):
        array = _with_elements(array, nested_bytes(array.flatten()))
    return list_bytes(array)


def nested_of(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """Return the lists or structs whose bytes `nested_bytes` made.

    **Errors** `DataError` where the bytes are not of this type.
    """
    if is_struct(type_):
        return _structs_of(lists_of(array, list_of(BINARY)), type_)
    if not pa.types.is_nested(type_.value_type):
        return lists_of(array, type_)
    stored = lists_of(array, list_of(BINARY))
    return _with_elements(stored, nested_of(stored.flatten(), type_.value_type))


def _with_elements(lists: pa.Array, elements: pa.Array) -> pa.Array:
    """Return lists of the same lengths with these elements."""
    lengths = np.asarray(pc.fill_null(pc.list_value_length(lists), 0))
    offsets = pa.array(np.concatenate([np.zeros(1, np.int32), np.cumsum(lengths, dtype=np.int32)]))
    mask = lists.is_null() if lists.null_count else None
    return pa.ListArray.from_arrays(offsets, elements, type=list_of(elements.type), mask=mask)


def _struct_lists(array: pa.Array) -> pa.Array:
    """Return structs as lists of the bytes of their fields."""
    fields = [_field_bytes(field) for field in array.flatten()]
    rows, width = len(array), len(fields)
    beside = np.arange(rows)[:, None] + np.arange(width) * rows
    elements = pa.concat_arrays(fields).take(pa.array(beside.reshape(-1)))
    mask = array.is_null() if array.null_count else None
    return pa.ListArray.from_arrays(pa.array(np.arange(rows + 1, dtype=np.int32) * width), elements, mask=mask)


def _structs_of(lists: pa.Array, type_: pa.DataType) -> pa.Array:
    """Return the structs whose fields' bytes these lists hold."""
    width, elements = type_.num_fields, lists.flatten()
    there = np.asarray(lists.is_valid())
    if not np.all(np.asarray(pc.list_value_length(lists).fill_null(width)) == width):
        raise DataError(f"damaged struct: type={type_}")
    first = pa.array((np.cumsum(there) - 1) * width, mask=~there)
    fields = [_field_of(elements.take(pc.add(first, number)), field.type) for number, field in enumerate(type_)]
    mask = lists.is_null() if lists.null_count else None
    return pa.StructArray.from_arrays(fields, fields=list(type_), mask=mask)


def _field_bytes(field: pa.Array) -> pa.Array:
    """Return the canonical bytes of each value, null where the value is null."""
    if pa.types.is_nested(field.type):
        return nested_bytes(field)
    return field.cast(BINARY) if is_text(field.type) else fixed_bytes(field)


def _field_of(stored: pa.Array, type_: pa.DataType) -> pa.Array:
    """Return the values whose bytes `_field_bytes` made."""
    if pa.types.is_nested(type_):
        return nested_of(stored, type_)
    return stored.cast(type_) if is_text(type_) else elements_of(stored, type_)

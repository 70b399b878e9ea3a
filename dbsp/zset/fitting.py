"""Values from outside as a column: as Arrow converts them, but no field of a struct is dropped because nobody asked for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from dbsp.zset.schema import is_list, is_struct


def array_of(values: Iterable[Any], type_: pa.DataType) -> pa.Array:
    """Python values as a column; a struct is a dict, and a field that it leaves out is null.

    **Errors** those of `pyarrow.array`; `ArrowInvalid` for a field that the type does not have.

    **Example**

    >>> from dbsp.zset.schema import INT64, struct_of
    >>> array_of([{"a": 1}, {}, None], struct_of({"a": INT64})).to_pylist()
    [{'a': 1}, {'a': None}, None]
    """
    values = list(values)
    if pa.types.is_nested(type_):
        for value in values:
            _check_value(value, type_)
    return pa.array(values, type_)


def cast_to(array: pa.Array | pa.ChunkedArray, type_: pa.DataType) -> pa.Array | pa.ChunkedArray:
    """The column in another type; fields of structs are found by name, and those that are missing are null.

    **Errors** those of Arrow's cast; `ArrowInvalid` for a field that the type does not have.
    """
    if array.type == type_:
        return array
    _check_type(array.type, type_)
    return array.cast(type_)


def _check_value(value: Any, type_: pa.DataType) -> None:
    """Refuse a field that the type does not have."""
    if is_struct(type_) and isinstance(value, Mapping):
        types = {field.name: field.type for field in type_}
        _refuse_others(value, types)
        for name, field in value.items():
            if pa.types.is_nested(types[name]):
                _check_value(field, types[name])
    elif is_list(type_) and pa.types.is_nested(type_.value_type) and isinstance(value, Iterable):
        for element in value:
            _check_value(element, type_.value_type)


def _check_type(found: pa.DataType, wanted: pa.DataType) -> None:
    """Refuse a field that the wanted type does not have."""
    if is_struct(found) and is_struct(wanted):
        types = {field.name: field.type for field in wanted}
        _refuse_others([field.name for field in found], types)
        for field in found:
            _check_type(field.type, types[field.name])
    elif hasattr(found, "value_type") and is_list(wanted):
        _check_type(found.value_type, wanted.value_type)


def _refuse_others(names: Iterable[Any], known: Iterable[str]) -> None:
    others = [name for name in names if name not in set(known)]
    if others:
        raise pa.ArrowInvalid(f"no such field: field={others[0]} fields={list(known)}")

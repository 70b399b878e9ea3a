"""Values from outside as a column: as Arrow converts them, but no field of a struct is dropped because nobody asked for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dbsp.zset.calendar import check_days
from dbsp.zset.schema import is_list, is_struct

_DIGITS = 38
"""Of a column's decimals; numbers of so many and no more fit 128 bits."""


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

    **Errors** those of Arrow's cast; `ArrowInvalid` for a field that the type does not have, and for days of no calendar.
    """
    if array.type != type_:
        _check_type(array.type, type_)
        array = to_decimal(array, type_) if pa.types.is_decimal128(type_) else array.cast(type_)
    check_days(array)
    return array


def to_decimal(array: Any, type_: pa.DataType) -> Any:
    """A column, or a scalar, as decimals of at most 38 digits; `ArrowInvalid` where a value would change.

    In 256 bits where 128 may be too few: there Arrow's cast makes another number of 7 with 38 places.
    """
    wide = pa.decimal256(76, type_.scale)
    if pa.types.is_string(array.type):
        return _decimal_of_text(array, type_, wide)
    if pa.types.is_decimal128(array.type):
        fits = array.type.precision - array.type.scale + type_.scale <= _DIGITS
        return array.cast(type_) if fits else array.cast(wide).cast(type_)
    return array.cast(wide).cast(type_) if pa.types.is_integer(array.type) else array.cast(type_)


def _decimal_of_text(texts: Any, type_: pa.DataType, wide: pa.DataType) -> Any:
    """Texts as decimals; for the numbers of long ones, and of those with an exponent, even 256 bits may be too few."""
    exponent = pc.or_(pc.match_substring(texts, "e"), pc.match_substring(texts, "E"))
    long = pc.or_(exponent, pc.greater(pc.binary_length(texts), _DIGITS - type_.scale))
    if not pc.any(long, min_count=0).as_py():
        return texts.cast(type_)
    values = texts.cast(wide).cast(type_)
    for text, value in zip(texts.filter(long).to_pylist(), values.filter(long).to_pylist(), strict=True):
        if text is not None and Decimal(text) != value:
            raise pa.ArrowInvalid(f"a number of too many digits: text={text!r}")
    return values


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

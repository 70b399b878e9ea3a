"""Convert outside values to columns with Arrow, and refuse values that Arrow would change.

No field of a struct is dropped because the type lacks it, and no value is truncated (`exact.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dbsp.zset.calendar import check_days
from dbsp.zset.decimal_texts import check_decimals, decimals_of_texts, holds_decimals
from dbsp.zset.exact import check_exact, refuse_others
from dbsp.zset.schema import DATE, FLOAT32, FLOAT64, INT64, TIME, TIMESTAMP, is_list, is_struct

_DIGITS = 38
"""The maximum digits of a column's decimals; numbers with at most 38 digits fit into 128 bits."""


def array_of(values: Iterable[Any], type_: pa.DataType) -> pa.Array:
    """Return Python values as a column; a struct is a dict, and a missing field is null.

    **Errors** Those of `pyarrow.array`; `ArrowInvalid` for a field that the type lacks, and for a value that the column
    would hold only in part.

    **Example**

    >>> from dbsp.zset.schema import INT64, struct_of
    >>> array_of([{"a": 1}, {}, None], struct_of({"a": INT64})).to_pylist()
    [{'a': 1}, {'a': None}, None]
    """
    values = list(values)
    if holds_decimals(type_):
        check_decimals(values)
    made = pa.array(values, type_)
    check_exact(values, made)
    return made


def cast_to(array: pa.Array | pa.ChunkedArray, type_: pa.DataType) -> pa.Array | pa.ChunkedArray:
    """Return the column in another type; fields of structs are found by name, and missing ones are null.

    **Errors** Those of Arrow's cast; `ArrowInvalid` for a field that the type lacks, for values that would be
    truncated, and for days outside the calendar.
    """
    if array.type != type_:
        _check_type(array.type, type_)
        given, array = array, to_decimal(array, type_) if pa.types.is_decimal128(type_) else array.cast(type_)
        _check_kept(given, array)
    check_days(array)
    return array


def to_decimal(array: Any, type_: pa.DataType) -> Any:
    """Return a column, or a scalar, as decimals of at most 38 digits; raise `ArrowInvalid` where a value would change.

    The cast takes 256 bits where 128 may be too few: in 128 bits Arrow turns 7 with 38 places into another number.
    """
    wide = pa.decimal256(76, type_.scale)
    if pa.types.is_string(array.type):
        return _decimal_of_text(array, type_, wide)
    if pa.types.is_decimal128(array.type):
        fits = array.type.precision - array.type.scale + type_.scale <= _DIGITS
        return array.cast(type_) if fits else array.cast(wide).cast(type_)
    return array.cast(wide).cast(type_) if pa.types.is_integer(array.type) else array.cast(type_)


def _decimal_of_text(texts: Any, type_: pa.DataType, wide: pa.DataType) -> Any:
    """Return texts as decimals.

    Long texts and exponents may exceed even 256 bits, so their results are compared with Python's decimals.
    """
    exponent = pc.or_(pc.match_substring(texts, "e"), pc.match_substring(texts, "E"))
    long = pc.or_(exponent, pc.greater(pc.binary_length(texts), _DIGITS - type_.scale))
    if not pc.any(long, min_count=0).as_py():
        return texts.cast(type_)
    values = decimals_of_texts(texts, wide).cast(type_)
    for text, value in zip(texts.filter(long).to_pylist(), values.filter(long).to_pylist(), strict=True):
        if text is not None and Decimal(text) != value:
            raise pa.ArrowInvalid(f"a number of too many digits: text={text!r}")
    return values


def _check_kept(given: Any, made: Any) -> None:
    """Refuse values that Arrow's cast truncated: timestamps in a column of dates or times, numbers beyond 32-bit floats."""
    if made.type == FLOAT32:
        _check_reach(given, made)
    elif pa.types.is_timestamp(given.type) and made.type in (DATE, TIME):
        _check_moments(given, made)
    elif is_struct(made.type) and is_struct(given.type):
        for field in given.type:
            _check_kept(pc.struct_field(given, field.name), pc.struct_field(made, field.name))
    elif is_list(made.type) and hasattr(given.type, "value_type"):
        _check_kept(pc.list_flatten(given), pc.list_flatten(made))


def _check_reach(given: Any, made: Any) -> None:
    """Refuse finite numbers that became infinite in 32 bits."""
    infinite = pc.is_inf(made)
    if pc.any(infinite).as_py():
        numbers = given if pa.types.is_floating(given.type) else given.cast(FLOAT64)
        _refuse_any(given.filter(pc.and_(infinite, pc.is_finite(numbers))))


def _check_moments(given: Any, made: Any) -> None:
    """Refuse timestamps that hold more than the date, or more than the time of day."""
    local = given if given.type.tz is None else pc.local_timestamp(given)
    held = made.cast(TIMESTAMP) if made.type == DATE else made
    _refuse_any(given.filter(pc.not_equal(local.cast(TIMESTAMP).cast(INT64), held.cast(INT64))))


def _refuse_any(cut: Any) -> None:
    if len(cut):
        raise pa.ArrowInvalid(f"{cut[0]} is not a value of this type")


def _check_type(found: pa.DataType, wanted: pa.DataType) -> None:
    """Refuse a struct's field that the wanted type lacks."""
    if is_struct(found) and is_struct(wanted):
        types = {field.name: field.type for field in wanted}
        refuse_others([field.name for field in found], types)
        for field in found:
            _check_type(field.type, types[field.name])
    elif hasattr(found, "value_type") and is_list(wanted):
        _check_type(found.value_type, wanted.value_type)

"""Decide which outside values a column accepts; the rules are the same for every source.

| column | takes | refuses |
| --- | --- | --- |
| bool | booleans | numbers, texts |
| integers | whole numbers in range, also `3.0` and `Decimal(3)` | parts, booleans, texts |
| float32, float64 | numbers, rounded to the nearest float; NaN and infinity | numbers beyond the range, booleans, texts |
| decimal(p, s) | numbers of at most s decimal places, a float by its shortest text; texts of these | more places, NaN, booleans |
| string | texts | everything else |
| binary | bytes | texts, but for formats without bytes: there they are hexadecimal digits |
| date | dates, timestamps at midnight, texts | numbers, timestamps within a day |
| time | times, texts | numbers |
| timestamp | timestamps without a zone, dates (midnight), texts of these | timestamps with a zone, numbers |
| timestamp UTC | timestamps; those without a zone are UTC; dates (midnight), texts of these | numbers |
| duration | spans, whole numbers of microseconds, texts of spans | parts |

The rules hold for columns and rows that Python programs push, for Arrow tables and streams, Parquet files, Avro and
Debezium. In JSON and CSV a value is a text, whose forms are in `dbsp.io.formats.wire`. Inside lists and structs Arrow's
safe conversions apply, between the same families of types.
"""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dbsp.zset.fitting import cast_to
from dbsp.zset.schema import (
    BINARY,
    BOOL,
    DATE,
    DURATION,
    FLOAT64,
    INT64,
    STRING,
    TIME,
    TIMESTAMP,
    TIMESTAMP_UTC,
    is_list,
    is_struct,
)
from dbsp.zset.span_texts import spans_of_texts

_ZONE = r"(?:Z|[+-]\d\d(?::?\d\d)?)$"
_CLOCK = r"\d\d:\d\d"
_MIDNIGHT = datetime.time()


def column_given(array: pa.Array | pa.ChunkedArray, type_: pa.DataType) -> pa.Array | pa.ChunkedArray:
    """Return an Arrow column converted to this type, by the rules above.

    **Errors** `pa.ArrowException` if the column does not take a value, or does not take values of the type at all.

    >>> column_given(pa.array([1.5, 0.1]), pa.decimal128(5, 2)).to_pylist()
    [Decimal('1.50'), Decimal('0.10')]
    """
    found = array.type
    if found == type_ or pa.types.is_null(found):
        return cast_to(array, type_)
    if not takes(type_, found):
        raise pa.ArrowInvalid(f"a column of this type does not take values of the type {found}")
    if pa.types.is_dictionary(found):
        found = found.value_type
    if pa.types.is_floating(type_) and (pa.types.is_integer(found) or pa.types.is_decimal(found)):
        floats = array.cast(FLOAT64, safe=False) if pa.types.is_integer(found) else array.cast(STRING).cast(FLOAT64)
        return cast_to(floats, type_)
    if pa.types.is_decimal(type_) and pa.types.is_floating(found):
        return cast_to(array.cast(STRING), type_)
    if type_ == TIMESTAMP_UTC and found == STRING:
        return cast_to(with_zone(array), type_)
    if type_ == TIMESTAMP_UTC and pa.types.is_date(found):
        return array.cast(TIMESTAMP).cast(type_)
    if type_ == DURATION and not pa.types.is_duration(found):
        return array.cast(INT64).cast(type_) if takes(INT64, found) else _spans(array)
    if type_ == TIME and found == STRING:
        return cast_to(pc.binary_join_element_wise("1970-01-01T", array, ""), TIMESTAMP).cast(type_)
    return cast_to(array, type_)


def _spans(array: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    if isinstance(array, pa.ChunkedArray):
        return pa.chunked_array([spans_of_texts(chunk) for chunk in array.chunks], DURATION)
    return spans_of_texts(array)


def with_zone(texts: Any) -> Any:
    """Return texts of timestamps, with `Z` appended where they name no zone.

    >>> with_zone(pa.array(["2024-01-02 03:00", "2024-01-02T03:00:00+02:00", "2024-01-02"])).to_pylist()
    ['2024-01-02 03:00Z', '2024-01-02T03:00:00+02:00', '2024-01-02 00:00Z']
    """
    timed = pc.match_substring_regex(texts, _CLOCK)
    zoned = pc.and_(timed, pc.match_substring_regex(texts, _ZONE))
    ends = pc.if_else(zoned, "", pc.if_else(timed, "Z", " 00:00Z"))
    return pc.binary_join_element_wise(texts, ends, "")


def takes(wanted: pa.DataType, found: pa.DataType) -> bool:
    """Return whether a column may take values of a type at all.

    >>> takes(TIMESTAMP_UTC, pa.timestamp("ns")), takes(TIMESTAMP, pa.timestamp("ns", "UTC")), takes(INT64, STRING)
    (True, False, False)
    """
    if pa.types.is_dictionary(found):
        found = found.value_type
    if is_struct(wanted) and is_struct(found):
        types = {field.name: field.type for field in wanted}
        return all(field.name not in types or takes(types[field.name], field.type) for field in found)
    if is_list(wanted) and hasattr(found, "value_type"):
        exact = pa.types.is_decimal(wanted.value_type) and pa.types.is_floating(found.value_type)
        return not exact and takes(wanted.value_type, found.value_type)
    if found == wanted or pa.types.is_null(found):
        return True
    number = bool(pa.types.is_integer(found) or pa.types.is_floating(found) or pa.types.is_decimal(found))
    text = bool(pa.types.is_string(found) or pa.types.is_large_string(found) or pa.types.is_string_view(found))
    if pa.types.is_decimal(wanted):
        return number or text
    if pa.types.is_integer(wanted) or pa.types.is_floating(wanted):
        return number
    others: dict[pa.DataType, bool] = {
        BOOL: False,
        STRING: text,
        BINARY: pa.types.is_large_binary(found)
        or pa.types.is_fixed_size_binary(found)
        or pa.types.is_binary_view(found),
        DATE: text or pa.types.is_date(found) or pa.types.is_timestamp(found),
        TIME: text or pa.types.is_time(found) or pa.types.is_timestamp(found),
        TIMESTAMP: text or pa.types.is_date(found) or (pa.types.is_timestamp(found) and found.tz is None),
        TIMESTAMP_UTC: text or pa.types.is_date(found) or pa.types.is_timestamp(found),
        DURATION: number or text or pa.types.is_duration(found),
    }
    return others.get(wanted, False)


def values_given(values: list[Any], type_: pa.DataType) -> list[Any]:
    """Return Python values in the form in which Arrow takes them for this type; texts of times and decimals are parsed.

    **Errors** `pa.ArrowInvalid` shows a value that the column does not take.

    >>> values_given([2**53 + 1, Decimal("0.1"), None], FLOAT64)
    [9007199254740992.0, 0.1, None]
    """
    kinds = set(map(type, values))
    if pa.types.is_floating(type_) and kinds & {bool, int, Decimal}:
        return [_as_float(value) for value in values]
    if pa.types.is_decimal(type_) and float in kinds:
        values = [Decimal(repr(value)) if type(value) is float and math.isfinite(value) else value for value in values]
    if type_ == BINARY and str in kinds:
        raise pa.ArrowInvalid(
            f"{next(value for value in values if isinstance(value, str))[:100]!r} is a text, not bytes"
        )
    if type_ == TIMESTAMP and datetime.datetime in kinds:
        _refuse_zoned(values)
    if type_ in (TIMESTAMP, TIMESTAMP_UTC) and datetime.date in kinds:
        values = [
            datetime.datetime.combine(value, _MIDNIGHT) if type(value) is datetime.date else value for value in values
        ]
    return _read(values, type_) if str in kinds else values


def _as_float(value: Any) -> Any:
    if isinstance(value, bool):
        raise pa.ArrowInvalid(f"{value} is not a value of this type")
    if not isinstance(value, int | Decimal):
        return value
    try:
        return float(value)
    except OverflowError:
        raise pa.ArrowInvalid(f"{str(value)[:100]} is beyond the floats") from None


def _refuse_zoned(values: list[Any]) -> None:
    for value in values:
        if isinstance(value, datetime.datetime) and value.tzinfo is not None:
            raise pa.ArrowInvalid(f"{value} has a time zone, and a timestamp has none")


def _read(values: list[Any], type_: pa.DataType) -> list[Any]:
    """Return the values with texts of decimals, dates, times and spans parsed."""
    if not (type_ in (DATE, TIME, TIMESTAMP, TIMESTAMP_UTC, DURATION) or pa.types.is_decimal(type_)):
        return values
    at = [index for index, value in enumerate(values) if isinstance(value, str)]
    read = column_given(pa.array([values[index] for index in at], STRING), type_)
    values = list(values)
    for index, value in zip(at, read.to_pylist(), strict=True):
        values[index] = value
    return values

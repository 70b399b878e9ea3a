"""Encode rows for results and COPY, in text or binary, whole columns at a time.

A column becomes its cells: their lengths, and their bytes one after the other. Rows are put together from the cells of all
columns by numpy, without a loop over rows. Decimals in binary, intervals, bytes, lists and structs are written value by value.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dbsp.coordinator.postgres.messages import BINARY_FORMAT
from dbsp.coordinator.query import pg_types as t
from dbsp.coordinator.query.pg_types import PgType, type_of

NULL = -1
ROWS_AT_ONCE = 4096
DATE_SHIFT_DAYS = 10_957
"""Days from 1970, where Arrow's dates begin, to 2000, where PostgreSQL's begin."""
TIME_SHIFT_US = DATE_SHIFT_DAYS * 86_400 * 1_000_000
NUMERIC_BASE, NUMERIC_DIGITS = 10_000, 4
_NUMERIC_NEGATIVE = 0x4000
COPY_HEAD = b"PGCOPY\n\xff\r\n\0" + bytes(8)
COPY_END = b"\xff\xff"


@dataclass(frozen=True, slots=True)
class Cells:
    """The cells of a column: the length of each, `NULL` for a null, and the bytes of all in order."""

    lengths: np.ndarray[Any, np.dtype[np.int64]]
    data: np.ndarray[Any, np.dtype[np.uint8]]


def data_rows(batch: pa.RecordBatch, formats: Sequence[int]) -> bytes:
    """Return the rows of a batch as messages `DataRow`."""
    return _rows(
        b"D", [cells_of(column, form) for column, form in zip(batch.columns, formats, strict=True)], len(batch)
    )


def copied_rows(batch: pa.RecordBatch, kind: str, delimiter: str, null: str) -> bytes:
    """Return the rows of a batch as the data of a COPY of a kind: `text`, `csv` or `binary`, a message a row."""
    if kind == "binary":
        return _rows(b"d", [cells_of(column, BINARY_FORMAT) for column in batch.columns], len(batch))
    if not batch.num_columns:
        return _messages(b"d", _variable(pa.array([b"\n"] * len(batch), pa.binary())))
    shape = _csv_field if kind == "csv" else _text_field
    columns = [shape(texts_of(column), delimiter, null) for column in batch.columns]
    lines = pc.binary_join_element_wise(*columns, delimiter) if len(columns) > 1 else columns[0]
    return _messages(b"d", _variable(pc.binary_join_element_wise(lines, "\n", "")))


def batches(table: pa.Table) -> Iterator[pa.RecordBatch]:
    """Yield a table in batches of bounded length, each column as one array."""
    for batch in table.to_batches(max_chunksize=ROWS_AT_ONCE):
        if len(batch):
            yield batch


def cells_of(array: pa.Array, form: int) -> Cells:
    """Return the cells of a column in a format."""
    type_ = type_of(array.type)
    if form != BINARY_FORMAT:
        return _variable(texts_of(array))
    if type_ in _FIXED:
        shift, wide = _FIXED[type_]
        values = _numbers(array, type_)
        return _fixed(array, (values + shift if shift else values).astype(wide))
    if type_.category == "A":
        return _from_values(_binary_arrays(array))
    if type_ in _BY_VALUE:
        write = _BY_VALUE[type_]
        return _from_values([None if value is None else write(value) for value in _python(array)])
    return _variable(array if type_ == t.BYTEA else texts_of(array))


# --- text -----------------------------------------------------------------------------------------------------------


def texts_of(array: pa.Array) -> pa.Array:  # noqa: PLR0911 (one return per kind of type)
    """Return the values as PostgreSQL writes them."""
    type_, types = type_of(array.type), pa.types
    match type_:
        case t.BOOL:
            return pc.if_else(array, "t", "f")
        case t.FLOAT4 | t.FLOAT8:
            return _replaced(
                array.cast(pa.string()), {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN", "-nan": "NaN"}
            )
        case t.NUMERIC if types.is_decimal(array.type):
            return pa.array([None if value is None else f"{value:f}" for value in array.to_pylist()], pa.string())
        case t.TIME:
            return _trimmed(array.cast(pa.time64("us")).cast(pa.string()))
        case t.TIMESTAMP:
            return _trimmed(array.cast(pa.timestamp("us"), safe=False).cast(pa.string()))
        case t.TIMESTAMPTZ:
            plain = array.cast(pa.timestamp("us", "UTC"), safe=False).cast(pa.timestamp("us"))
            return pc.binary_join_element_wise(_trimmed(plain.cast(pa.string())), "+00", "")
        case t.INTERVAL | t.BYTEA | t.JSON:
            write = {t.INTERVAL: _interval_text, t.BYTEA: _bytes_text, t.JSON: _json_text}[type_]
            return pa.array([None if value is None else write(value) for value in _python(array)], pa.string())
        case _ if type_.category == "A":
            return pa.array(_text_arrays(array), pa.string())
        case _ if types.is_null(array.type):
            return pa.nulls(len(array), pa.string())
    return array.cast(pa.string())


def _trimmed(texts: pa.Array) -> pa.Array:
    """Remove trailing zeros of fractions of seconds."""
    short = pc.replace_substring_regex(texts, r"\.0+$", "")
    return pc.replace_substring_regex(short, r"(\.\d*[1-9])0+$", r"\1")


def _replaced(texts: pa.Array, words: Mapping[str, str]) -> pa.Array:
    for word, other in words.items():
        texts = pc.if_else(pc.equal(texts, word), other, texts)
    return texts


def _python(array: pa.Array) -> list[Any]:
    if pa.types.is_duration(array.type):
        return list(array.cast(pa.duration("us"), safe=False).to_pylist())
    return list(array.to_pylist())


def _months_days_us(value: Any) -> tuple[int, int, int]:
    if isinstance(value, timedelta):
        return 0, 0, (value.days * 86_400 + value.seconds) * 1_000_000 + value.microseconds
    return value.months, value.days, value.nanoseconds // 1000


def _interval_text(value: Any) -> str:
    """Write an interval in PostgreSQL's own style.

    **Example**

    >>> _interval_text(timedelta(days=1, seconds=-1)), _interval_text(pa.MonthDayNano((14, -3, 0)))
    ('23:59:59', '1 year 2 mons -3 days')
    """
    months, days, us = _months_days_us(value)
    years, months = int(months / 12), months - 12 * int(months / 12)
    parts = []
    for count, unit in ((years, "year"), (months, "mon"), (days, "day")):
        if count:
            parts.append(f"{count} {unit}" if count == 1 else f"{count} {unit}s")
    if us or not parts:
        seconds, part = divmod(abs(us), 1_000_000)
        sign = "-" if us < 0 else ""
        fraction = f".{part:06d}".rstrip("0") if part else ""
        parts.append(f"{sign}{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{fraction}")
    return " ".join(parts)


def _bytes_text(value: bytes) -> str:
    return "\\x" + value.hex()


def _json_text(value: Any) -> str:
    return json.dumps(value, default=_json_other, ensure_ascii=False)


def _json_other(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, timedelta | pa.MonthDayNano):
        return _interval_text(value)
    return str(value)


def _text_arrays(array: pa.Array) -> list[str | None]:
    flat, starts = _flattened(array)
    texts = ["NULL" if text is None else _array_element(text) for text in texts_of(flat).to_pylist()]
    return [None if place is None else "{" + ",".join(texts[place[0] : place[1]]) + "}" for place in starts]


def _array_element(text: str) -> str:
    if text and text.lower() != "null" and not set(text) & set('{}",\\ \t\n\r\v\f'):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _flattened(array: pa.Array) -> tuple[pa.Array, list[tuple[int, int] | None]]:
    """Return the elements of all lists, and the first and last position of each list's elements."""
    if not pa.types.is_list(array.type):
        array = array.cast(pa.list_(array.type.value_type))
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    ends = np.cumsum(lengths)
    valid = array.is_valid().to_pylist()
    places = zip((ends - lengths).tolist(), ends.tolist(), strict=True)
    return array.flatten(), [place if there else None for place, there in zip(places, valid, strict=True)]


# --- binary ---------------------------------------------------------------------------------------------------------


_FIXED: Mapping[PgType, tuple[int, str]] = {
    t.BOOL: (0, "u1"), t.INT2: (0, ">i2"), t.INT4: (0, ">i4"), t.INT8: (0, ">i8"), t.FLOAT4: (0, ">f4"),
    t.FLOAT8: (0, ">f8"), t.DATE: (-DATE_SHIFT_DAYS, ">i4"), t.TIME: (0, ">i8"), t.TIMESTAMP: (-TIME_SHIFT_US, ">i8"),
    t.TIMESTAMPTZ: (-TIME_SHIFT_US, ">i8"),
}  # fmt: skip
"""For each type whose values are numbers of a fixed width: the number to add to Arrow's, and the width in bytes."""


def _numbers(array: pa.Array, type_: PgType) -> np.ndarray[Any, Any]:
    match type_:
        case t.DATE:
            array = array.cast(pa.date32()).cast(pa.int32())
        case t.TIME:
            array = array.cast(pa.time64("us")).cast(pa.int64())
        case t.TIMESTAMP | t.TIMESTAMPTZ:
            array = array.cast(pa.timestamp("us", array.type.tz), safe=False).cast(pa.int64())
        case t.BOOL:
            array = array.cast(pa.uint8())
    if array.null_count:
        array = array.drop_null()
    return np.asarray(array.to_numpy(zero_copy_only=False))


def _fixed(array: pa.Array, values: np.ndarray[Any, Any]) -> Cells:
    lengths = np.full(len(array), values.dtype.itemsize, np.int64)
    if array.null_count:
        lengths[array.is_null().to_numpy(zero_copy_only=False)] = NULL
    return Cells(lengths, np.frombuffer(values.tobytes(), np.uint8))


def _numeric(value: Any) -> bytes:
    """Write a decimal in groups of four digits.

    **Example**

    >>> _numeric(Decimal("-12345.6")).hex()
    '0003000140000001000109291770'
    """
    sign, digits, exponent = Decimal(value).as_tuple()
    scale = max(0, -int(exponent))
    text = "".join(map(str, digits)) + "0" * max(0, int(exponent))
    whole, part = (text[:-scale] if scale else text), (text[-scale:].rjust(scale, "0") if scale else "")
    whole = whole.lstrip("0")
    whole = whole.rjust(-(-len(whole) // NUMERIC_DIGITS) * NUMERIC_DIGITS, "0")
    part = part.ljust(-(-len(part) // NUMERIC_DIGITS) * NUMERIC_DIGITS, "0")
    groups = [int((whole + part)[at : at + NUMERIC_DIGITS]) for at in range(0, len(whole + part), NUMERIC_DIGITS)]
    weight = len(whole) // NUMERIC_DIGITS - 1
    while groups and not groups[0]:
        groups, weight = groups[1:], weight - 1
    while groups and not groups[-1]:
        groups = groups[:-1]
    head = [len(groups), (weight if groups else 0) & 0xFFFF, _NUMERIC_NEGATIVE if sign and groups else 0, scale]
    return np.array([*head, *groups], ">u2").tobytes()


def _interval(value: Any) -> bytes:
    months, days, us = _months_days_us(value)
    return (
        us.to_bytes(8, "big", signed=True)
        + days.to_bytes(4, "big", signed=True)
        + months.to_bytes(4, "big", signed=True)
    )


_BY_VALUE: Mapping[PgType, Callable[[Any], bytes]] = {
    t.NUMERIC: _numeric, t.INTERVAL: _interval, t.JSON: lambda value: _json_text(value).encode(),
}  # fmt: skip


def _binary_arrays(array: pa.Array) -> list[bytes | None]:
    flat, places = _flattened(array)
    element, cells = type_of(flat.type), cells_of(flat, BINARY_FORMAT)
    ends = np.cumsum(np.maximum(cells.lengths, 0))
    parts = []
    for length, end in zip(cells.lengths.tolist(), ends.tolist(), strict=True):
        body = b"" if length == NULL else cells.data[end - length : end].tobytes()
        parts.append(length.to_bytes(4, "big", signed=True) + body)
    found: list[bytes | None] = []
    for place in places:
        if place is None:
            found.append(None)
            continue
        first, last = place
        nulls = bool((cells.lengths[first:last] == NULL).any())
        shape = [] if first == last else [last - first, 1]
        head = np.array([int(bool(shape)), int(nulls), element.oid, *shape], ">i4").tobytes()
        found.append(head + b"".join(parts[first:last]))
    return found


# --- putting rows together ------------------------------------------------------------------------------------------


def _variable(array: pa.Array) -> Cells:
    """Return the cells of texts or bytes."""
    array = array.cast(pa.large_binary())
    _, offsets, data = array.buffers()
    places = np.frombuffer(offsets, np.int64, len(array) + 1, array.offset * 8) if len(array) else np.zeros(1, np.int64)
    lengths = np.diff(places)
    held = np.frombuffer(data, np.uint8)[places[0] : places[-1]] if data is not None else np.zeros(0, np.uint8)
    if array.null_count:
        missing = array.is_null().to_numpy(zero_copy_only=False)
        if lengths[missing].any():
            held = held[np.repeat(~missing, lengths)]
        lengths = np.where(missing, NULL, lengths)
    return Cells(lengths, held)


def _from_values(values: Sequence[bytes | None]) -> Cells:
    lengths = np.array([NULL if value is None else len(value) for value in values], np.int64)
    return Cells(lengths, np.frombuffer(b"".join(value for value in values if value), np.uint8))


def _rows(kind: bytes, columns: Sequence[Cells], count: int) -> bytes:
    """Return one message for each row: the number of its cells, then each cell with its length."""
    filled = [np.maximum(cells.lengths, 0) for cells in columns]
    sizes = np.full(count, 2 + 4 * len(columns), np.int64)
    for lengths in filled:
        sizes += lengths
    out, at = _heads(kind, sizes)
    _put(out, at, np.full(count, len(columns)), 2)
    at = at + 2
    for cells, lengths in zip(columns, filled, strict=True):
        _put(out, at, cells.lengths, 4)
        at = at + 4
        _scatter(out, at, lengths, cells.data)
        at = at + lengths
    return out.tobytes()


def _messages(kind: bytes, cells: Cells) -> bytes:
    """Return one message for each cell."""
    out, at = _heads(kind, cells.lengths)
    _scatter(out, at, cells.lengths, cells.data)
    return out.tobytes()


def _heads(kind: bytes, sizes: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Allocate messages with bodies of these sizes, and write their heads; return the buffer and the starts of the bodies."""
    ends = np.cumsum(sizes + 5)
    out = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8)
    at = ends - sizes - 5
    out[at] = kind[0]
    _put(out, at + 1, sizes + 4, 4)
    return out, at + 5


def _put(out: np.ndarray[Any, Any], at: np.ndarray[Any, Any], numbers: np.ndarray[Any, Any], width: int) -> None:
    """Write numbers of this width into the buffer, big-endian."""
    for place in range(width):
        out[at + place] = (numbers >> (8 * (width - 1 - place))) & 0xFF


def _scatter(out: np.ndarray[Any, Any], at: np.ndarray[Any, Any], lengths: np.ndarray[Any, Any], data: Any) -> None:
    """Copy consecutive pieces of `data`, of these lengths, to these places of the buffer."""
    if len(data):
        begins = np.cumsum(lengths) - lengths
        out[np.repeat(at - begins, lengths) + np.arange(len(data))] = data


# --- COPY -----------------------------------------------------------------------------------------------------------


def _text_field(texts: pa.Array, delimiter: str, null: str) -> pa.Array:
    for sign, other in (("\\", "\\\\"), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t")):
        texts = pc.replace_substring(texts, sign, other)
    if delimiter != "\t":
        texts = pc.replace_substring(texts, delimiter, "\\" + delimiter)
    return pc.fill_null(texts, null)


def _csv_field(texts: pa.Array, delimiter: str, null: str) -> pa.Array:
    special = pc.or_(
        pc.match_substring_regex(texts, r'["\n\r]'),
        pc.or_(pc.match_substring(texts, delimiter), pc.equal(texts, null)),
    )
    quoted = pc.binary_join_element_wise('"', pc.replace_substring(texts, '"', '""'), '"', "")
    return pc.fill_null(pc.if_else(special, quoted, texts), null)

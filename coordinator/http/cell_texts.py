"""Convert rows and values to the JSON and CSV texts of responses, by Arrow's functions over whole columns.

Arrow releases the interpreter lock meanwhile; making a Python object for each value would hold up steps. Types without
such a form are written from Python objects, value by value.

**Law** the JSON texts parse to the values that `rendering.plain` returns.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from dbsp.coordinator.client.bodies import unlike
from dbsp.coordinator.http.rendering import EXACT_MAX, plain
from dbsp.errors import ConfigError
from dbsp.io.formats.wire import quoted, quoted_strings, to_json_text
from dbsp.zset.calendar import counts_days, outside
from dbsp.zset.schema import DATE, FLOAT64, STRING, TIME, TIMESTAMP, TIMESTAMP_UTC

TEXT_ROWS, TEXT_BYTES = 5_000, 1 << 26
"""The most rows and bytes of one portion of texts.

An array of texts holds 2 GiB, and escapes take up to six characters. Between two portions a step can begin.
"""


def object_rows(table: pa.Table, between: str = ",") -> Iterator[bytes]:
    """Yield portions of the rows as JSON objects, joined by `between`; yield nothing if there are no rows.

    Of several columns of one name, the later ones are called `name_1` and so on.
    """
    names = [json.dumps(name, ensure_ascii=False) + ":" for name in unlike(table.column_names)]
    return _joined(table, names, "{", "}", between)


def list_rows(table: pa.Table) -> Iterator[bytes]:
    """Yield the rows as JSON lists, as `object_rows` yields objects; a table may have two columns of one name."""
    return _joined(table, [""] * table.num_columns, "[", "]", ",")


def _joined(table: pa.Table, names: Sequence[str], opening: str, closing: str, between: str) -> Iterator[bytes]:
    for some in portions(table):
        columns = [json_texts(column, name) for name, column in zip(some.column_names, some.columns, strict=True)]
        heads = [(opening if not place else ",") + name for place, name in enumerate(names)]
        parts = [part for pair in zip(heads, columns, strict=True) for part in pair]
        rows = pc.binary_join_element_wise(*parts, closing, "")
        yield _in_one(rows, between)


def number_texts(column: pa.ChunkedArray) -> Iterator[bytes]:
    """Yield portions of a column of integers as texts joined by commas; yield nothing if there are no values."""
    for first in range(0, len(column), TEXT_ROWS):
        yield _in_one(column.slice(first, TEXT_ROWS).combine_chunks().cast(STRING), ",")


def _in_one(texts: pa.Array, between: str) -> bytes:
    """Concatenate the texts without making a Python string."""
    joined = pc.binary_join(pa.ListArray.from_arrays(pa.array([0, len(texts)], pa.int32()), texts), between)
    return bytes(joined[0].as_buffer().to_pybytes())


def portions(table: pa.Table) -> Iterator[pa.Table]:
    """Yield the rows in runs small enough to become texts; yield nothing if there are no rows."""
    for first in range(0, table.num_rows, TEXT_ROWS):
        yield from _halved(table.slice(first, TEXT_ROWS))


def _halved(table: pa.Table) -> Iterator[pa.Table]:
    if table.num_rows == 1 or table.nbytes <= TEXT_BYTES:
        yield table
        return
    middle = table.num_rows // 2
    yield from _halved(table.slice(0, middle))
    yield from _halved(table.slice(middle))


def json_texts(column: pa.ChunkedArray, name: str) -> pa.Array:
    """Return each value as JSON text, `null` for a null.

    **Errors** `ConfigError` for a day outside the years of Python's dates, which only a query in DuckDB can make.
    """
    array = column.combine_chunks()
    try:
        if counts_days(array.type) and outside(array).any():
            raise OverflowError
        return to_json_text(array, _in_json)
    except OverflowError:
        raise ConfigError(
            f"a day outside the years 1 to 9999 cannot be shown: column={name}",
            "cast it to VARCHAR, or ask for an Arrow stream",
        ) from None


def csv_texts(column: pa.ChunkedArray) -> pa.Array:
    """Return each value as CSV text: times and decimals as in JSON, lists and structs as JSON texts."""
    array = column.combine_chunks()
    if any(kind(array.type) for kind in _WRITTEN_BY_ARROW):
        return array
    text = _moments(array)
    if text is None and pa.types.is_decimal128(array.type):
        text = array.cast(STRING)
    return pa.array([_csv_text(value) for value in array.to_pylist()], STRING) if text is None else text


_WRITTEN_BY_ARROW = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_string)


def _csv_text(value: object) -> str | None:
    found = plain(value)
    return found if found is None or isinstance(found, str) else json.dumps(found, ensure_ascii=False)


def _in_json(array: pa.Array) -> pa.Array:
    """Return values that are neither lists nor structs as JSON text."""
    if array.type == STRING:
        return quoted_strings(array)
    if pa.types.is_integer(array.type) or pa.types.is_boolean(array.type):
        return array.cast(STRING)
    if pa.types.is_floating(array.type):
        return _floats(array.cast(FLOAT64))
    if pa.types.is_decimal128(array.type):
        return _decimals(array)
    text = _moments(array)
    if text is not None:
        return quoted(text)
    return pa.array([json.dumps(plain(value), ensure_ascii=False) for value in array.to_pylist()], STRING)


_COARSE = (pa.timestamp("s"), pa.timestamp("ms"))
"""Timestamps that only a query in DuckDB can make."""


def _moments(array: pa.Array) -> pa.Array | None:
    """Return dates and times as Python writes them: without a fraction of zero, and UTC as an offset; None for other types."""
    if array.type == DATE:
        return array.cast(STRING)
    if array.type != TIME and not pa.types.is_timestamp(array.type):
        return None
    zoned = array.type == TIMESTAMP_UTC
    if pa.types.is_timestamp(array.type) and array.type.tz is not None and not zoned:
        return None
    if array.type in _COARSE or zoned:
        array = array.cast(TIMESTAMP)
    text = pc.replace_substring_regex(array.cast(STRING), r"\.0+$", "")
    return pc.binary_join_element_wise(text, "+00:00", "") if zoned else text


def _floats(array: pa.Array) -> pa.Array:
    """Return floats as numbers with a point or an exponent; NaN and infinities become texts."""
    text = array.cast(STRING)
    text = pc.if_else(pc.match_substring_regex(text, "^-?[0-9]+$"), pc.binary_join_element_wise(text, ".0", ""), text)
    finite = pc.is_finite(array)
    return text if pc.all(finite, min_count=0).as_py() else pc.if_else(finite, text, quoted(text))


def _decimals(array: pa.Array) -> pa.Array:
    """Return decimals as texts, except whole numbers that every reader of JSON holds exactly."""
    text = array.cast(STRING)
    if array.type.scale > 0:
        return quoted(text)
    limit = Decimal(EXACT_MAX)
    exact = pc.and_(pc.less(array, limit), pc.greater(array, -limit))
    return pc.if_else(exact, text, quoted(text))

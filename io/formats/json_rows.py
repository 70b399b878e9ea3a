"""JSON into rows: JSON lines, one array, or one object, as plain rows or as `{"insert": {...}}` and `{"delete": {...}}`.

A plain row is an insert. In an envelope exactly one of the two keys holds an object. Types are strict
(`dbsp.io.formats.wire`). A missing column has its default, else null. A row is bad, with a reason, if it has one of these:

- a null in a column that is not nullable or is part of the key
- an unknown or repeated column or field of a struct
- a value of another type or out of range

A delete from a table with a primary key needs the key only. A row whose column `insert` or `delete` is a struct must be in an
envelope. PyArrow's parser decodes whole blocks; a block with anything unusual is decoded row by row. Both ways give the same
result for every row, so the grouping of rows does not matter (a test checks it).
"""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from dbsp.algebra.table import NO_DELETE, Table
from dbsp.errors import CapacityError, DataError
from dbsp.io.chunk import join_pushes
from dbsp.io.formats.absent import default_texts, filled
from dbsp.io.formats.arrow_sizes import row_bytes
from dbsp.io.formats.json_elements import walk_elements
from dbsp.io.formats.json_scan import count_plain_rows, holds_long_exponent
from dbsp.io.formats.json_values import Integer, Real, Repeating, RowError, decoder, refuse_repeated, row_errors
from dbsp.io.formats.lines import MARK
from dbsp.io.formats.near_names import unknown_name
from dbsp.io.formats.wire import from_wire, holds_spans, wire_type
from dbsp.io.pushed import BadRow, Push, PushBounds
from dbsp.logs import DELETE, INSERT
from dbsp.zset.decimal_texts import decimals_of_texts, holds_decimals
from dbsp.zset.loose import loose_batch
from dbsp.zset.schema import (
    BINARY,
    BOOL,
    DATE,
    DURATION,
    STRING,
    TIME,
    TIMESTAMP,
    TIMESTAMP_UTC,
    Column,
    Schema,
    is_list,
    is_struct,
)
from dbsp.zset.span_texts import spans_of_texts

BLOCK_BYTES = 4 << 20
BLOCK_BYTES_SMALL = 1 << 15
REASON_CHARS_MAX = 300
ARRAY_PIECE_ROWS = 4096
ROW_BYTES_MAX, DOCUMENT_BYTES_MAX = 16 << 20, 64 << 20
"""Bounds of pushed JSON: as Python values it takes up to thirty times its bytes, and a document is read as one text."""
LONG_HINT = "send JSON lines of shorter rows, or an Arrow stream"
_DIGITS_MAX = 400
TEXT_FORMS = {
    DATE: "2026-05-01", TIME: "10:00:00", TIMESTAMP: "2026-05-01 10:00:00", TIMESTAMP_UTC: "2026-05-01T10:00:00Z",
    DURATION: "1 day, 10:00:00",
}  # fmt: skip
_NANOSECONDS = re.compile(r"\.\d{7}")
_ENVELOPE = re.compile(rb'\s*\{\s*"(insert|delete)"\s*:\s*\{')
_ENVELOPE_WITHIN = re.compile(rb'"(insert|delete)"\s*:\s*\{')
_SPACE = re.compile(r"[ \t\r\n]*")
_OPERATIONS = {"insert": INSERT, "delete": DELETE}


class _KindError(Exception):
    """The error for a JSON value of another kind than the type needs."""


_MISFITS = (_KindError, pa.ArrowException, ValueError, OverflowError)


@dataclass(frozen=True, slots=True)
class _Row:
    """A good row as wire values, in the order of the schema."""

    operation: int
    values: list[Any]


def decode_json(data: bytes, table: Table, *, extras: bool = False, bounds: PushBounds | None = None) -> Push:
    """Decode all rows, good and bad, in order; without `bounds` no content raises an error.

    With `extras`, names that the table, a struct or an envelope does not have are ignored. A byte order mark at the
    beginning is always ignored.

    **Errors** `CapacityError` and `DataError` as soon as the rows, or the bad rows among them, exceed the bounds.

    **Cost** about a million rows a second if all rows are good. A block of 32 KiB with a bad row is some hundred
    times slower.

    **Example**

    >>> from dbsp.zset.schema import INT64, STRING, Schema
    >>> table = Table(name="t", schema=Schema.of({"id": INT64, "name": STRING}), primary_key=("id",))
    >>> push = decode_json(b'{"id": 1, "name": "a"}\\n{"delete": {"id": 1}}\\n{"id": "x"}', table)
    >>> push.batch.to_rows(), push.operations.tolist(), push.bad[0].reason
    ([((1, 'a'), 1), ((1, None), 1)], [0, 1], 'column id: expected int64, found a string')
    """
    body = data.removeprefix(MARK).strip()
    if body[:1] == b"[":
        return _decode_array(body, table, extras, bounds)
    try:
        push = decode_json_lines(body, table, extras=extras, bounds=bounds)
    except DataError:  # more bad lines than the bounds allow
        alone = _one_object(body, table, extras)
        if alone is None:
            raise
        return alone
    alone = None if len(push.batch) else _one_object(body, table, extras)
    return push if alone is None else alone


def decode_json_lines(data: bytes, table: Table, *, extras: bool = False, bounds: PushBounds | None = None) -> Push:
    """Decode bytes as `decode_json` does, but always take each nonblank line as one row."""
    found = _Pieces(table, bounds)
    for piece in _decode_blocks(data, table, BLOCK_BYTES, extras, bounds):
        found.add(piece)
    return found.joined()


class _Pieces:
    """The decoded pieces of one push, counted against its bounds as they are added."""

    def __init__(self, table: Table, bounds: PushBounds | None) -> None:
        self._table, self._bounds = table, bounds
        self._pieces: list[Push] = []
        self._rows, self._bytes = 0, 0
        self._bad: list[BadRow] = []

    def add(self, piece: Push) -> None:
        """Add a piece; raise an error if all pieces so far exceed the bounds."""
        self._pieces.append(piece)
        if self._bounds is None:
            return
        self._bad.extend(replace(row, index=self._rows + row.index) for row in piece.bad)
        self._rows, self._bytes = self._rows + piece.rows, self._bytes + piece.batch.nbytes
        self._bounds.refuse_size(self._rows, max(self._rows * row_bytes(self._table.schema), self._bytes))
        self._bounds.refuse_bad(self._bad)

    def joined(self) -> Push:
        """Return the pieces as one push."""
        return join_pushes(self._pieces or [_assemble([], [], self._table.schema)], self._table.schema)


def _decode_blocks(
    data: bytes, table: Table, size: int, extras: bool, bounds: PushBounds | None = None
) -> Iterator[Push]:
    """Decode blocks of whole lines: each the fast way if possible, else in smaller blocks, else row by row."""
    for block in _blocks(data, size):
        fast = _decode_fast(block, table, extras)
        if fast is not None:
            yield fast
        elif size > BLOCK_BYTES_SMALL:
            yield from _decode_blocks(block, table, BLOCK_BYTES_SMALL, extras, bounds)
        else:
            yield _decode_lines([line for line in block.split(b"\n") if line.strip()], table, extras, bounds)


def _blocks(data: bytes, size: int) -> Iterator[bytes]:
    first = 0
    while first < len(data):
        end = data.find(b"\n", first + size)
        end = len(data) if end < 0 else end
        yield data[first:end]
        first = end + 1


# ---- whole blocks ----


def _decode_fast(block: bytes, table: Table, extras: bool = False) -> Push | None:
    """Decode a block with pyarrow's parser; return None if anything in it is irregular or bad."""
    rows, envelope = count_plain_rows(np.frombuffer(block, dtype=np.uint8)), _ENVELOPE.match(block) is not None
    hidden = (
        extras and not envelope and _ENVELOPE_WITHIN.search(block)
    )  # the parser would ignore the envelope as an extra name
    if rows < 0 or hidden or not _is_utf8(block) or _ambiguous(table.schema) or _is_deadly(block, table.schema):
        return None
    if rows == 0:
        return _assemble([], [], table.schema)
    found = _parsed(block, rows, table, extras, envelope=envelope, span_texts=False)
    if found is None and any(holds_spans(column.type) for column in table.schema):
        found = _parsed(block, rows, table, extras, envelope=envelope, span_texts=True)
    return found


def _parsed(block: bytes, rows: int, table: Table, extras: bool, *, envelope: bool, span_texts: bool) -> Push | None:
    """Parse a block with durations as numbers, or as texts; return None if anything in it is irregular or bad."""
    plain = pa.schema([(column.name, wire_type(column.type, span_texts=span_texts)) for column in table.schema])
    wanted = pa.schema([(name, pa.struct(list(plain))) for name in _OPERATIONS]) if envelope else plain
    try:
        parsed = pj.read_json(
            io.BytesIO(block),
            read_options=pj.ReadOptions(use_threads=False, block_size=len(block) + 1),
            parse_options=pj.ParseOptions(
                explicit_schema=wanted, unexpected_field_behavior="ignore" if extras else "error"
            ),
        ).combine_chunks()
        if parsed.num_rows != rows or parsed.num_columns != len(wanted):
            return None
        arrays = [whole(column) for column in parsed.columns]
        deletes = np.zeros(rows, dtype=np.bool_)
        if envelope:
            opened = _open_envelopes(arrays)
            if opened is None:
                return None
            arrays, deletes = opened
        parsed_columns = [from_wire(array, column.type) for array, column in zip(arrays, table.schema, strict=True)]
    except (pa.ArrowException, ValueError):
        return None
    columns = filled(parsed_columns, block, table)
    if columns is None or (table.append_only and deletes.any()):
        return None
    if not all(nulls_fit(array, column, deletes, table) for array, column in zip(columns, table.schema, strict=True)):
        return None
    return Push(batch=loose_batch(table.schema, columns), operations=np.where(deletes, DELETE, INSERT).astype(np.int8))


def _is_deadly(block: bytes, schema: Schema) -> bool:
    """Return whether a decimal in the block might crash the process in pyarrow's parser."""
    wanted = any(holds_decimals(column.type) for column in schema)
    return wanted and holds_long_exponent(np.frombuffer(block, dtype=np.uint8))


def _ambiguous(schema: Schema) -> bool:
    """Return whether a column could be taken for an envelope; then blocks are decoded row by row."""
    return any(column.name in _OPERATIONS and is_struct(column.type) for column in schema)


def _open_envelopes(
    arrays: Sequence[pa.Array],
) -> tuple[list[pa.Array], np.ndarray[Any, np.dtype[np.bool_]]] | None:
    """Return the rows inside the envelopes and the mask of deletes; None unless each holds exactly one row."""
    inserts, deletes = arrays
    is_delete = deletes.is_valid()
    if not pc.all(pc.xor(inserts.is_valid(), is_delete), min_count=0).as_py():
        return None
    mask = is_delete.to_numpy(zero_copy_only=False)
    if not mask.any():
        return inserts.flatten(), mask
    pairs = zip(deletes.flatten(), inserts.flatten(), strict=True)
    return [pc.if_else(is_delete, delete, insert) for delete, insert in pairs], mask


def nulls_fit(array: pa.Array, column: Column, deletes: np.ndarray[Any, np.dtype[np.bool_]], table: Table) -> bool:
    """Return whether a column's nulls are all allowed: a delete by key needs the key columns only."""
    if array.null_count == 0 or (column.nullable and column.name not in table.primary_key):
        return True
    if not table.primary_key or column.name in table.primary_key:
        return False
    return bool(np.all(array.is_valid().to_numpy(zero_copy_only=False) | deletes))


def whole(column: pa.ChunkedArray) -> pa.Array:
    """Return a parsed column as one array."""
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


# ---- row by row ----


def _decode_lines(lines: Sequence[bytes], table: Table, extras: bool = False, bounds: PushBounds | None = None) -> Push:
    good: list[_Row] = []
    bad: list[BadRow] = []
    defaults = _defaults(table)
    for index, line in enumerate(lines):
        if bounds is not None:
            _refuse_long("a row", len(line), ROW_BYTES_MAX)
            bounds.refuse_bad(bad)
        try:
            good.append(_read_row(_parse(line, extras), table, extras, defaults))
        except RowError as error:
            bad.append(_bad(index, error, text_of(line)))
    return _assemble(good, bad, table.schema)


def _refuse_long(what: str, size: int, most: int) -> None:
    """Raise a `CapacityError` for a text that would take too much memory as Python values."""
    if size > most:
        raise CapacityError(f"{what} in JSON is too long: bytes={size} bytes_max={most}", LONG_HINT)


def _decode_array(data: bytes, table: Table, extras: bool, bounds: PushBounds | None) -> Push:
    """Decode one JSON array of rows; other bytes are one bad row."""
    if bounds is not None:
        _refuse_long("an array of rows", len(data), DOCUMENT_BYTES_MAX)
    try:
        return _array_elements(data, table, extras, bounds).joined()
    except RowError as error:
        return _assemble([], [_bad(0, error, text_of(data))], table.schema)


def _array_elements(data: bytes, table: Table, extras: bool, bounds: PushBounds | None) -> _Pieces:
    """Decode the rows of an array into columns, `ARRAY_PIECE_ROWS` at a time."""
    found = _Pieces(table, bounds)
    good: list[_Row] = []
    bad: list[BadRow] = []
    defaults = _defaults(table)

    def flush() -> None:
        found.add(_assemble(good, bad, table.schema))
        good.clear()
        bad.clear()

    def visit(value: Any, first: int, last: int) -> None:
        try:
            good.append(_read_row(value, table, extras, defaults))
        except RowError as error:
            bad.append(_bad(len(good) + len(bad), error, text[first:last]))
            if bounds is not None:
                bounds.refuse_bad(bad)
        if len(good) + len(bad) == ARRAY_PIECE_ROWS:
            flush()

    with row_errors():
        text = data.decode()
        end = walk_elements(text, 0, decoder(extras), visit)
        if _SPACE.match(text, end).end() != len(text):  # type: ignore[union-attr]
            raise json.JSONDecodeError("Extra data", text, end)
    flush()
    return found


def _one_object(data: bytes, table: Table, extras: bool) -> Push | None:
    """Decode bytes as one object that spans several lines; return None if they are no such object."""
    if b"\n" not in data or len(data) > ROW_BYTES_MAX:
        return None
    try:
        value = _parse(data, extras)
    except RowError:
        return None
    try:
        return _assemble([_read_row(value, table, extras, _defaults(table))], [], table.schema)
    except RowError as error:
        return _assemble([], [_bad(0, error, text_of(data))], table.schema)


def _parse(data: bytes, extras: bool) -> Any:
    if data.startswith(MARK):
        raise RowError("a byte order mark that does not begin the whole")
    with row_errors():
        return decoder(extras).decode(data.decode())


def _read_row(value: Any, table: Table, extras: bool, defaults: Mapping[str, Any]) -> _Row:
    """Return the row of a JSON value; `defaults` are those of the table (`_defaults`), looked up once for many rows."""
    if not isinstance(value, dict):
        raise RowError(f"expected an object, found {_kind(value)}")
    operation, row = INSERT, value
    inside = {name: value[name] for name in _OPERATIONS if isinstance(value.get(name), dict)}
    if inside:
        others = [
            name for name, part in value.items() if name not in inside and not (name in _OPERATIONS and part is None)
        ]
        if len(inside) > 1 or (others and not extras):
            raise RowError("an envelope holds one row, under insert or delete, and nothing else")
        name, row = next(iter(inside.items()))
        operation = _OPERATIONS[name]
    if operation == DELETE and table.append_only:
        raise RowError(NO_DELETE)
    if extras:
        refuse_repeated(value, _OPERATIONS)
        refuse_repeated(row, table.schema)
        row = {name: _known(part, table.schema[name].type) for name, part in row.items() if name in table.schema}
    unknown = [name for name in row if name not in table.schema]
    if unknown:
        raise RowError(unknown_name("column", unknown[0], table.schema.names))
    row = {**defaults, **row} if defaults else row
    needs_all = operation == INSERT or not table.primary_key
    return _Row(operation, [_read_value(row.get(column.name), column, table, needs_all) for column in table.schema])


@cache
def _defaults(table: Table) -> dict[str, Any]:
    """Return the default of each column that has one, as a JSON value."""
    return {name: decoder(extras=False).decode(text) for name, text in default_texts(table)}


def _known(value: Any, type_: pa.DataType) -> Any:
    """Return the value without the fields that its type does not have."""
    if is_list(type_) and isinstance(value, list):
        return [_known(element, type_.value_type) for element in value]
    if is_struct(type_) and isinstance(value, dict):
        refuse_repeated(value, [field.name for field in type_])
        places = {name: type_.get_field_index(name) for name in value}
        return {name: _known(value[name], type_.field(place).type) for name, place in places.items() if place >= 0}
    return value


def _read_value(value: Any, column: Column, table: Table, needs_all: bool) -> Any:
    """Return a value in wire form, checked to be one that `from_wire` accepts."""
    if value is None:
        if column.name in table.primary_key or (needs_all and not column.nullable):
            raise RowError(f"column {column.name}: missing or null")
        return None
    try:
        return _fitted(value, column.type)
    except _MISFITS:
        raise RowError(_reason(value, column.type, f"column {column.name}")) from None


def _fitted(value: Any, type_: pa.DataType) -> Any:
    """Return a value in wire form; raise one of `_MISFITS` if it is not of the type."""
    wire = wire_type(type_)
    converted = _convert(value, type_)
    if converted is None:
        raise _KindError
    from_wire(pa.array([converted], type=wire), type_)
    return converted


def _reason(value: Any, type_: pa.DataType, place: str) -> str:
    """Return why a value is not of the type; for a list or struct, name its first wrong part."""
    if is_list(type_) and isinstance(value, list):
        at = _first_wrong(value, type_)
        return _reason(value[at], type_.value_type, f"{place}[{at + 1}]")
    if is_struct(type_) and isinstance(value, dict):
        unknown = [name for name in value if type_.get_field_index(name) < 0]
        if unknown:
            return f"{place}: {unknown_name('field', unknown[0], tuple(field.name for field in type_))}"
        name = next(name for name, part in value.items() if not _fits(part, type_.field(name).type))
        return _reason(value[name], type_.field(name).type, f"{place}.{name}")
    try:
        _fitted(value, type_)
    except UnicodeEncodeError:
        return f"{place}: not valid text"
    except _MISFITS as error:
        if isinstance(error, _KindError):
            return f"{place}: expected {type_}, found {_kind(value)}{_text_form(type_)}"
    if type_ == TIMESTAMP and _fits(value, TIMESTAMP_UTC):
        return f"{place}: a time with a zone, declare the column dbsp.TIMESTAMP_UTC: {_shown(value)}"
    form = " (an even number of hexadecimal digits)" if type_ == BINARY else ""
    if type_ in TEXT_FORMS and _NANOSECONDS.search(str(value)):
        form = " (at most six digits of a second)"
    return f"{place}: not a valid {type_}{form}: {_shown(value)}"


def _text_form(type_: pa.DataType) -> str:
    """Return what to send for a type that is a text in JSON; empty for other types."""
    return f'; send a text such as "{TEXT_FORMS[type_]}"' if type_ in TEXT_FORMS else ""


def _fits(value: Any, type_: pa.DataType) -> bool:
    """Return whether a value is null or of the type."""
    try:
        if value is not None:
            _fitted(value, type_)
    except _MISFITS:
        return False
    return True


def _first_wrong(values: list[Any], type_: pa.DataType) -> int:
    """Return the index of the first element that is not of the type, found by bisection."""
    low, high = 0, len(values)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _fits(values[low:middle], type_) else (low, middle)
    return low


def _convert(value: Any, type_: pa.DataType) -> Any:
    """Return the Python value that pyarrow turns into the wire type; None if the JSON value is of another kind."""
    if is_list(type_):
        return _convert_list(value, type_.value_type) if isinstance(value, list) else None
    if is_struct(type_):
        return _convert_object(value, type_) if isinstance(value, dict) else None
    if type_ == BOOL:
        return value if isinstance(value, bool) else None
    if type_ == DURATION and type(value) is str:
        return spans_of_texts(pa.array([value], STRING))[0].value
    if pa.types.is_integer(type_) or type_ == DURATION:
        return _whole(value) if isinstance(value, Integer | Real) else None
    if pa.types.is_floating(type_):
        return _float(value) if isinstance(value, Integer | Real) else None
    if pa.types.is_decimal(type_):
        return _decimal(value, wire_type(type_)) if isinstance(value, str) else None
    return value if type(value) is str else None


def _convert_list(values: list[Any], type_: pa.DataType) -> list[Any] | None:
    """Convert every element to the wire type or null; return None if one is of another kind."""
    converted = [None if value is None else _convert(value, type_) for value in values]
    wrong = any(made is None and value is not None for made, value in zip(converted, values, strict=True))
    return None if wrong else converted


def _convert_object(value: dict[str, Any], type_: pa.DataType) -> dict[str, Any] | None:
    """Convert every field to the wire type or null; return None if one is of another kind."""
    if any(type_.get_field_index(name) < 0 for name in value):
        return None
    converted = {name: None if part is None else _convert(part, type_.field(name).type) for name, part in value.items()}
    wrong = any(converted[name] is None and part is not None for name, part in value.items())
    return None if wrong else converted


def _whole(text: str) -> int | None:
    """Return a JSON number such as `3` or `3.0` as an integer; None if it has a fraction.

    A number with too many digits becomes one that is out of range of every type.
    """
    if len(text) >= _DIGITS_MAX:
        return 1 << 70
    if isinstance(text, Integer):
        return int(text)
    number = _float(text)
    if abs(number) < 1:
        return None if text.lower().partition("e")[0].strip("-0.") else 0
    exact = Decimal(text) if abs(number) < 1 << 65 else Decimal(1 << 70)
    return int(exact) if exact == exact.to_integral_value() else None


def _float(text: str) -> float:
    number = float(text)
    if math.isinf(number) and "I" not in text:
        raise ValueError("out of range")
    return number


def _decimal(text: str, type_: pa.DataType) -> Any:
    """Read a decimal as pyarrow's own parser reads it; raise one of `_MISFITS` for other text."""
    return decimals_of_texts(pa.array([str(text)]), type_)[0].as_py()


def _assemble(good: Sequence[_Row], bad: Sequence[BadRow], schema: Schema) -> Push:
    columns = []
    for number, column in enumerate(schema):
        wire = pa.array([row.values[number] for row in good], type=wire_type(column.type))
        columns.append(from_wire(wire, column.type))
    operations = np.array([row.operation for row in good], dtype=np.int8)
    return Push(batch=loose_batch(schema, columns), operations=operations, bad=tuple(bad))


def _bad(index: int, error: RowError, payload: str) -> BadRow:
    reason = str(error).encode("utf-8", "backslashreplace").decode()
    return BadRow(index=index, reason=reason[:REASON_CHARS_MAX], payload=payload)


def bad_row(reason: str, data: bytes, table: Table) -> Push:
    """Return a push with one bad row, whose payload is `data`."""
    return _assemble([], [_bad(0, RowError(reason), text_of(data))], table.schema)


def text_of(data: bytes) -> str:
    """Return bytes as readable text: bytes that are no UTF-8 become escapes."""
    return data.decode("utf-8", "backslashreplace")


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    names = {
        bool: "a boolean",
        Integer: "an integer",
        Real: "a number",
        str: "a string",
        dict: "an object",
        Repeating: "an object",
        list: "a list",
    }
    return names[type(value)]


def _shown(value: Any) -> str:
    return str(value)[:80]

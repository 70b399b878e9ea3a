"""Changes of a database as Debezium writes them in JSON, with or without schemas.

A message is `{"before": {…}, "after": {…}, "op": "u", …}`. The table's columns are matched by name; others are not
read; a missing column has its default, else null. Without a schema it is also null if only one of the message's two
rows names it. Tombstones (messages without a value) are no rows; in the flat shape, each deletes the row of its key. A
message may carry its schema (`{"schema": …, "payload": …}`), which says how to read numbers and bytes; otherwise
`Encodings` says it. `dbsp.io.formats.envelopes` defines the effect of a change on its table.

pyarrow's parser decodes whole runs of messages. Source: Debezium's documentation of its connectors.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from dbsp.algebra.table import Table
from dbsp.errors import ConfigError
from dbsp.io.formats.absent import unnamed
from dbsp.io.formats.debezium_shapes import DELETED, ENVELOPE, FLAT, EnvelopeShape
from dbsp.io.formats.envelopes import change_rows
from dbsp.io.formats.json_rows import bad_row
from dbsp.io.formats.meaning import PLAIN, ChangeKind, Meaning, bytes_of_base64, named, to_column
from dbsp.io.formats.message_keys import NO_KEY, key_object, refuse_without_key
from dbsp.io.formats.runs import MISFITS, Decoded, WrongMessageError, by_kind, in_halves, no_rows
from dbsp.io.formats.wire import wire_type
from dbsp.zset.schema import (
    BINARY,
    BOOL,
    DATE,
    DURATION,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    TIME,
    TIMESTAMP,
    TIMESTAMP_UTC,
    Column,
    is_list,
    is_struct,
)

SAMPLED_MAX = 20
"""At most this many messages without a schema are parsed to guess how each column is written."""
SCHEMAS_MAX = 64
"""The cache of schemas is cleared when it holds this many."""
_TIMES = (TIME, TIMESTAMP, TIMESTAMP_UTC)
_PLAINLY = (BOOL, STRING, INT8, INT16, INT32, INT64, FLOAT32, FLOAT64)

_NUMBERS = ("int8", "int16", "int32", "int64")
_OF_NUMBERS = {DATE: Meaning(ChangeKind.DAYS), DURATION: Meaning(ChangeKind.DURATION, "us")}
_SCHEMA = re.compile(rb'\{\s*"schema"\s*:\s*')
_PAYLOAD = re.compile(r'\s*,\s*"payload"\s*:\s*')
_DECIMAL_TEXT = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_BASE64 = re.compile(r"[A-Za-z0-9+/]*={0,2}")
_OR = "in [input], or let messages carry their schema (value.converter.schemas.enable)"
_HINTS = {
    "decimals": f'set `decimals = "text"` (decimal.handling.mode=string or double) or "bytes" (precise) {_OR}',
    "timestamps": f'set `timestamps = "ms"` (time.precision.mode=connect), "us" or "ns" {_OR}',
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Encodings:
    """The facts that messages without a schema leave out.

    `decimals`: "text" (Debezium's `decimal.handling.mode=string` or `double`) or "bytes" (`precise`, its default).
    `timestamps`: "ms", "us" or "ns", for all times of the table. By default Debezium's unit depends on each column's
    precision, which only a schema tells, so set its `time.precision.mode`.
    """

    decimals: str | None = None
    timestamps: str | None = None


@dataclass(frozen=True, slots=True)
class _Field:
    """The form of a column in JSON: the type for the parser, whether its text is base64, and its logical type."""

    wire: pa.DataType
    meaning: Meaning = PLAIN
    base64: bool = False

    def column(self, array: pa.Array, type_: pa.DataType) -> pa.Array:
        if not self.base64:
            return to_column(array, self.meaning, type_)
        if self.meaning.kind is not ChangeKind.SCALED:
            return to_column(bytes_of_base64(array), self.meaning, type_)
        values = [array.field("scale"), bytes_of_base64(array.field("value"))]
        mask = array.is_null() if array.null_count else None
        return to_column(pa.StructArray.from_arrays(values, ["scale", "value"], mask=mask), self.meaning, type_)


_SCALED = _Field(pa.struct([("scale", pa.int32()), ("value", STRING)]), Meaning(ChangeKind.SCALED), base64=True)
_NOTHING = _Field(pa.null())
"""The field of a column without any value so far. A later value is checked by itself, and is bad if it cannot be read."""
_Fields = Mapping[str, _Field]


class DebeziumJson:
    """A decoder of one table's messages; it caches the schemas.

    **Cost** some 300 thousand messages a second of six columns. A wrong message costs some ten further reads of ever
    smaller runs.

    **Example**

    >>> from dbsp.zset.schema import Schema
    >>> table = Table(name="t", schema=Schema.of({"id": INT64, "name": STRING}), primary_key=("id",))
    >>> reader = DebeziumJson(table, Encodings())
    >>> push, rows = reader.decode([b'{"before": null, "after": {"id": 1, "name": "a"}, "op": "c"}', None])
    >>> push.batch.to_rows(), push.operations.tolist(), rows.tolist()
    ([((1, 'a'), 1)], [0], [1, 0])
    """

    def __init__(self, table: Table, encodings: Encodings, *, flat: bool = False) -> None:
        """Store the table and its encodings.

        `flat` means rows without an envelope, as `ExtractNewRecordState` writes them.

        **Errors** `ConfigError` for flat rows of a table without a primary key: an update would not say which row it
        replaces.
        """
        if flat:
            refuse_without_key(table, "debezium-flat")
        self.reads_keys = flat
        self._table, self._encodings = table, encodings
        self._shape: EnvelopeShape = FLAT if flat else ENVELOPE
        self._schemas: dict[bytes, _Fields | None] = {}

    def decode(self, values: Sequence[bytes | None], keys: Sequence[bytes | None] | None = None) -> Decoded:
        """Return the rows of all messages in order, and each message's number of rows.

        **Errors** `ConfigError` if messages without a schema hold values that `Encodings` does not explain; none for
        other content.
        """
        opened = [self._opened(value) for value in values]
        kinds = [(payload is None, id(fields), self._unnamed(fields, payload)) for fields, payload in opened]
        if keys is not None:
            opened = [part if part[1] is not None else (None, key) for part, key in zip(opened, keys, strict=True)]
        return by_kind(kinds, opened, self._run, self._table)

    def _run(
        self, kind: tuple[bool, int, frozenset[str]], opened: list[tuple[_Fields | None, bytes | None]]
    ) -> list[Decoded]:
        """Decode messages of one schema, or without one that leave out the same columns, or the keys of tombstones."""
        without_value, _, _ = kind
        if not without_value:
            return self._changes(opened[0][0], [payload for _, payload in opened if payload is not None])
        if not self.reads_keys:
            return [no_rows(self._table, len(opened))]
        gone = [self._gone(key) for _, key in opened]
        kinds = [id(each[0]) if isinstance(each[1], bytes) else None for each in gone]
        return [by_kind(kinds, gone, self._deletes, self._table)]

    def _changes(self, fields: _Fields | None, payloads: Sequence[bytes]) -> list[Decoded]:
        changes = _Changes(self._table, self._shape, fields, self._sampled)
        return in_halves(payloads, changes.rows, changes.reason, self._table)

    def _gone(self, key: bytes | None) -> tuple[_Fields | None, bytes] | Decoded:
        """Return a tombstone as a message that deletes the row of its key; a bad row if the key names no row."""
        fields, payload = self._opened(key)
        try:
            if payload is None:
                raise WrongMessageError(NO_KEY)
            row = key_object(payload, self._table)
        except WrongMessageError as error:
            return bad_row(str(error), key or b"", self._table), np.ones(1, np.int64)
        return fields, row[:-1] + b', "%s": "true"}' % DELETED.encode()

    def _deletes(self, kind: int | None, gone: list[Any]) -> Sequence[Decoded]:
        return gone if kind is None else self._changes(gone[0][0], [payload for _, payload in gone])

    # ---- the forms of columns ----

    def _opened(self, value: bytes | None) -> tuple[_Fields | None, bytes | None]:
        """Return the columns of the message's schema (None without one) and the payload (None for a tombstone)."""
        if value is None:
            return None, None
        value = value.strip()
        head = self._head_of(value)
        if head is None or not value.endswith(b"}"):
            return None, value
        payload = value[len(head) : -1].strip()
        return self._schemas[head], None if payload == b"null" else payload

    def _head_of(self, value: bytes) -> bytes | None:
        for head in self._schemas:
            if value.startswith(head):
                return head
        return self._new_head(value)

    def _new_head(self, value: bytes) -> bytes | None:
        """Return the bytes before the payload of a message with a schema, and cache the schema; None without one."""
        opening = _SCHEMA.match(value)
        if opening is None:
            return None
        try:
            text = value.decode("utf-8", "surrogateescape")  # a wrong payload is reported by its own decoder
            schema, end = json.JSONDecoder().raw_decode(text, opening.end())
        except (ValueError, RecursionError):
            return None
        payload = _PAYLOAD.match(text, end)
        if payload is None:
            return None
        if len(self._schemas) == SCHEMAS_MAX:
            self._schemas.clear()
        head = text[: payload.end()].encode("utf-8", "surrogateescape")
        self._schemas[head] = self._described(schema)
        return head

    def _described(self, schema: Any) -> _Fields | None:
        """Return the columns as the message's schema describes them; None if the schema describes no rows."""
        try:
            found = {part["field"]: part for part in self._shape.described(schema["fields"])}
            columns = [column for column in self._table.schema if column.name in found]
            return {column.name: _described(found[column.name], column.type) for column in columns}
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError, StopIteration):
            return None  # the schema may be any JSON

    def _sampled(self, payloads: Sequence[bytes]) -> _Fields:
        """Guess the columns' forms from the first messages.

        A wrong guess never changes a result: the parse fails, and the run is bisected with a new guess for each half.
        """
        values: dict[str, Any] = {}
        for payload in payloads[:SAMPLED_MAX]:
            try:
                message = json.loads(payload)
            except (ValueError, RecursionError):
                continue
            for row in self._shape.rows(message):
                values |= {name: value for name, value in row.items() if value is not None}
            if len(values) >= len(self._table.schema):
                break
        left_out = self._unnamed(None, payloads[0])
        named = (column for column in self._table.schema if column.name not in left_out)
        return {column.name: self._guessed(column, values.get(column.name)) for column in named}

    def _unnamed(self, fields: _Fields | None, payload: bytes | None) -> frozenset[str]:
        """Return the columns with a default that a message without a schema does not name."""
        return frozenset() if fields is not None or payload is None else unnamed(payload, self._table)

    def _guessed(self, column: Column, value: Any) -> _Field:
        """Return the form of a column without a schema, guessed from one value."""
        type_ = column.type
        if not _as_it_is(type_):
            return _NOTHING
        if type_ == BINARY:
            return _Field(STRING, base64=True)
        if pa.types.is_decimal(type_):
            return self._guessed_decimal(column, value)
        if isinstance(value, int) and not isinstance(value, bool):
            if type_ in _TIMES:
                kind = ChangeKind.TIME if type_ == TIME else ChangeKind.TIMESTAMP
                return _Field(INT64, Meaning(kind, self._said("timestamps", column)))
            if type_ in (BOOL, DATE, DURATION):
                return _Field(INT64, _OF_NUMBERS.get(type_, PLAIN))
        return _Field(wire_type(type_, span_texts=isinstance(value, str)))

    def _guessed_decimal(self, column: Column, value: Any) -> _Field:
        """Return the form of a decimal; for a text the settings alone decide it, since a number's text may be base64.

        A value that is a decimal in no encoding is bad by itself and does not require a setting.
        """
        if isinstance(value, dict):
            return _SCALED
        if self._encodings.decimals is None and not _may_be_decimal(value):
            return _NOTHING
        if self._said("decimals", column) == "bytes":
            return _Field(STRING, Meaning(ChangeKind.DECIMAL, scale=column.type.scale), base64=True)
        return _Field(wire_type(column.type))

    def _said(self, setting: str, column: Column) -> str:
        found: str | None = getattr(self._encodings, setting)
        if found is None:
            raise ConfigError(
                f"messages without a schema do not say what {column.type} is: table={self._table.name} column={column.name}",
                _HINTS[setting],
            )
        return found


def _may_be_decimal(value: Any) -> bool:
    """Return whether a value is a decimal in some encoding: a number, the text of a number, or base64."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return False
    if not isinstance(value, str) or _DECIMAL_TEXT.fullmatch(value):
        return True
    return bool(value) and len(value) % 4 == 0 and _BASE64.fullmatch(value) is not None


class _Changes:
    """A decoder for one form of messages: given fields, or fields guessed from a sample."""

    def __init__(
        self, table: Table, shape: EnvelopeShape, fields: _Fields | None, sampled: Callable[[Sequence[bytes]], _Fields]
    ) -> None:
        self._table, self._shape, self._fields, self._sampled = table, shape, fields, sampled

    def rows(self, payloads: Sequence[bytes]) -> Decoded:
        """Return the rows of messages that are all good; raise one of `MISFITS` if one is not."""
        fields = self._sampled(payloads) if self._fields is None else self._fields
        before, after, op = self._parsed(payloads, fields)
        was, comes = (rows.is_valid().to_numpy(zero_copy_only=False) for rows in (before, after))
        return change_rows(self._table, self._columns(pa.concat_arrays([before, after]), fields), was, comes, op)

    def _parsed(self, payloads: Sequence[bytes], fields: _Fields) -> tuple[pa.Array, pa.Array, pa.Array]:
        return self._shape.parsed(payloads, pa.struct([(name, field.wire) for name, field in fields.items()]))

    def _columns(self, rows: pa.Array, fields: _Fields) -> list[pa.Array]:
        found = dict(zip(fields, rows.flatten(), strict=True))
        return [
            fields[column.name].column(found[column.name], column.type)
            if column.name in found
            else self._table.absent(column, len(rows))
            for column in self._table.schema
        ]

    def reason(self, payload: bytes, error: Exception) -> str:
        """Return why one message is bad: the first wrong column, or else the parser's error."""
        fields = self._sampled([payload]) if self._fields is None else self._fields
        try:
            message = json.loads(payload)
        except (ValueError, RecursionError) as wrong:
            return f"not JSON: {wrong}"
        for row in self._shape.rows(message):
            for column, field in fields.items():
                type_, one = self._table.schema[column].type, self._shape.one(column, row.get(column))
                try:
                    field.column(self._parsed([json.dumps(one).encode()], {column: field})[1].field(0), type_)
                except MISFITS:
                    return f"column {column}: not a valid {type_}: {str(row.get(column))[:80]}"
        return f"not a change of Debezium's: {error}"


def _described(part: Mapping[str, Any], type_: pa.DataType) -> _Field:
    """Return the form of a column as its schema describes it."""
    if not _as_it_is(type_):
        return _NOTHING
    meaning = named(part.get("name"), part.get("parameters") or {})
    if meaning.kind is ChangeKind.SCALED:
        return _SCALED
    kind = part["type"]
    if kind == "bytes":
        return _Field(STRING, meaning, base64=True)
    if kind in _NUMBERS and (meaning is not PLAIN or type_ == BOOL):
        return _Field(INT64, meaning)
    if kind in ("float", "double") and (pa.types.is_integer(type_) or type_ == DURATION):
        return _Field(FLOAT64, meaning)  # 3.0 is a whole number
    return _Field(wire_type(type_, span_texts=kind == "string"), meaning)


def _as_it_is(type_: pa.DataType) -> bool:
    """Return whether the type needs no logical type inside: all nested elements and fields have plain JSON forms."""
    inner = [type_.value_type] if is_list(type_) else [field.type for field in type_] if is_struct(type_) else []
    return all(_as_it_is(each) and (each in _PLAINLY or is_list(each) or is_struct(each)) for each in inner)

"""Avro as strangers write it: schemas and rows drawn at random, encoded by fastavro; a registry that holds one schema."""

from __future__ import annotations

import datetime
import io
import struct
from decimal import Decimal
from typing import Any

import fastavro
from hypothesis import strategies as st

from dbsp.io.formats.avro.registry import RegisteredSchema
from dbsp.zset import schema as types

NUMBER = 7
LONG = st.integers(-(1 << 63), (1 << 63) - 1)
INT = st.integers(-(1 << 31), (1 << 31) - 1)
TEXT = st.text(max_size=6)
MOMENT = st.datetimes(datetime.datetime(1, 1, 1), datetime.datetime(9999, 12, 31))
MOMENT_UTC = MOMENT.map(lambda moment: moment.replace(tzinfo=datetime.UTC))
DECIMAL = st.integers(-(10**11), 10**11).map(lambda number: Decimal(number).scaleb(-2))


def in_ms(moment: datetime.datetime) -> datetime.datetime:
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


def logical(base: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": base, "logicalType": name, **more}


READ: dict[str, tuple[Any, Any, st.SearchStrategy[Any]]] = {
    "long": ("long", types.INT64, LONG),
    "int": ("int", types.INT32, INT),
    "int_as_long": ("int", types.INT64, INT),
    "boolean": ("boolean", types.BOOL, st.booleans()),
    "float": ("float", types.FLOAT64, st.floats(width=32, allow_nan=False)),
    "double": ("double", types.FLOAT64, st.floats(allow_nan=False)),
    "string": ("string", types.STRING, TEXT),
    "bytes": ("bytes", types.BINARY, st.binary(max_size=5)),
    "fixed": ({"type": "fixed", "name": "F", "size": 3}, types.BINARY, st.binary(min_size=3, max_size=3)),
    "enum": ({"type": "enum", "name": "E", "symbols": ["a", "bc"]}, types.STRING, st.sampled_from(["a", "bc"])),
    "decimal": (logical("bytes", "decimal", precision=13, scale=2), types.decimal(13, 2), DECIMAL),
    "uuid": (logical("string", "uuid"), types.STRING, st.uuids().map(str)),
    "date": (logical("int", "date"), types.DATE, st.dates()),
    "time": (logical("long", "time-micros"), types.TIME, st.times()),
    "moment": (logical("long", "timestamp-micros"), types.TIMESTAMP_UTC, MOMENT_UTC),
    "millis": (logical("long", "timestamp-millis"), types.TIMESTAMP_UTC, MOMENT_UTC.map(in_ms)),
    "local": (logical("long", "local-timestamp-micros"), types.TIMESTAMP, MOMENT),
    "misplaced_date": (logical("string", "date"), types.STRING, TEXT),
    "misplaced_moment": (logical("int", "timestamp-millis"), types.INT32, INT),
}
"""By kind: the Avro type, the column's, the values."""

PASSED_OVER: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "array": ({"type": "array", "items": ["null", "string"]}, st.lists(st.none() | TEXT, max_size=3)),
    "map": ({"type": "map", "values": "long"}, st.dictionaries(TEXT, LONG, max_size=3)),
    "nested": (
        {"type": "array", "items": {"type": "map", "values": {"type": "array", "items": "int"}}},
        st.lists(st.dictionaries(TEXT, st.lists(INT, max_size=2), max_size=2), max_size=2),
    ),
    "union": (["null", "long", "string"], st.none() | LONG | TEXT),
    "record": (
        {
            "type": "record",
            "name": "Inner",
            "fields": [{"name": "x", "type": "double"}, {"name": "y", "type": "Inner2"}],
        },
        st.fixed_dictionaries({"x": st.floats(allow_nan=False), "y": st.fixed_dictionaries({"z": LONG})}),
    ),
}
INNER = {"type": "record", "name": "Inner2", "fields": [{"name": "z", "type": "long"}]}


class Held:
    """A registry with one schema, whatever number is asked for."""

    def __init__(self, schema: Any, *definitions: Any) -> None:
        self._found = RegisteredSchema("AVRO", schema, definitions)

    def schema(self, number: int) -> RegisteredSchema:
        return self._found


def encoded(schema: Any, row: Any) -> bytes:
    """A message as Confluent's clients write it."""
    out = io.BytesIO()
    out.write(struct.pack(">bI", 0, NUMBER))
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), row, strict=True)
    return out.getvalue()

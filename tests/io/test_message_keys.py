"""Messages without a value: each deletes the row of its key, in whatever form the key comes, wherever it stands."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable
from typing import Any

import pytest

from dbsp.algebra.table import Table
from dbsp.errors import ConfigError
from dbsp.io.formats.avro.registry import RegisteredSchema as AvroSchema
from dbsp.io.formats.avro.rows import AvroRows
from dbsp.io.formats.debezium import DebeziumJson, Encodings
from dbsp.io.formats.json_messages import JsonRows, JsonUpserts
from dbsp.io.formats.message_keys import NO_KEY, deletes_of
from dbsp.io.formats.runs import Decoded
from dbsp.zset.schema import DATE, INT64, STRING, Schema

ITEMS = Table(name="items", schema=Schema.of({"id": INT64, "name": STRING}), primary_key=("id",))
TEXTS = Table(name="texts", schema=Schema.of({"name": STRING, "n": INT64}), primary_key=("name",))
PLACES = Table(name="places", schema=Schema.of({"a": INT64, "b": STRING, "n": INT64}), primary_key=("a", "b"))
DAYS = Table(name="days", schema=Schema.of({"day": DATE, "n": INT64}), primary_key=("day",))


def verdicts(push: Any, counts: Any) -> list[list[Any]]:
    """What became of each message."""
    rows: list[Any] = [None] * push.rows
    for place, (row, _), operation in zip(push.good_indices(), push.batch.to_rows(), push.operations, strict=True):
        rows[place] = (int(operation), *row)
    for bad in push.bad:
        rows[bad.index] = bad.reason
    found = iter(rows)
    return [[next(found) for _ in range(count)] for count in counts]


@pytest.mark.parametrize(
    ("table", "key", "expected"),
    [
        (ITEMS, b'{"id": 7}', (1, 7, None)),
        (ITEMS, b"7", (1, 7, None)),
        (ITEMS, b'{"id":\n 7, "more": [1]}', (1, 7, None)),
        (ITEMS, b'{"schema": {"type": "int64"}, "payload": 7}', (1, 7, None)),
        (ITEMS, b'{"schema": null, "payload": {"id": 7}}', (1, 7, None)),
        (ITEMS, b'{"name": "x"}', "column id: missing or null"),
        (ITEMS, b'{"id": 1}, "insert": {"id": 2}', "the key is not JSON"),
        (ITEMS, b'"7"', "column id: expected int64, found a string"),
        (ITEMS, b"", "the key is not JSON"),
        (ITEMS, None, NO_KEY),
        (TEXTS, b"tea", (1, "tea", None)),
        (TEXTS, b'"tea"', (1, "tea", None)),
        (TEXTS, b"7", (1, "7", None)),
        (TEXTS, b"", (1, "", None)),
        (TEXTS, b'two "words"\n', (1, 'two "words"\n', None)),
        (TEXTS, b"\xff", "the key is not UTF-8"),
        (PLACES, b'{"b": "x", "a": 1}', (1, 1, "x", None)),
        (PLACES, b"1", "the key is not an object, and the table's key has several columns"),
    ],
)
def test_a_key_is_the_row_that_goes(table: Table, key: bytes | None, expected: Any) -> None:
    assert verdicts(*deletes_of([key], table)) == [[expected]]
    assert verdicts(*JsonUpserts(table).decode([None], [key])) == [[expected]]


def test_keys_are_written_as_the_columns_of_a_flattened_change() -> None:
    """A day is a number of days there, in the key as in the row."""
    schema = {"type": "struct", "fields": [{"field": "day", "type": "int32", "name": "io.debezium.time.Date"}]}
    key = json.dumps({"schema": schema, "payload": {"day": 19000}}).encode()
    reader = DebeziumJson(DAYS, Encodings(), flat=True)
    (deleted,) = verdicts(*reader.decode([None], [key]))
    assert str(deleted) == "[(1, datetime.date(2022, 1, 8), None)]"
    assert verdicts(*reader.decode([None], [b'{"day": 19000}'])) == [deleted]
    assert verdicts(*reader.decode([None], [b"19000"])) == [deleted]
    assert verdicts(*reader.decode([None, b'{"schema":null,"payload":null}'], [None, b"19000"])) == [[NO_KEY], deleted]


class Held:
    """A registry of three schemas."""

    def schema(self, number: int) -> AvroSchema:
        field = {"name": "id", "type": "long"}
        record = {"type": "record", "name": "r", "fields": [field, {"name": "name", "type": ["null", "string"]}]}
        found: Any = {1: record, 2: {"type": "record", "name": "k", "fields": [field]}, 3: "long"}[number]
        return AvroSchema(kind="AVRO", schema=found, definitions=())


def avro(number: int, body: bytes) -> bytes:
    return struct.pack(">bI", 0, number) + body


JSON_VALUES = [
    b'{"id": 1, "name": "a"}',
    b'{"delete": {"id": 2}}',
    b'{"id": "x"}',
    b"",
    b'[{"id": 3}, {"id": 4}]',
    None,
]
JSON_KEYS = [b"1", b'{"id": 2}', b"x", None, b'{"schema": 0, "payload": 5}']
FLAT_VALUES = [
    b'{"id": 1, "name": "a"}', b'{"id": 2, "__deleted": "true"}', b'{"id": "x"}', b"7",
    b'{"schema": {"fields": [{"field": "id", "type": "int64"}]}, "payload": {"id": 6}}', None,
]  # fmt: skip
AVRO_VALUES = [avro(1, b"\2\2\2a"), avro(1, b"\4\0"), avro(1, b""), b"7", None]
AVRO_KEYS = [avro(2, b"\2"), avro(3, b"\4"), avro(3, b""), b"7", b'{"id": 8}', None]
READERS: dict[str, tuple[Callable[[], Any], Any, Any]] = {
    "json": (lambda: JsonRows(ITEMS), JSON_VALUES, JSON_KEYS),
    "upsert": (lambda: JsonUpserts(ITEMS), JSON_VALUES, JSON_KEYS),
    "debezium-flat": (lambda: DebeziumJson(ITEMS, Encodings(), flat=True), FLAT_VALUES, JSON_KEYS),
    "avro": (lambda: AvroRows(ITEMS, Held()), AVRO_VALUES, AVRO_KEYS),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("format_", READERS)
def test_a_message_has_one_verdict_whatever_stands_beside_it(format_: str) -> None:
    make, values, keys = READERS[format_]
    chance = random.Random(format_)
    alone: dict[Any, Any] = {}
    reader = make()
    kinds = set()
    for _ in range(60):
        messages = [(chance.choice(values), chance.choice(keys)) for _ in range(chance.randrange(1, 40))]
        for value, key in messages:
            if (value, key) not in alone:
                (alone[value, key],) = verdicts(*make().decode([value], [key]))
        decoded: Decoded = reader.decode(*map(list, zip(*messages, strict=True)))
        assert verdicts(*decoded) == [alone[message] for message in messages]
        kinds |= {type(row) for message in messages for row in alone[message]}
    assert kinds == {tuple, str}, "some are good and some are bad"
    gone = {key: alone[None, key] for value, key in alone if value is None}
    deletes = [rows for rows in gone.values() if rows[0][0] == 1]
    assert len(deletes) == {"json": 0, "upsert": 3, "debezium-flat": 3, "avro": 4}[format_]


def test_a_table_without_a_key_has_no_tombstones() -> None:
    for table in (
        Table(name="t", schema=ITEMS.schema),
        Table(name="t", schema=ITEMS.schema, primary_key=("id",), append_only=True),
    ):
        with pytest.raises(ConfigError, match="need a table with a primary key: table=t format=upsert"):
            JsonUpserts(table)
        made = AvroRows(table, Held()).decode([None], [avro(2, b"\2")])  # type: ignore[arg-type]
        assert verdicts(*made) == [["a message without a value"]]

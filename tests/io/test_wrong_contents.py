"""Every format with every kind of wrong content: a dead letter each, whatever stands beside it; never an error for all."""

from __future__ import annotations

import itertools
import json
import threading
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from dbsp.algebra.table import Table
from dbsp.errors import ConfigError, RowsError
from dbsp.io.formats.avro.registry import RegisteredSchema, Registry
from dbsp.io.formats.debezium import Encodings
from dbsp.io.kafka.copying import TopicCopy
from dbsp.io.kafka.input import KafkaSource, _unreadable
from dbsp.io.kafka.messages import FORMATS, MessageReader, MessageReading, reader_of
from dbsp.logs import Range
from dbsp.logs.step_commands import unreadable_row
from dbsp.zset.schema import BOOL, DATE, INT64, STRING, TIMESTAMP, Column, Schema, decimal
from tests.io.avro_samples import encoded

TABLE = Table(
    name="t",
    schema=Schema(
        (
            Column("id", INT64, nullable=False),
            Column("dec", decimal(10, 2)),
            Column("at", TIMESTAMP),
            Column("day", DATE),
            Column("ok", BOOL),
            Column("name", STRING),
        )
    ),
    primary_key=("id",),
)
GOOD = {"id": 1, "dec": "1.50", "at": "2024-05-31 10:00:00", "day": "2024-05-31", "ok": True, "name": "a"}
WRONG_VALUES: dict[str, list[Any]] = {
    "id": [None, "x", 1.5, True, 1 << 70, [1], {"a": 1}, ""],
    "dec": ["x", "1e-99999999", "1.555", "12345678901", True, [], {"a": 1}, "NaN", "", "é"],
    "at": ["x", "2024-13-01", "9999999-01-01", True, [], {}, "", "10:00"],
    "day": ["x", "2024-02-30", True, [], {}, 1.5],
    "ok": ["x", 7, [], {}, 1.5],
    "name": [1, True, [], {}, 1.5],
}
WRONG_BYTES = [
    b"", b"{", b"[]", b"[1]", b"null", b"true", b"7", b'"x"', b"\xff\xfe", b"\x00", b"{}", b'{"id"}', b'{"id": 1} {"id": 2}',
    b'{"id": NaN}', b"[" * 5000, b'{"a":' * 5000, b'{"payload": 1}', b'{"schema": {}, "payload": {"after": 1}}',
    b'{"schema": {"fields": 7}, "payload": {"op": 1}}', b'{"op": "c"}', b'{"after": 7, "op": "c"}',
    b'{"after": {"id": 1}, "op": 9}',
    b'{"insert": 7}', b'{"insert": {"id": "x"}}', b"\x00\x00\x00\x00\x07",
    b"\x00\x00\x00\x00\x07" + b"\xff" * 11,
]  # fmt: skip
AVRO: dict[str, Any] = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "dec", "type": ["null", "string"]},
        {"name": "at", "type": ["null", "string"]},
        {"name": "name", "type": ["null", "string"]},
    ],
}
CHANGE: dict[str, Any] = {
    "type": "record",
    "name": "Envelope",
    "fields": [
        {"name": "before", "type": ["null", AVRO]},
        {"name": "after", "type": ["null", "R"]},
        {"name": "op", "type": "string"},
    ],
}


class Registered(Registry):
    """A registry that holds one schema."""

    def __init__(self, schema: Any) -> None:
        super().__init__(url="")
        object.__setattr__(self, "held", schema)

    def schema(self, number: int) -> RegisteredSchema:
        return RegisteredSchema("AVRO", self.held)  # type: ignore[attr-defined]


def reader(format_: str, encodings: Encodings) -> MessageReader:
    registry = Registered(CHANGE if format_ == "debezium-avro" else AVRO)
    return reader_of(format_, TABLE, MessageReading(encodings=encodings, registry=registry))


def message(format_: str, row: dict[str, Any]) -> bytes | None:
    """The row as a message; None where the format cannot even say such a thing."""
    match format_:
        case "json" | "upsert":
            return json.dumps(row).encode()
        case "debezium":
            return json.dumps({"before": None, "after": row, "op": "c"}).encode()
        case "debezium-flat":
            return json.dumps({**row, "__deleted": "false"}).encode()
        case "avro" | "debezium-avro":
            fields = {name: row[name] for name in ("id", "dec", "at", "name")}
            schema, body = AVRO, fields
            if format_ == "debezium-avro":
                schema, body = CHANGE, {"before": None, "after": fields, "op": "c"}
            try:
                return encoded(schema, body)
            except (TypeError, ValueError, OverflowError):
                return None
        case "arrow":
            return _arrow(row)
    raise AssertionError(format_)


def _arrow(row: dict[str, Any]) -> bytes | None:
    """Columns of whatever types Arrow finds in the values."""
    try:
        table = pa.table({name: [value] for name, value in row.items()})
        if row == GOOD:
            plain = {**row, "dec": Decimal("1.50"), "at": None, "day": None}
            table = pa.table({c.name: pa.array([plain[c.name]], c.type) for c in TABLE.schema})
    except (pa.ArrowException, OverflowError):
        return None
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def contents(format_: str) -> list[bytes]:
    """Every wrong message of a format."""
    rows = [{**GOOD, name: value} for name, values in WRONG_VALUES.items() for value in values]
    made = [found for row in rows if (found := message(format_, row)) is not None]
    return [*made, *WRONG_BYTES]


ENCODINGS = [Encodings(), Encodings(decimals="text", timestamps="us"), Encodings(decimals="bytes", timestamps="ms")]


@pytest.mark.parametrize(("format_", "encodings"), list(itertools.product(FORMATS, ENCODINGS)), ids=str)
def test_wrong_content_is_a_dead_letter_and_stops_nothing_else(format_: str, encodings: Encodings) -> None:
    """Each wrong message between two good ones, where settings explain the good ones."""
    explained = encodings.decimals == "text" or not format_.startswith("debezium") or format_ == "debezium-avro"
    good = message(format_, GOOD if explained else {**GOOD, "dec": None})
    unexplained: list[str] = []
    for wrong in contents(format_):
        found = reader(format_, encodings)
        messages = [wrong] if good is None else [good, wrong, good]
        try:
            push, _ = found.decode(messages, [b"1"] * len(messages))
        except ConfigError as error:
            unexplained.append(error.message)
            continue
        beside = 0 if good is None else 2
        assert len(push.batch) >= beside, (wrong, [row.reason for row in push.bad])
        assert all(row.reason for row in push.bad)
    assert not (explained and unexplained), unexplained
    assert all("messages without a schema do not say" in said for said in unexplained)


def test_the_message_that_was_seen_is_a_dead_letter_without_any_setting() -> None:
    found = reader("debezium", Encodings())
    push, _ = found.decode([b'{"after":{"id":1,"dec":"x"},"op":"c"}', b'{"after":{"id":2,"dec":null},"op":"c"}'])
    assert (len(push.batch), [row.reason for row in push.bad]) == (1, ["column dec: not a valid decimal128(10, 2): x"])


class Message:
    """As Kafka's client gives one."""

    def __init__(self, offset: int, value: bytes) -> None:
        self._offset, self._value = offset, value

    def offset(self) -> int:
        return self._offset

    def value(self) -> bytes:
        return self._value

    def key(self) -> None:
        return None


def test_what_the_settings_do_not_explain_is_named_with_a_way_past(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dbsp.io.kafka.input.kafka", lambda: type("client", (), {"Message": Message}))
    values = [b'{"after":{"id":1,"dec":null},"op":"c"}', b'{"after":{"id":1,"dec":"1.50"},"op":"c"}']
    messages = [Message(10 + at, value) for at, value in enumerate(values)]
    found = reader("debezium", Encodings())
    with pytest.raises(ConfigError) as refused:
        found.decode(values)
    error = _unreadable(found, messages, Range(table="t", partition=3, first=10, last=12), "shop.t", refused.value)
    assert isinstance(error, RowsError)
    assert "topic=shop.t partition=3 offset=11" in error.message
    assert "coordinator skip" in str(error.hint)
    assert "decimals" in str(error.hint)
    row = unreadable_row(error)
    assert row is not None
    assert (row.table, row.partition, row.offset, row.payload) == ("t", 3, 11, values[1].decode())


class Follower:
    """One message of a topic that is followed."""

    def __init__(self, message: Message) -> None:
        self._message, self.next = message, dict[int, int]()

    def is_due(self) -> bool:
        return False

    def take(self, wait_s: float) -> dict[int, list[Message]]:
        return {3: [self._message]}

    def close(self) -> None: ...


def test_a_copy_names_what_the_settings_do_not_explain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of its topic is pushed until a start with other settings; the pipeline and the other topics go on."""
    monkeypatch.setattr("dbsp.io.kafka.input.kafka", lambda: type("client", (), {"Message": Message}))
    follower: Any = Follower(Message(11, b'{"after":{"id":1,"dec":"1.50"},"op":"c"}'))
    source = KafkaSource(table=TABLE, topic="shop.t", format="debezium", reading=MessageReading())
    told: list[str] = []
    nothing: Any = None
    copy = TopicCopy(source, follower, nothing, nothing, lambda kind, _: told.append(kind), threading.Event())
    assert not copy.round()
    assert f"table={TABLE.name} topic=shop.t partition=3 offset=11 payload=" in copy.shown["error"]
    assert "decimals" in copy.shown["error"]
    assert told == ["copy-failed"]

"""What a real Debezium wrote of a PostgreSQL table, in six of its modes, is the table; and a message has one verdict.

`debezium/*.jsonl`: Debezium 3.0.8 on PostgreSQL 15 by Kafka Connect 4.1, a line per message: two rows of a snapshot, an insert,
an insert of nulls, an update, an update of the key (two messages), a delete, a truncation. `schemas`: with schemas, by its
defaults, of a table that logs keys alone; `text`: without, `decimal.handling.mode=string`; `connect`: without,
`time.precision.mode=connect`; `doubles`: with, `connect` and decimals as doubles. Tombstones, which say nothing, are left out.
`flat` and `flat_schemas` are flattened by `ExtractNewRecordState`, which drops the truncation.
"""

from __future__ import annotations

import base64
import datetime
import json
from collections.abc import Sequence
from copy import deepcopy
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dbsp
from dbsp.algebra.table import Table
from dbsp.errors import ConfigError
from dbsp.io.formats import debezium
from dbsp.io.formats.debezium import DebeziumJson, Encodings
from dbsp.io.pushed import Push
from dbsp.zset.schema import Schema
from tests.io.test_avro import rows, verdicts
from tests.pace import examples

COLUMNS = {
    "id": dbsp.INT64, "name": dbsp.STRING, "paid": dbsp.decimal(12, 2), "free": dbsp.decimal(30, 6), "ts": dbsp.TIMESTAMP,
    "ts3": dbsp.TIMESTAMP, "tz": dbsp.TIMESTAMP_UTC, "d": dbsp.DATE, "t": dbsp.TIME, "t3": dbsp.TIME, "raw": dbsp.BINARY,
    "ok": dbsp.BOOL, "f": dbsp.FLOAT32, "g": dbsp.FLOAT64, "small": dbsp.INT16, "u": dbsp.STRING, "j": dbsp.STRING,
    "tags": dbsp.list_of(dbsp.STRING), "nums": dbsp.list_of(dbsp.INT32), "iv": dbsp.DURATION, "money_": dbsp.decimal(9, 2),
}  # fmt: skip
WITHOUT = [name for name in COLUMNS if name not in ("ts3", "t3")]
"""Columns that have one unit where no schema says it: PostgreSQL's default precision is six."""


def table(*names: str, key: bool = True, **more: Any) -> Table:
    columns = Schema.of({name: COLUMNS[name] for name in names or COLUMNS})
    return Table(name="t", schema=columns, primary_key=("id",) if key else (), **more)


def recorded(name: str) -> list[bytes]:
    return (Path(__file__).parent / "debezium" / f"{name}.jsonl").read_bytes().splitlines()


def in_database(
    number: int, name: int, paid: str | None, free: str | None, *, us: int = 789012, **more: Any
) -> dict[str, Any]:
    """A row as it was inserted."""
    moment = datetime.datetime(2026, 2, 3, 4, 5, 6, us)
    return {
        "id": number, "name": f"näme {name}", "paid": paid and Decimal(paid), "free": free and Decimal(free), "ts": moment,
        "ts3": moment.replace(microsecond=789000),
        "tz": datetime.datetime(2026, 2, 3, 2, 5, 6, 789012, datetime.UTC), "d": datetime.date(2026, 2, 28),
        "t": datetime.time(23, 59, 59, 123456 if us % 1000 else 123000), "t3": datetime.time(1, 2, 3, 4000),
        "raw": bytes([0, 255, name]), "ok": True, "f": 1.5, "g": 0.00225, "small": -7,
        "u": "6f9619ff-8b86-d011-b42d-00c04fc964ff",
        "j": '{"a": [1, null]}', "tags": ["x", None, "z"], "nums": [1, 2],
        "iv": datetime.timedelta(days=1, hours=2, minutes=3, seconds=4.5), "money_": Decimal("12.34"), **more,
    }  # fmt: skip


def expected(us: int, doubles: bool = False) -> list[tuple[int, dict[str, Any]]]:
    """What the statements did, in order: an operation and a row; deletes by key."""
    nulls = dict.fromkeys(COLUMNS)
    second = {
        "name": 2,
        "paid": "-9999999999.99",
        "free": "-12345678901234567000" if doubles else "-12345678901234567890.5",
    }
    ends = datetime.datetime(1969, 12, 31, 23, 59, 59, 999999 if us % 1000 else 999000)
    return [
        (0, in_database(1, 1, "12.30", "0.000123", us=us)),
        (0, in_database(2, **second, us=us)),  # type: ignore[arg-type]
        (0, in_database(3, 3, None, None, us=us)),
        (0, {**nulls, "id": 4}),
        (0, in_database(1, 1, "0.01", "0.000123", us=us) | {"ts": ends, "d": datetime.date(1, 1, 1)}),
        (1, {**nulls, "id": 2}),
        (0, in_database(5, **second, us=us)),  # type: ignore[arg-type]
        (1, {**nulls, "id": 3}),
    ]


def found(push: Push, names: Sequence[str]) -> list[tuple[int, dict[str, Any]]]:
    """Operations and rows; of a delete the key, which is all that counts."""
    made = []
    for row, operation in zip(rows(push), push.operations, strict=True):
        values = dict(zip(names, row, strict=True))
        made.append(
            (
                int(operation),
                values if operation == 0 else {name: values[name] if name == "id" else None for name in names},
            )
        )
    return made


@pytest.mark.parametrize(
    ("mode", "encodings", "names", "us"),
    [
        ("schemas", Encodings(), list(COLUMNS), 789012),
        ("doubles", Encodings(), list(COLUMNS), 789000),
        ("text", Encodings(decimals="text", timestamps="us"), WITHOUT, 789012),
        ("connect", Encodings(decimals="bytes", timestamps="ms"), list(COLUMNS), 789000),
    ],
)
def test_what_debezium_wrote_is_the_table(mode: str, encodings: Encodings, names: list[str], us: int) -> None:
    messages: list[bytes | None] = list(recorded(mode))
    messages.insert(-1, None)  # the tombstone that follows a delete
    push, counts = DebeziumJson(table(*names), encodings).decode(messages)
    assert [bad.reason[:12] for bad in push.bad] == ["not a change"]
    assert push.bad[0].index == len(messages) - 2
    assert counts.tolist() == [1] * 8 + [0, 1]
    wanted = [(operation, {name: row[name] for name in names}) for operation, row in expected(us, mode == "doubles")]
    assert found(push, names) == wanted


@pytest.mark.parametrize(
    ("mode", "encodings", "us"),
    [("flat_schemas", Encodings(), 789012), ("flat", Encodings(decimals="text", timestamps="ms"), 789000)],
)
def test_flattened_changes_are_the_table(mode: str, encodings: Encodings, us: int) -> None:
    push, counts = DebeziumJson(table(), encodings, flat=True).decode(recorded(mode))
    assert push.bad == ()
    assert counts.tolist() == [1] * 8
    assert found(push, list(COLUMNS)) == expected(us)


def test_flattened_changes_that_cannot_be_followed() -> None:
    for other in (table(key=False), table(append_only=True)):
        with pytest.raises(ConfigError, match="need a table with a primary key"):
            DebeziumJson(other, Encodings(), flat=True)
    hurt = [b'{"id": 1, "__deleted": "maybe"}', b'{"id": "x"}', b'{"__deleted": "true"}', b'{"id": 2}', b"[]"]
    push, _ = DebeziumJson(table("id"), Encodings(), flat=True).decode(hurt)
    assert rows(push) == [(2,)]
    assert [bad.reason for bad in push.bad] == [
        '__deleted: neither "true" nor "false"', "column id: not a valid int64: x", "column id: missing or null",
        "not one object, or nested too deeply",
    ]  # fmt: skip


def test_whole_rows_before_make_a_table_without_a_key() -> None:
    names = ["id", "paid", "iv"]
    reader = DebeziumJson(table(*names, key=False), Encodings(decimals="bytes"))
    push, counts = reader.decode(recorded("connect")[:8])
    assert counts.tolist() == [1, 1, 1, 1, 2, 1, 1, 1]
    total: dict[Any, int] = {}
    for row, operation in zip(rows(push), push.operations, strict=True):
        total[row] = total.get(row, 0) + (1 if operation == 0 else -1)
    wait = datetime.timedelta(days=1, hours=2, minutes=3, seconds=4.5)
    assert {row: weight for row, weight in total.items() if weight} == {
        (1, Decimal("0.01"), wait): 1, (4, None, None): 1, (5, Decimal("-9999999999.99"), wait): 1,
    }  # fmt: skip
    push, _ = DebeziumJson(table(*names, key=False), Encodings()).decode(recorded("schemas")[4:5])
    assert [bad.reason[:11] for bad in push.bad] == ["no `before`"]
    push, _ = DebeziumJson(table(*names, append_only=True), Encodings()).decode(recorded("schemas")[3:6])
    assert [bad.reason for bad in push.bad] == ["a delete in an append-only table"] * 2


def test_a_value_that_was_not_logged_makes_the_change_bad() -> None:
    big = Table(name="t", schema=Schema.of({"id": dbsp.INT64, "big": dbsp.STRING}), primary_key=("id",))
    push, _ = DebeziumJson(big, Encodings()).decode(recorded("schemas")[:8])
    assert [bad.index for bad in push.bad] == [4]
    assert push.bad[0].reason.startswith("column big: the database did not log the value")


@pytest.mark.parametrize(
    ("mode", "names", "missing"),
    [
        ("text", ["id", "paid"], "decimals"),
        ("text", ["id", "ts"], "timestamps"),
        ("connect", ["id", "t"], "timestamps"),
    ],
)
def test_what_no_schema_says_has_to_be_set(mode: str, names: list[str], missing: str) -> None:
    with pytest.raises(ConfigError, match="do not say what") as raised:
        DebeziumJson(table(*names), Encodings()).decode(recorded(mode))
    assert f"set `{missing} =" in str(raised.value.hint)


def test_lists_whose_elements_could_be_either_are_bad() -> None:
    """Four digits are a number, hexadecimal, and base64."""
    for element in (dbsp.decimal(9, 2), dbsp.BINARY, dbsp.DATE):
        for type_ in (dbsp.list_of(element), dbsp.struct_of({"x": element})):
            lists = Table(name="t", schema=Schema.of({"nums": type_}))
            for head in (b"", recorded("schemas")[0].partition(b'"payload":')[0] + b'"payload":'):
                value = ["1234"] if "list" in str(type_) else {"x": "1234"}
                message = head + json.dumps({"after": {"nums": value}, "op": "c"}).encode() + (b"}" if head else b"")
                push, _ = DebeziumJson(lists, Encodings(decimals="text")).decode([message])
                assert [bad.reason[:11] for bad in push.bad] == ["column nums"]


SMALL = Table(
    name="t",
    schema=Schema.of(
        {"id": dbsp.INT64, "name": dbsp.STRING, "paid": dbsp.decimal(6, 2), "at": dbsp.TIMESTAMP, "raw": dbsp.BINARY}
    ),
    primary_key=("id",),
)
VALUES: dict[str, list[Any]] = {
    "id": [1, 2, 2, 3, -5, None, "1", 1.5],
    "name": [None, "a", '\u00e4\n"', "__debezium_unavailable_value", 5, ["a"]],
    "paid": [None, "1.50", "-0.01", "1234", "1.505", "x", "Aa==", 2, 2.5, {"scale": 1, "value": "Dw=="}, {"scale": 1}],
    "at": [None, 0, -1, 1 << 62, "2026-02-03T04:05:06", "2026-02-03T04:05:06Z", True],
    "raw": [None, "", "AP8C", "AP8", "AP=C", base64.b64encode(b"xyz").decode()],
}
ROWS = st.none() | st.fixed_dictionaries(
    {}, optional={name: st.sampled_from(values) for name, values in VALUES.items()}
)
GOOD = st.fixed_dictionaries(
    {
        "id": st.sampled_from([1, 2]),
        "paid": st.sampled_from([None, "1234", "1.50", 12]),
        "more": st.just({"insert": {}}),
    }
)
ANY = st.fixed_dictionaries(
    {"before": ROWS | GOOD, "after": GOOD | ROWS, "op": st.sampled_from(["c", "u", "u", "d", "r", "t", None])}
)
FLAT = st.one_of(GOOD, ROWS.filter(bool)).flatmap(
    lambda row: st.sampled_from(
        [row, row | {"__deleted": "true"}, row | {"__deleted": "false"}, row | {"__deleted": True}]
    )
)
CHANGES = st.one_of(st.fixed_dictionaries({"after": GOOD, "op": st.just("c")}), ANY, FLAT)


@st.composite
def messages(draw: st.DrawFn) -> list[bytes | None]:
    """Changes, good and bad, with and without schemas, tombstones, and some bytes that were hurt."""
    heads = [part.partition(b'"payload":')[0] + b'"payload":' for part in recorded("schemas")[:1]]
    made: list[bytes | None] = []
    for change in draw(st.lists(CHANGES, min_size=1, max_size=8)):
        data = bytearray(json.dumps(change, ensure_ascii=draw(st.booleans())).encode() + b"}")
        if draw(st.integers(0, 2)) == 0:
            at = draw(st.integers(0, len(data) - 1))
            hurt = draw(st.sampled_from([b"", b"}", b"{", b'"', b"\xff", b"\n", b"null"]))
            data[at : at + draw(st.integers(0, 2))] = hurt
        head = draw(st.sampled_from([b"", *heads, b'{"schema":null, "payload": ']))
        data = head + data if head else data[:-1]
        made.append(draw(st.sampled_from([bytes(data)] * 9 + [None])))
    return made


@settings(max_examples=examples(600), deadline=None)
@given(
    messages(),
    st.sampled_from([Encodings(decimals="text", timestamps="us"), Encodings(decimals="bytes", timestamps="ms")]),
    st.booleans(),
)
def test_a_message_has_one_verdict_whatever_stands_beside_it(
    values: list[bytes | None], encodings: Encodings, flat: bool
) -> None:
    def reader() -> DebeziumJson:
        return DebeziumJson(SMALL, encodings, flat=flat)

    alone = [verdicts(*reader().decode([value]))[0] for value in values]
    remembering = reader()
    assert [verdicts(*remembering.decode([value]))[0] for value in values] == alone
    for sampled in (debezium.SAMPLED_MAX, 1):
        with patch.object(debezium, "SAMPLED_MAX", sampled):
            assert verdicts(*reader().decode(values)) == alone


ODD: list[Any] = [
    None, {}, [], "", "x", "AQ==", True, 0, -1, 7, 1.5, 1 << 70, float("inf"), float("nan"), "\ud83d", {"scale": 2},
    {"scale": None, "value": "AQ=="}, {"scale": 99, "value": "AQ=="}, [{}], [[1]], "org.apache.kafka.connect.data.Decimal",
]  # fmt: skip


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every container of a JSON value with each of its keys."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else []
    return [(value, key) for key in keys] + [place for key in keys for place in places(value[key])]


@st.composite
def hurt(draw: st.DrawFn) -> bytes:
    """A message that Debezium wrote, in any of its modes, of which some values are others, or gone."""
    message = json.loads(draw(st.sampled_from(RECORDED)))
    for _ in range(draw(st.integers(1, 3))):
        found = places(message)
        if not found:
            break
        container, key = draw(st.sampled_from(found))
        if draw(st.integers(0, 3)):
            container[key] = deepcopy(draw(st.sampled_from(ODD)))
        else:
            del container[key]
    return json.dumps(message, separators=(",", ":")).encode()


RECORDED = [
    message for mode in ("schemas", "text", "connect", "doubles", "flat", "flat_schemas") for message in recorded(mode)
]
SCALELESS = [b'{"id":1,"paid":{}}', b'{"id":1,"paid":{"scale":null,"value":"AQ=="}}']
OF_NO_PARAMETERS = [
    b'{"schema":{"type":"struct","fields":[{"type":"int64","field":"id"},{"type":"bytes","field":"paid","parameters":%s,'
    b'"name":"org.apache.kafka.connect.data.Decimal"}]},"payload":{"id":1,"paid":"AQ=="}}' % parameters
    for parameters in (b'"x"', b'{"scale":Infinity}', b'{"scale":null}')
]


@pytest.mark.parametrize("value", SCALELESS)
def test_a_decimal_that_does_not_say_its_scale_is_bad(value: bytes) -> None:
    push, _ = DebeziumJson(table("id", "paid"), Encodings(decimals="bytes"), flat=True).decode([value])
    assert [bad.reason.partition(": not a valid decimal")[0] for bad in push.bad] == ["column paid"]


@pytest.mark.parametrize("value", OF_NO_PARAMETERS)
def test_a_schema_that_is_none_says_nothing(value: bytes) -> None:
    """The message is read as those without a schema are."""
    push, _ = DebeziumJson(table("id", "paid"), Encodings(decimals="bytes"), flat=True).decode([value])
    assert push.batch.to_rows() == [((1, Decimal("0.01")), 1)]


@settings(max_examples=examples(600), deadline=None)
@given(st.lists(hurt(), min_size=1, max_size=4), hurt(), st.booleans())
def test_whatever_a_message_holds_it_is_read_or_bad(values: list[bytes], key: bytes, flat: bool) -> None:
    reader = DebeziumJson(table(), Encodings(decimals="bytes", timestamps="us"), flat=flat)
    push, counts = reader.decode([*values, None], [key] * len(values) + [key])
    assert push.rows == int(counts.sum())
    assert all(len(bad.reason) < 300 for bad in push.bad)

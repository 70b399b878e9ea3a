"""The same value is taken by the same rule, however it comes in: rows, columns, Arrow tables, JSON, files, messages.

The rules are the table of `dbsp.zset.given`. For every type the ways must agree on every value: all take it as the same value of
the column, or all refuse it.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import struct
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dbsp
from dbsp.errors import DataError, DbspError
from dbsp.io import imported_file
from dbsp.io.formats import arrow_rows, decode_arrow, decode_json, meaning
from dbsp.io.formats.avro.registry import RegisteredSchema
from dbsp.io.formats.avro.rows import AvroRows
from dbsp.io.formats.debezium import DebeziumJson, Encodings
from dbsp.io.imported_file import ImportedFileReader, examine_file
from dbsp.io.pushed import Push, PushBounds
from dbsp.logs import INSERT
from dbsp.runtime.pushed import rows_to_batch

REFUSED = "refused"
TWO = dt.timezone(dt.timedelta(hours=2))
TYPES = {
    "bool": dbsp.BOOL, "int8": dbsp.INT8, "int64": dbsp.INT64, "uint64": dbsp.UINT64, "float32": dbsp.FLOAT32,
    "float64": dbsp.FLOAT64, "decimal": dbsp.decimal(10, 2), "wide": dbsp.decimal(38, 10), "string": dbsp.STRING,
    "date": dbsp.DATE, "time": dbsp.TIME, "timestamp": dbsp.TIMESTAMP, "utc": dbsp.TIMESTAMP_UTC, "duration": dbsp.DURATION,
}  # fmt: skip
TABLES = {name: dbsp.table("t", {"x": type_}).node for name, type_ in TYPES.items()}

numbers = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from([0, 1, 127, 128, 2**24 + 1, 2**53 + 1, 2**63 - 1]),
    st.floats(),
    st.sampled_from([0.0, -0.0, 0.1, 1.25, 1.255, 3.0, 1e18, 1e300, math.inf, math.nan]),
    st.decimals(-(10**6), 10**6, places=2),
    st.decimals(-(10**6), 10**6, places=4),
)
moments = st.datetimes(dt.datetime(1800, 1, 1), dt.datetime(2200, 1, 1))
times = st.one_of(
    moments,
    moments.map(lambda at: at.replace(tzinfo=TWO)),
    moments.map(dt.datetime.date),
    moments.map(dt.datetime.time),
)
texts = st.one_of(
    st.sampled_from(["", "a", "1", "1.5", "1.255", "true", "nan", "2024-01-02", "2024-01-02 03:04", "2024-01-02T03:04:05Z",
                     "03:04", "2024-01-02T03:04:05+02:00", "2024-02-30", "ab", "1e3", "1 day, 2:03:04", "PT5M", "1 month"]),
    moments.map(dt.datetime.isoformat),
    st.timedeltas(dt.timedelta(-999), dt.timedelta(999)).map(str),
)  # fmt: skip
values = st.one_of(numbers, texts, st.booleans(), times, st.timedeltas(dt.timedelta(-999), dt.timedelta(999)))


def rows(name: str, value: Any) -> Any:
    return rows_to_batch(TABLES[name], [{"x": value}], INSERT).columns[0]


def columns(name: str, value: Any) -> Any:
    return rows_to_batch(TABLES[name], {"x": [value]}, INSERT).columns[0]


def arrow(name: str, value: Any) -> Any:
    return rows_to_batch(TABLES[name], pa.table({"x": [value]}), INSERT).columns[0]


def parquet(name: str, value: Any) -> Any:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "1.parquet"
        pq.write_table(pa.table({"x": [value]}), path)
        noted = examine_file(path, TABLES[name])
        return _only(ImportedFileReader(TABLES[name]).read(path, noted, 0, noted.rows))


def stream(name: str, value: Any) -> Any:
    return _only(decode_arrow(_stream(pa.table({"x": [value]})), TABLES[name], PushBounds(bad_rows_max=10)))


def _stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def in_json(name: str, value: Any) -> Any:
    text = str(value) if isinstance(value, Decimal) else json.dumps(value)
    return _only(decode_json(f'{{"x": {text}}}'.encode(), TABLES[name]))


def avro(name: str, value: Any) -> Any:
    schema = {"type": "record", "name": "R", "fields": [{"name": "x", "type": avro_type(value)}]}
    body = BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(dict(schema)), {"x": value})
    found: Any = Held(schema)
    return _only(AvroRows(TABLES[name], found).decode([struct.pack(">bI", 0, 1) + body.getvalue()])[0])


def avro_type(value: Any) -> Any:
    plain = {bool: "boolean", int: "long", float: "double", str: "string"}
    logical = {dt.date: ("int", "date"), dt.time: ("long", "time-micros")}
    if isinstance(value, Decimal):
        scale = max(0, -int(value.as_tuple().exponent))
        return {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": scale}
    if isinstance(value, dt.datetime):
        return {"type": "long", "logicalType": f"{'' if value.tzinfo else 'local-'}timestamp-micros"}
    if type(value) in logical:
        return dict(zip(("type", "logicalType"), logical[type(value)], strict=True))
    return plain[type(value)]


class Held:
    """A registry of one schema."""

    def __init__(self, schema: Any) -> None:
        self._schema = schema

    def schema(self, _number: int) -> RegisteredSchema:
        return RegisteredSchema(kind="AVRO", schema=self._schema, definitions=())


def debezium(name: str, value: Any) -> Any:
    kind = {bool: "boolean", int: "int64", float: "double", str: "string"}[type(value)]
    row = {"field": "after", "type": "struct", "fields": [{"field": "x", "type": kind}]}
    payload = {"before": None, "after": {"x": value}, "op": "c"}
    sent = json.dumps({"schema": {"type": "struct", "fields": [row]}, "payload": payload}).encode()
    return _only(DebeziumJson(TABLES[name], Encodings()).decode([sent])[0])


def _only(push: Push) -> Any:
    return None if push.bad else push.batch.columns[0]


WAYS: tuple[Callable[[str, Any], Any], ...] = (rows, columns, arrow, parquet, stream, in_json, avro, debezium)


def outcome(way: Callable[[str, Any], Any], name: str, value: Any) -> Any:
    try:
        made = way(name, value)
    except (DbspError, pa.ArrowException):
        return REFUSED
    if made is None:
        return REFUSED
    (found,) = made.to_pylist()
    return "nan" if isinstance(found, float) and math.isnan(found) else found


def ways_for(name: str, value: Any) -> list[Callable[[str, Any], Any]]:
    """Return the ways in which a format can say a value, without what docs/values.md excepts.

    JSON has no times, and the text of a large float is that of another whole number; Avro has no spans. In Avro and Debezium
    0 and 1 are booleans, and moments have no zone, or any.
    """
    told = isinstance(value, str | bool | int | float | Decimal) and not (
        isinstance(value, float) and abs(value) >= 2**53
    )
    left = set[Any]() if told else {in_json, debezium}
    if isinstance(value, Decimal) or (isinstance(value, float) and not math.isfinite(value)):
        left.add(debezium)
    zoned = isinstance(value, dt.datetime) and value.tzinfo is not None
    if isinstance(value, dt.timedelta) or (zoned and name in ("date", "timestamp")):
        left.add(avro)
    if type(value) is int and name == "bool":
        left |= {avro, debezium}
    return [way for way in WAYS if way not in left]


@pytest.mark.parametrize("name", TYPES)
@given(value=values)
def test_all_ways_agree(name: str, value: Any) -> None:
    found = {way.__name__: outcome(way, name, value) for way in ways_for(name, value)}
    assert len(set(map(repr, found.values()))) == 1, found


RULES = [
    ("float64", 2**53 + 1, float(2**53)), ("float64", Decimal("0.1"), 0.1), ("float64", True, REFUSED),
    ("float32", 2**24 + 1, float(2**24)), ("float32", 1e300, REFUSED), ("int64", 3.0, 3), ("int64", 3.5, REFUSED),
    ("int64", True, REFUSED), ("int64", "5", REFUSED), ("decimal", 1.5, Decimal("1.50")), ("decimal", 0.1, Decimal("0.10")),
    ("decimal", 1.255, REFUSED), ("decimal", "1.5", Decimal("1.50")), ("decimal", math.nan, REFUSED),
    ("string", 1, REFUSED), ("bool", 1, REFUSED), ("date", dt.datetime(2024, 1, 2), dt.date(2024, 1, 2)),
    ("date", dt.datetime(2024, 1, 2, 3), REFUSED), ("timestamp", dt.date(2024, 1, 2), dt.datetime(2024, 1, 2)),
    ("timestamp", dt.datetime(2024, 1, 2, tzinfo=TWO), REFUSED), ("timestamp", "2024-01-02T00:00+02:00", REFUSED),
    ("utc", dt.datetime(2024, 1, 2, 2, tzinfo=TWO), dt.datetime(2024, 1, 2, tzinfo=dt.UTC)),
    ("utc", dt.datetime(2024, 1, 2), dt.datetime(2024, 1, 2, tzinfo=dt.UTC)),
    ("utc", "2024-01-02 00:00", dt.datetime(2024, 1, 2, tzinfo=dt.UTC)), ("timestamp", 5, REFUSED), ("time", 5, REFUSED),
    ("duration", 5, dt.timedelta(microseconds=5)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value", "expected"), RULES)
def test_the_rules(name: str, value: Any, expected: Any) -> None:
    found = {way.__name__: outcome(way, name, value) for way in ways_for(name, value)}
    assert found == dict.fromkeys(found, expected)


def check_all_rules() -> None:
    for name, value, expected in RULES:
        test_the_rules(name, value, expected)


def cut_in_arrow(patch: pytest.MonkeyPatch) -> None:
    """What does not fit is cut in Parquet files and Arrow streams."""
    cutting = partial(arrow_rows.fitted, cast=lambda array, type_: array.cast(type_, safe=False))
    for module in (arrow_rows, imported_file):
        patch.setattr(module, "fitted", cutting)


def cut_in_topics(patch: pytest.MonkeyPatch) -> None:
    """What does not fit is cut in Avro and Debezium's messages."""
    patch.setattr(meaning, "column_given", lambda array, type_: array.cast(type_, safe=False))


@pytest.mark.parametrize("plant", [cut_in_arrow, cut_in_topics])
def test_a_way_with_rules_of_its_own_is_noticed(plant: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        check_all_rules()


def test_an_arrow_stream_names_row_and_column_of_what_does_not_fit() -> None:
    table = dbsp.table("t", {"a": dbsp.decimal(5, 2), "b": dbsp.INT8}).node
    sent = pa.table({"b": [1.0, 300.0, 2.5, 4.0], "a": ["1.5", "2", "x", "0.125"]})
    push = decode_arrow(_stream(sent), table, PushBounds(bad_rows_max=3))
    assert push.batch.to_rows() == [((Decimal("1.50"), 1), 1)]
    assert [(bad.index, bad.reason.partition(": ")[0]) for bad in push.bad] == [
        (1, "column b"),
        (2, "column b"),
        (3, "column a"),
    ]
    with pytest.raises(DataError, match=r"too many bad rows in one push: bad_rows_max=2; the first: row=1 column b: "):
        decode_arrow(_stream(sent), table, PushBounds(bad_rows_max=2))
    (bad,) = decode_arrow(_stream(pa.table({"a": [1], "b": ["1"]})), table).bad
    assert bad.reason == "not an Arrow stream of this table: column b: expected int8, found string"
    assert decode_arrow(_stream(sent.slice(0, 0)), table).rows == 0

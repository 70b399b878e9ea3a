"""Results of queries show what DuckDB shows, whatever type a value has."""

from __future__ import annotations

import json

import duckdb
import pyarrow as pa
import pytest

from dbsp.coordinator.http.cell_texts import csv_texts, object_rows
from dbsp.coordinator.query.child import reported
from dbsp.coordinator.query.statement import QueryLimits, run_query
from dbsp.errors import CapacityError, ConfigError, InternalError

ODD = [
    "99999999999999999999999999999999999999999", "-99999999999999999999999999999999999999999", "123::bignum", "'101'::bit",
    "'10:00:00+02'::timetz", "'10:00:00.123456789'::time_ns", "'a'::enum('a', 'b')", "340282366920938463463374607431768211455",
    "170141183460469231731687303715884105727::hugeint",
]  # fmt: skip
NESTED = ["{}", "[{}, null]", "{{'a\"b': {}, 'c': [{}]}}", "map(['k'], [{}])", "array_value({}, {})", "row(1, {})"]


def ask(sql: str, *, describe: bool = False) -> pa.Table:
    return run_query(sql, {}, QueryLimits(), (), describe=describe)


def texts(value: object) -> list[str]:
    """Return the texts in a nested value, in order."""
    if isinstance(value, dict):
        return [text for part in value.values() for text in texts(part)]
    if isinstance(value, list | tuple):
        return [text for part in value for text in texts(part)]
    return [str(value)]


@pytest.mark.parametrize("shape", NESTED)
@pytest.mark.parametrize("odd", ODD)
def test_a_value_is_shown_as_duckdb_shows_it(odd: str, shape: str) -> None:
    sql = f"select {shape.replace('{}', odd).replace('{{', '{').replace('}}', '}')} as v, 1 as one -- a comment"
    found = ask(sql)
    ((shown,),) = duckdb.sql(f"select ({odd})::varchar").fetchall()
    (row,) = json.loads(b"[" + b"".join(object_rows(found)) + b"]")
    assert row["one"] == 1
    assert shown in texts(row["v"])
    assert set(texts(row["v"])) <= {shown, "1", "None", "k"}
    assert ask(sql, describe=True).schema.types == found.schema.types


@pytest.mark.parametrize("end", ["", ";", "; -- done;", " /* ; */ ;"])
def test_texts_keep_rows_names_and_their_order(end: str) -> None:
    found = ask(
        f"select i as n, i::bignum as n, ';' as \"a;b\" from range(50000) as r(i) order by i % 7 desc, i desc{end}"
    )
    assert found.column_names == ["n", "n", "a;b"]
    assert found.column(0).to_pylist() == sorted(range(50000), key=lambda i: (-(i % 7), -i))
    assert found.column(1).to_pylist() == [str(i) for i in found.column(0).to_pylist()]


@pytest.mark.parametrize(
    ("type_", "given", "shown"),
    [
        ("timestamp_s", "2026-01-01 10:00:01", "2026-01-01 10:00:01"),
        ("timestamp_ms", "2026-01-01 10:00:01.5", "2026-01-01 10:00:01.500000"),
        ("timestamp_ns", "2026-01-01 10:00:01.123456789", "2026-01-01 10:00:01.123456789"),
        ("timestamp_ns", "2026-01-01 10:00:00", "2026-01-01 10:00:00"),
        ("timestamp_s", "9999-12-31 23:59:59", "9999-12-31 23:59:59"),
        ("timestamp_ms", "0001-01-01 00:00:00", "0001-01-01 00:00:00"),
    ],
)
def test_timestamps_of_other_units_are_shown(type_: str, given: str, shown: str) -> None:
    found = ask(f"select '{given}'::{type_} as t")
    assert b"".join(object_rows(found)) == json.dumps({"t": shown}, separators=(",", ":")).encode()
    assert csv_texts(found.column(0)).to_pylist() == [shown]


@pytest.mark.parametrize("type_", ["timestamp_s", "timestamp_ms"])
def test_a_day_that_cannot_be_shown_is_refused_in_other_units(type_: str) -> None:
    with pytest.raises(ConfigError, match="years 1 to 9999"):
        list(object_rows(ask(f"select '99999-01-01'::timestamp::{type_} as t")))


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (MemoryError(), CapacityError),
        (RuntimeError("can't start new thread"), CapacityError),
        (OSError(12, "Cannot allocate memory"), CapacityError),
        (pa.ArrowMemoryError("malloc of size 100 failed"), CapacityError),
        (TypeError("unhashable type"), InternalError),
        (KeyError("x"), InternalError),
        (ConfigError("no such view"), ConfigError),
    ],
)
def test_an_error_in_the_process_has_its_own_kind(error: Exception, kind: type[Exception]) -> None:
    assert type(reported(error, QueryLimits())) is kind

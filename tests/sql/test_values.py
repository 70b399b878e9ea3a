"""Values of a row: operators and functions give DuckDB's values, nulls among them, and its kinds of types."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import dbsp
from tests import duck
from tests.sql.playing import counted

T = dbsp.table(
    "t",
    {
        "id": dbsp.INT64, "i": dbsp.INT32, "b": dbsp.INT64, "d": dbsp.decimal(9, 2), "f": dbsp.FLOAT64, "s": dbsp.STRING,
        "day": dbsp.DATE, "ts": dbsp.TIMESTAMP, "yes": dbsp.BOOL, "l": dbsp.list_of(dbsp.STRING),
        "p": dbsp.struct_of({"x": dbsp.INT64, "y": dbsp.STRING}),
    },
)  # fmt: skip
ROWS: list[dict[str, Any]] = [
    {"id": 1, "i": 7, "b": -5, "d": Decimal("2.50"), "f": 2.5, "s": "Tea, Mate", "day": dt.date(2024, 2, 29), "yes": True,
     "ts": dt.datetime(2024, 2, 29, 13, 45, 30, 250_000), "l": ["a", "b"], "p": {"x": 1, "y": "u"}},
    {"id": 2, "i": -7, "b": 3, "d": Decimal("-0.05"), "f": -3.5, "s": "  x%y ", "day": dt.date(1999, 12, 31), "yes": False,
     "ts": dt.datetime(1999, 12, 31, 23, 59, 59), "l": [], "p": {"x": None, "y": "v"}},
    {"id": 3},
    {"id": 4, "i": 1, "b": 1, "d": Decimal("1.00"), "f": 0.5, "s": "", "day": dt.date(2000, 1, 3), "yes": True,
     "ts": dt.datetime(2000, 1, 3), "l": ["a", "a", None], "p": {"x": 2, "y": None}},
]  # fmt: skip
VALUES = [
    "i + b", "i - 1", "i * b", "b // 2", "b // i", "i % 3", "b % i", "-i", "i / 2", "d / 2", "d * 2", "d + i", "d * f", "d * 0.5",
    "f * 0.5", "f + 1", "b * 2.5", "abs(b)", "abs(d)", "round(f)", "round(d, 1)", "floor(f)", "ceil(f)", "sqrt(abs(f))",
    "exp(f)", "ln(abs(f))", "log10(abs(f))", "log2(abs(f))", "power(f, 2)", "f ** 2", "sin(f)", "atan2(f, 1.0)", "sign(b)",
    "i & 3", "i | 8", "xor(i, 3)", "abs(i) << 2", "abs(i) >> 1",
    "i = 7", "i <> b", "i < 3.5", "d > 1", "d >= f", "f between 0 and 2.5", "i not between 0 and 5", "yes and i > 0",
    "yes or i > 0", "not yes", "i is null", "i is not null", "yes is true", "yes is not true", "i in (7, 1)",
    "i not in (7, null)",
    "i is distinct from b", "i is not distinct from b", "s = 'x'", "day < date '2024-01-01'", "day = '2024-02-29'",
    "ts >= timestamp '2000-01-03 00:00:00'", "ts < day", "day + 1", "day - 1", "day - date '2024-01-01'",
    "ts - ts < interval 1 hour", "epoch(ts - timestamp '2000-01-01')", "epoch_ms(ts - timestamp '2000-01-01')",
    "day + interval 1 day", "day + interval '1 month'", "ts - interval 90 minute", "ts + interval '1 day 2 hours'",
    "ts + i * interval 1 hour",
    "ts + to_minutes(5)", "case when i > 0 then 'up' when i < 0 then 'down' end", "case i when 7 then 1.5 else 2 end",
    "if(yes, i, b)", "coalesce(i, b, 0)", "ifnull(d, 0)", "nullif(i, 7)", "greatest(i, b, 2)", "least(d, 1)",
    "i::bigint", "f::int", "d::int", "(f + 1)::int", "i::varchar", "d::double", "i::decimal(9, 2)", "f::decimal(9, 1)",
    "try_cast(s as int)", "ts::date", "day::timestamp", "cast('2024-05-31' as date)", "yes::int", "d::decimal(9, 1)",
    "s || '!'", "(s::blob || s::blob)::varchar", "nullif(b, 3.0)", "nullif(i, b)", "nullif(day, ts)", "interval 1 hour + day",
    "concat(s, '-', i)", "concat_ws('-', s, 'x')", "lower(s)", "upper(s)", "trim(s)", "ltrim(s)", "rtrim(s)",
    "trim(s, ' T')", "length(s)", "substr(s, 2, 3)", "substring(s from 2)", "left(s, 2)", "right(s, 2)", "lpad(s, 12, '*')",
    "rpad(s, 3, '*')", "repeat(s, 2)", "reverse(s)", "replace(s, 'a', 'o')", "split_part(s, ',', 2)", "strpos(s, 'a')",
    "position('x' in s)", "starts_with(s, 'Tea')", "ends_with(s, 'e')", "contains(s, 'a,')", "s like 'T%'", "s not like 'T%'",
    "s ilike 't_a%'", "s ^@ 'T'", "md5(s)", "sha256(s)", "hex(s)", "levenshtein(s, 'Tee')",
    "trunc(f)", "trunc(d)::varchar", "dayname(ts)", "monthname(day)", "to_base64(s::blob)", "from_base64(to_base64(s::blob))",
    "unhex(hex(s))", "trunc(b)", "regexp_matches(s, 'M.t')", "regexp_extract(s, '([A-Z])a', 1)",
    "regexp_replace(s, 'a', 'o')", "regexp_replace(s, '[aeiou]', '', 'g')", "string_split(s, ',')",
    "year(day)", "extract(month from ts)", "quarter(day)", "day(ts)", "hour(ts)", "minute(ts)", "second(ts)", "week(day)",
    "dayofweek(day)", "isodow(day)", "dayofyear(day)", "date_part('year', ts)", "extract(epoch from ts)", "epoch(ts)",
    "epoch_ms(ts)", "epoch_us(ts)", "epoch_ms(b)", "date_trunc('month', day)", "date_trunc('hour', ts)", "date_trunc('week', ts)",
    "date_diff('day', day, date '2024-03-01')", "date_diff('month', day, ts)", "time_bucket(interval 15 minute, ts)",
    "date_diff('week', day, date '2024-01-01')",
    "date_diff('week', ts, timestamp '2024-03-07 10:00:00')", "date_diff('week', ts, day)",
    "time_bucket(interval 7 day, ts)", "last_day(day)", "strftime(ts, '%Y-%m-%d %H:%M')", "strptime('31.05.2024', '%d.%m.%Y')",
    "l[1]", "l[-1]", "l[i]", "len(l)", "list_contains(l, 'a')", "array_to_string(l, '+')", "l[1:2]", "p.x", "p.y", "t.p.x",
    "list_filter(l, lambda x: x <> s or x is null)", "list_transform(l, lambda X, i: x || s || i::varchar)", "[i, b, 2]",
    "list_apply(l, lambda x: len(x) / 2)", "array_filter([i, b], lambda i: i > 0)", "list_value(day, null)", "[d, 2.5]", "[f, i]",
    "list_transform([p, null], lambda z: z.y)",
    "list_transform([p], lambda x: {'x': x.x, 'y': list_transform(l, lambda x: x || '!')})",
    "ts at time zone 'UTC' at time zone 'Europe/Berlin'",
    "b // -2", "i // -2", "3 // -2", "xor(6, 3) + i", "b + (6 & 3)", "i + (6 | 1)", "floor(d)", "ceil(d)::varchar",
    "round(d)::varchar",
    "round(d, 1)::varchar", "floor(0.25) + d", "ceil(0.75)", "round(0.75)", "ceil((d - floor(d))::decimal(2, 2))", "l[2:]",
    "l[:1]",
    "sign('nan'::double)", "sign(f)", "substr(s, 2, null)", "left(s, null)", "contains(s, null)", "strpos(s, null)",
    "split_part(s, null, 1)", "replace(s, 'a', null)", "'a%b' like 'a\\%b'", "s like '%\\%%'",
    "'a\\b' like 'a\\b'", "'A\\%' ilike s || 'a\\%'",
    "epoch_ms(ts - interval 30 year + interval 500 microsecond)", "epoch_ms(ts + interval 600 microsecond)",
    "epoch_ms(timestamp '1969-12-31 23:59:59.9995')", "epoch_ms(timestamp '1969-12-31 23:59:59.999600')",
    "epoch(to_days(i))", "epoch(to_hours(b))", "to_minutes(id) > to_seconds(100)", "epoch(interval (i) days)", "day + to_days(i)",
    "ts - interval (b) hours", "to_weeks(2) > to_days(id)",
    "to_seconds(i) > to_minutes(1)", "time_bucket(interval 7 day, day)", "time_bucket(interval 12 hour, day)",
    "make_date(2024, id + 8, 3)",
    "make_date(year(day), month(day), 1)", "repeat(s, i)", "repeat('ab', -1)", "array_to_string(l[3:3], '+')",
    "cast('2024-1-2' as date)", "'2024-1-2 03:04:05'::timestamp", "day > '2000-1-2'::date", "make_date(2024, 2, id + 3)",
    "{'a': i, 'b': s}", "extract(microseconds from ts)", "isnan(f)", "radians(f)", "1 + 1 > i", "i = 1.0", "'7' = s",
]  # fmt: skip


TEXTS = [
    "3", "3.5", "2.5", "-2.5", "-0.5", " 3 ", "+3", "3.", ".5", "1e3", "1e-3", "1.5e1", "0x1F", "", "x", None, "12345678901234",
    "9223372036854775807", "9223372036854775808", "-9007199254740993", "1.005", "0.123456789012345", "nan", "2024-02-30",
    "2024-02-03", " 2024-02-03 ", "2024-02-03 10:11", "2024-02-03T23:11:12.5", "1 2",
    "2024-1-2", "2024-1-12", "2024-11-2", "2024-1-2 10:11:12", " 2024-1-2", "12", "12:30:15", "07:30:00.25",
    "t", "F", "yes", "No", "TRUE", " true", "on", "1", "0",
]  # fmt: skip


@pytest.mark.parametrize(
    "type_",
    ["bigint", "int", "utinyint", "double", "decimal(9, 2)", "decimal(18, 0)", "date", "boolean", "time", "timestamp"],
)
def test_texts_are_cast_as_duckdb_does(type_: str) -> None:
    """What is no such value is null if it is tried; else its row fails."""
    table = dbsp.table("t", {"id": dbsp.INT64, "s": dbsp.STRING})
    rows = [{"id": number, "s": text} for number, text in enumerate(TEXTS)]
    tried, cast = f"select id, try_cast(s as {type_}) as v from t", f"select id, cast(s as {type_}) as v from t"
    circuit = dbsp.circuit("v", {"tried": dbsp.sql(tried, t=table), "cast": dbsp.sql(cast, t=table)})
    with dbsp.open(circuit) as run, duck.connect() as connection:
        run.push("t", rows)
        run.step()
        connection.register("t", pa.Table.from_pylist(rows, schema=table.schema.to_arrow()))
        wanted = counted(connection.sql(tried).to_arrow_table())
        assert {str(row) for row in counted(run.view("tried").to_arrow())} == {str(row) for row in wanted}
        held = {str(row) for row in wanted if row[1] is not None or TEXTS[row[0]] is None}
        assert {str(row) for row in counted(run.view("cast").to_arrow())} == held
        assert len(run.dead_letters()) == len(TEXTS) - len(held)


def both(value: str, table: dbsp.Stream, rows: list[dict[str, Any]]) -> tuple[pa.Table, pa.Table]:
    """What a value is for each row, none of which fails, and what DuckDB says."""
    text = f"select id, {value} as v from t"
    with dbsp.open(dbsp.circuit("v", {"v": dbsp.sql(text, t=table)})) as run, duck.connect() as connection:
        run.push("t", rows)
        run.step()
        assert [letter.reason for letter in run.dead_letters()] == []
        connection.register("t", pa.Table.from_pylist(rows, schema=table.schema.to_arrow()))
        return run.view("v").to_arrow(), connection.sql(text).to_arrow_table()


FLOATS = dbsp.table("t", {"id": dbsp.INT64, "x": dbsp.FLOAT64, "r": dbsp.FLOAT32})
OF_FLOATS: list[dict[str, Any]] = [
    {"id": at, "x": x, "r": r}
    for at, (x, r) in enumerate([
        (3.0, 0.1), (2.675, 4.425), (4.425, 3.0), (1e15, 1.0), (1e-5, 2.0), (0.285, 2.675), (1.005, 1e-5), (-1234567.891, 1e15),
        (123456789012.5, -0.25), (24.999999999999996, 0.3), (2.5e-7, 1e16), (1e22, 16777216.0), (float("nan"), float("inf")),
        (float("-inf"), float("nan")), (None, None),
    ])
]  # fmt: skip


@pytest.mark.parametrize(
    "value",
    [
        "x::varchar", "r::varchar", "x || ''", "r || 'x'", "'a' || x", "concat(x, '/', r)", "concat_ws('-', x, r)",
        "(x * 2)::varchar", "cast(x as text)", "length(x::varchar)", "upper(x::varchar)", "2.5::double || ''", "1e15::varchar",
        "1e-5 || 'x'", "3::double::varchar", "0.1::real::varchar", "(r + r)::varchar", "coalesce(x, 1)::varchar",
        "case when r > 0 then x::varchar else 'none' end",
    ],
)  # fmt: skip
def test_a_text_of_a_float_is_duckdbs(value: str) -> None:
    ours, wanted = both(value, FLOATS, OF_FLOATS)
    assert counted(ours) == counted(wanted)


@pytest.mark.parametrize(
    "value",
    [
        "round(x, 2)", "round(x, 1)", "round(x, -1)", "round(x, -3)", "round(x)", "round(r, 2)", "round(r, 1)", "round(x, 20)",
        "round(x, 400)", "round(x * 3, 3)", "x::decimal(38, 2)", "x::decimal(38, 0)", "r::decimal(38, 1)",
        "round(2.675, 2)", "round(2.675::double, 2)", "'2.675e0'::decimal(9, 2)", "'588.805'::decimal(9, 2)",
    ],
)  # fmt: skip
def test_a_float_is_rounded_as_duckdb_does(value: str) -> None:
    fitting = [row for row in OF_FLOATS if row["x"] is None or abs(row["x"]) < 1e18]
    ours, wanted = both(value, FLOATS, fitting if "::decimal" in value else OF_FLOATS)
    assert {str(row) for row in counted(ours)} == {str(row) for row in counted(wanted)}


@pytest.mark.parametrize(
    "value",
    [
        "r = 0.1", "0.1 = r", "r <> 0.1", "r <= 4.425", "r in (0.1, 2)", "r not in (0.1, 3.0)", "r between 0.1 and 4.425",
        "r is distinct from 0.1", "r + 0.1", "r - 0.1", "r * 0.1", "r / 3", "r / 0.3", "x + 0.1::real", "0.1::real::double",
        "1 / (r + 1)", "r + id", "r = id / 10", "r < id",
        "r = 1e-1", "r in (1e-1, 3)", "r + 1e-1", "r = x", "r + x", "r * x", "r / x", "coalesce(r, 0.1)", "coalesce(r, x, 0.1)",
        "greatest(r, 0.2)", "least(r, id)", "case when id = 1 then r else 0.3 end", "case r when 0.1 then 1 else 0 end",
        "if(r > 1, r, 0.7)", "nullif(r, 0.1)", "r = 0.1::decimal(9, 2)", "r + 1", "r = 0.1::real", "sqrt(abs(r))", "power(r, 2)",
        "x = 2.675", "x + 0.1", "r > 16777217",
    ],
)  # fmt: skip
def test_a_real_beside_others_is_duckdbs(value: str) -> None:
    """A real beside whole numbers and constants with a point is one, beside a double or an exponent it is a double."""
    rows = [row for row in OF_FLOATS if row["id"] < 10 or row["r"] is None]
    ours, wanted = both(value, FLOATS, rows)
    assert counted(ours) == counted(wanted)
    assert _family(ours.schema.field("v").type) == _family(wanted.schema.field("v").type)


@pytest.mark.parametrize("value", VALUES)
def test_a_value_is_duckdbs(value: str) -> None:
    ours, wanted = both(value, T, ROWS)
    assert counted(_told(ours)) == counted(_told(wanted))
    assert _family(ours.schema.field("v").type) == _family(wanted.schema.field("v").type)


def _told(table: pa.Table) -> pa.Table:
    """Lists and structs as text, so that they can be counted."""
    column = table["v"]
    if not pa.types.is_nested(column.type):
        return table
    return pa.table({"id": table["id"], "v": [repr(value) for value in column.to_pylist()]})


def _family(type_: pa.DataType) -> str:
    """Whole numbers of any width are one, decimals of any digits are one."""
    if pa.types.is_integer(type_):
        return "integer"
    if pa.types.is_decimal(type_):
        return "decimal"
    if pa.types.is_timestamp(type_):
        return "timestamp"
    if pa.types.is_string(type_):
        return "text"
    return "nested" if pa.types.is_nested(type_) else str(type_)


EDGES = dbsp.table(
    "t",
    {
        "id": dbsp.INT64, "b": dbsp.INT64, "i": dbsp.INT32, "y": dbsp.INT8, "z": dbsp.UINT8, "d": dbsp.decimal(9, 2),
        "w": dbsp.STRING, "l": dbsp.list_of(dbsp.INT64), "ts": dbsp.TIMESTAMP,
    },
)  # fmt: skip
AT_THE_EDGE: list[dict[str, Any]] = [
    {"id": 1, "b": -(2**63), "i": -(2**31), "y": -128, "z": 255, "d": Decimal("9999999.99"), "w": "x\n", "l": [5],
     "ts": dt.datetime(2024, 1, 2, 3, 4, 5)},
    {"id": 2, "b": 2**63 - 1, "i": 2**31 - 1, "y": 127, "z": 1, "d": Decimal("-9999999.95"), "w": " \tx\u3000", "l": [],
     "ts": dt.datetime(1924, 11, 12, 13, 14, 15)},
    {"id": 3},
    {"id": 4, "b": -7, "i": 5, "y": -7, "z": 7, "d": Decimal("-0.50"), "w": "x", "l": [None], "ts": dt.datetime(2000, 10, 10)},
]  # fmt: skip


@pytest.mark.parametrize(
    "value",
    [
        "b // 2", "b // -2", "b // id", "b // 1", "b % 3", "b % -3", "b % -1", "b % id", "b % i", "i // y", "y // -2", "y % 3",
        "y % y", "y // y", "z // 2", "z % 4", "b // b", "b % b", "7 // b", "id // b", "id % b",
        "b >> 63", "b >> 62", "b >> 64", "i >> 31", "y >> 7", "y >> 8", "z >> 7", "z >> 8", "b >> id", "z << 0", "1 << 3",
        "d::int", "d::bigint", "d::decimal(9, 1)", "d::decimal(8, 0)", "trim(w)", "ltrim(w)", "rtrim(w)", "l[null]",
        "strftime(ts, '%-d/%-m/%-y %-H:%-I:%-M:%-S %-j')", "strftime(ts, '%%-d %d%-m%%')",
        "concat('x', 1)", "'t'::boolean", "'No'::boolean",
        "concat(b, 1.5, true)", "concat_ws('-', 1, 2)", "y in (127, 128)", "y not in (127, 128, null)", "i in (5.0, 5.5)",
    ],
)  # fmt: skip
def test_a_value_at_the_edge_is_duckdbs(value: str) -> None:
    """The least and the greatest numbers, which have no magnitude or no digit more."""
    ours, wanted = both(value, EDGES, AT_THE_EDGE)
    assert counted(ours) == counted(wanted)


@pytest.mark.parametrize(
    "value", ["b << 1", "y << 1", "z << 7", "z << 8", "(y * 1e300)::real", "b // -1", "d::smallint"]
)
def test_what_does_not_fit_fails_its_row(value: str) -> None:
    """Of the four rows the first, for which DuckDB refuses the query."""
    text = f"select id, {value} as v from t where id in (1, 3)"
    with dbsp.open(dbsp.circuit("v", {"v": dbsp.sql(text, t=EDGES)})) as run, duck.connect() as connection:
        run.push("t", AT_THE_EDGE)
        run.step()
        assert len(run.dead_letters()) == 1
        assert run.view("v").to_arrow().to_pylist() == [{"id": 3, "v": None}]
        connection.register("t", pa.Table.from_pylist(AT_THE_EDGE, schema=EDGES.schema.to_arrow()))
        with pytest.raises(duckdb.Error):
            connection.sql(text).fetchall()

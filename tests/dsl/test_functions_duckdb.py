"""Every named function on every interesting value: value, null and failure agree with DuckDB, and with the promised type."""

from __future__ import annotations

import calendar
import datetime as dt
import math
from collections.abc import Iterator
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import dbsp
from dbsp import Expr, col
from dbsp.expr.arithmetic import CUT_DIVIDE, CUT_MODULO
from dbsp.expr.catalog import FUNCTIONS
from dbsp.expr.expression import Call, Expression
from dbsp.expr.methods.applied import unwrap
from dbsp.expr.resolving import resolve
from dbsp.expr.rows import ROW_ERRORS
from dbsp.zset.schema import Schema
from tests import duck

TYPES = {
    "a": (dbsp.INT64, "BIGINT", [None, -(2**63), -7, -1, 0, 1, 2, 63, 1000, 2**63 - 1]),
    "i": (dbsp.INT64, "BIGINT", [None, -3, -1, 0, 1, 2, 7, 65]),
    "f": (dbsp.FLOAT64, "DOUBLE", [None, -2.5, -1.0, -0.0, 0.0, 0.5, 1.0, 100.0, math.nan, math.inf, 1e300]),
    "g": (dbsp.FLOAT64, "DOUBLE", [None, -1.0, 0.0, 0.5, 2.0, math.nan]),
    "s": (dbsp.STRING, "VARCHAR", [None, "", "a", "Ab cd", "  x ", "Äöü-ß-x", "a,b,,c", "x7y12", "%_", "2013-02-28 10:11:12"]),
    "w": (dbsp.STRING, "VARCHAR", [None, "", "a", "%b%", "-", ",b"]),
    "t": (
        dbsp.TIMESTAMP,
        "TIMESTAMP",
        [
            None,
            dt.datetime(1969, 12, 31, 23, 59, 59, 999999),
            dt.datetime(2012, 2, 29, 12, 30, 15, 250000),
            dt.datetime(2013, 1, 1),
            dt.datetime(2016, 12, 31, 23, 59, 59),
            dt.datetime(2020, 1, 31, 0, 0, 1),
        ],
    ),
    "d": (dbsp.DATE, "DATE", [None, dt.date(1969, 12, 31), dt.date(2013, 1, 31), dt.date(2024, 2, 29), dt.date(2021, 1, 3)]),
    "l": (dbsp.list_of(dbsp.INT64), "BIGINT[]", [None, [], [1], [1, 3], [None], [3, None, 1], [0, 0]]),
    "m": (dbsp.list_of(dbsp.STRING), "VARCHAR[]", [None, [], ["a"], ["b", None, ""], [None]]),
    "e": (
        dbsp.struct_of({"a": dbsp.INT64, "b": dbsp.STRING}),
        "STRUCT(a BIGINT, b VARCHAR)",
        [None, {"a": None, "b": None}, {"a": 1, "b": "x"}],
    ),
    "q": (
        dbsp.list_of(dbsp.struct_of({"b": dbsp.STRING})),
        "STRUCT(b VARCHAR)[]",
        [None, [], [None], [{"b": "x"}, {"b": None}]],
    ),
    "j": (
        dbsp.STRING,
        "VARCHAR",
        [None, "", "{", "[]", '{"a": {"b": [1, 2.5, "x"]}}', '{"a": null}', '{"a": true, "b c": {"k": [{"x": 1}]}}', "12"],
    ),
}  # fmt: skip
SCHEMA = Schema.of({name: type_ for name, (type_, _, _) in TYPES.items()})
FAIL = "error('outside the domain')"

# (our expression, DuckDB's, the columns it reads)
CASES: list[tuple[Expr, str, str]] = [
    (col("f").sqrt(), f"CASE WHEN f < 0 THEN {FAIL} ELSE sqrt(f) END", "f"),
    (col("f").exp(), "exp(f)", "f"),
    (col("g").ln(), f"CASE WHEN g <= 0 THEN {FAIL} ELSE ln(g) END", "g"),
    (col("g").log10(), f"CASE WHEN g <= 0 THEN {FAIL} ELSE log10(g) END", "g"),
    (col("g").log2(), f"CASE WHEN g <= 0 THEN {FAIL} ELSE log2(g) END", "g"),
    (col("g") ** 2, "g ** 2", "g"),
    (col("i") ** col("g"), "pow(i, g)", "ig"),
    (col("g").sin(), "sin(g)", "g"),
    (col("g").cos(), "cos(g)", "g"),
    (col("g").tan(), "tan(g)", "g"),
    (col("g").asin(), f"CASE WHEN abs(g) > 1 AND NOT isnan(g) THEN {FAIL} ELSE asin(g) END", "g"),
    (col("g").acos(), f"CASE WHEN abs(g) > 1 AND NOT isnan(g) THEN {FAIL} ELSE acos(g) END", "g"),
    (col("g").atan(), "atan(g)", "g"),
    (col("g").atan2(col("f")), "atan2(g, f)", "fg"),
    (col("a").sign(), "CAST(sign(a) AS BIGINT)", "a"),
    (col("g").sign(), "CAST(CASE WHEN NOT isnan(g) THEN sign(g) END AS BIGINT)", "g"),
    (col("f").is_nan(), "isnan(f)", "f"),
    (col("f").is_finite(), "isfinite(f)", "f"),
    (dbsp.greatest(col("a"), col("i"), 1), "greatest(a, i, 1)", "ai"),
    (dbsp.least(col("f"), col("g")), "least(f, g)", "fg"),
    (dbsp.greatest(col("f"), col("g")), "greatest(f, g)", "fg"),
    (col("g").nullif(col("f")), "nullif(g, f)", "fg"),
    (col("g").is_distinct_from(col("f")), "g is distinct from f", "fg"),
    (~col("g").is_distinct_from(0.5), "g is not distinct from 0.5", "g"),
    (col("f").is_distinct_from(None), "f is distinct from null", "f"),
    (col("a").nullif(0), "nullif(a, 0)", "a"),
    (col("a").bit_and(col("i")), "a & i", "ai"),
    (col("a").bit_or(6), "a | 6", "a"),
    (col("a").bit_xor(col("i")), "xor(a, i)", "ai"),
    (col("a").bit_not(), "~a", "a"),
    (col("i").shift_right(1), "i >> 1", "i"),
    ((col("a") // col("i")).or_null(), "CASE WHEN i <> 0 AND NOT (a = -9223372036854775808 AND i = -1)"
     " THEN CAST((a::HUGEINT - ((a::HUGEINT % i) + i) % i) // i AS BIGINT) END", "ai"),
    (col("s").try_cast(dbsp.INT64), "TRY_CAST(CASE WHEN regexp_full_match(s, '[0-9]+') THEN s END AS BIGINT)", "s"),
    (col("s").left(2), "left(s, 2)", "s"),
    (col("s").right(2), "right(s, 2)", "s"),
    (col("s").right(0), "right(s, 0)", "s"),
    (col("s").reverse(), "reverse(s)", "s"),
    (col("s").repeat(2), "repeat(s, 2)", "s"),
    (col("s").lpad(4, "*"), "lpad(s, 4, '*')", "s"),
    (col("s").rpad(4, "*"), "rpad(s, 4, '*')", "s"),
    (col("s").strip("ax "), "trim(s, 'ax ')", "s"),
    (col("s").ltrim(), "ltrim(s)", "s"),
    (col("s").rtrim(), "rtrim(s)", "s"),
    (col("s").position("-"), "strpos(s, '-')", "s"),
    (col("s").position("b"), "strpos(s, 'b')", "s"),
    (col("s").position(""), "strpos(s, '')", "s"),
    (col("s").lower(), "lower(s)", "s"),
    (col("s").length(), "length(s)", "s"),
    (col("s").split_part(",", 2), "split_part(s, ',', 2)", "s"),
    (col("s").split_part("-", 3), "split_part(s, '-', 3)", "s"),
    (col("s").split_part(",,", 2), "split_part(s, ',,', 2)", "s"),
    (col("s").split_part("-", 1), "split_part(s, '-', 1)", "s"),
    (col("s").ilike("A%"), "s ILIKE 'A%'", "s"),
    (col("s").regexp_match("[0-9]+"), "regexp_matches(s, '[0-9]+')", "s"),
    (col("s").regexp_replace("[a-c]", "<>"), "regexp_replace(s, '[a-c]', '<>', 'g')", "s"),
    (col("s").regexp_replace("[a-c]", "_", all=False), "regexp_replace(s, '[a-c]', '_')", "s"),
    (col("s").regexp_replace("([a-z])([0-9])", r"\2\1"), r"regexp_replace(s, '([a-z])([0-9])', '\2\1', 'g')", "s"),
    (col("s").regexp_extract("([a-z])([0-9]+)", 2), "nullif(regexp_extract(s, '([a-z])([0-9]+)', 2), '')", "s"),
    (col("s").regexp_extract("[0-9]+"), "nullif(regexp_extract(s, '[0-9]+'), '')", "s"),
    (col("s").regexp_extract(r"[(\]x]\d(?P<rest>.)", "rest"), r"nullif(regexp_extract(s, '[(\]x]\d(.)', 1), '')", "s"),
    (col("s").regexp_count("[a-z]"), "len(regexp_extract_all(s, '[a-z]'))", "s"),
    (col("s").starts_with(col("w")), "starts_with(s, w)", "sw"),
    (col("s").ends_with(col("w")), "ends_with(s, w)", "sw"),
    (col("s").contains(col("w")), "contains(s, w)", "sw"),
    (col("s").position(col("w")), "strpos(s, w)", "sw"),
    (col("s").like(col("w")), "s LIKE w", "sw"),
    (col("s").like(col("w") + "%"), "s LIKE w || '%'", "sw"),
    (dbsp.lit("a-b").contains(col("w")), "contains('a-b', w)", "w"),
    (col("s").ilike(col("w").upper()), "s ILIKE upper(w)", "sw"),
    (col("s").regexp_match(col("w")), "regexp_matches(s, w)", "sw"),
    (col("s").strip(col("w")), "trim(s, w)", "sw"),
    (col("s").replace(col("w"), "+"), f"CASE WHEN w = '' THEN {FAIL} ELSE replace(s, w, '+') END", "sw"),
    (col("s").replace("a", col("w")), "replace(s, 'a', w)", "sw"),
    (col("s").left(col("i")), f"CASE WHEN i < 0 THEN {FAIL} ELSE left(s, i) END", "si"),
    (col("s").right(col("i")), f"CASE WHEN i < 0 THEN {FAIL} ELSE right(s, i) END", "si"),
    (col("s").repeat(col("i")), f"CASE WHEN i < 0 THEN {FAIL} ELSE repeat(s, i) END", "si"),
    (col("s").lpad(col("i"), "*"), f"CASE WHEN i < 0 THEN {FAIL} ELSE lpad(s, i::INT, '*') END", "si"),
    (col("s").rpad(4, col("w")), f"CASE WHEN len(w) <> 1 THEN {FAIL} ELSE rpad(s, 4, w) END", "sw"),
    (col("s").substr(col("i"), 2), f"CASE WHEN i < 1 THEN {FAIL} ELSE substr(s, i, 2) END", "si"),
    (col("s").substr(col("i")), f"CASE WHEN i < 1 THEN {FAIL} ELSE substr(s, i) END", "si"),
    (col("s").substr(2, col("i")), f"CASE WHEN i < 0 THEN {FAIL} ELSE substr(s, 2, i) END", "si"),
    (col("s").split_part(col("w"), 2), f"CASE WHEN w = '' THEN {FAIL} ELSE split_part(s, w, 2) END", "sw"),
    (col("s").split_part(",", col("i")), f"CASE WHEN i < 1 THEN {FAIL} ELSE split_part(s, ',', i) END", "si"),
    (col("s").md5(), "md5(s)", "s"),
    (col("s").sha256(), "sha256(s)", "s"),
    (col("s").hex(), "hex(s)", "s"),
    (col("s").hex().from_hex().cast(dbsp.STRING), "s", "s"),
    (col("s").base64(), "to_base64(encode(s))", "s"),
    (col("s").base64().from_base64().cast(dbsp.STRING), "s", "s"),
    (col("s").levenshtein(col("w")), "levenshtein(s, w)", "sw"),
    (col("t").day_name(), "dayname(t)", "t"),
    (col("d").month_name(), "monthname(d)", "d"),
    (col("f").trunc(), "trunc(f)", "f"),
    (dbsp.concat_ws("+", col("s"), col("j")), "concat_ws('+', s, j)", "sj"),
    (col("t").cast(dbsp.STRING), "t::VARCHAR", "t"),
    (col("t").cast(dbsp.TIME).cast(dbsp.STRING), "t::TIME::VARCHAR", "t"),
    (col("d").cast(dbsp.STRING), "d::VARCHAR", "d"),
    (col("t").week(), "week(t)", "t"),
    (col("d").iso_year(), "isoyear(d)", "d"),
    (col("t").microsecond(), "microsecond(t) % 1000000", "t"),
    (col("t").epoch("second"), "CAST(floor(epoch_us(t) / 1000000) AS BIGINT)", "t"),
    (col("t").epoch("millisecond"), "CAST(floor(epoch_us(t) / 1000) AS BIGINT)", "t"),
    (col("d").epoch("microsecond"), "epoch_us(d)", "d"),
    (dbsp.from_epoch(col("i")), "make_timestamp(i * 1000000)", "i"),
    (col("t").add_months(1), "t + INTERVAL 1 MONTH", "t"),
    (col("d").add_months(-11), "CAST(d - INTERVAL 11 MONTH AS DATE)", "d"),
    (col("t").add_months(col("i")), "t + to_months(i::INT)", "ti"),
    (col("d").add_months(col("i")), "CAST(d + to_months(i::INT) AS DATE)", "di"),
    (col("d").last_day(), "last_day(d)", "d"),
    (col("t").last_day(), "last_day(t)", "t"),
    (col("t").bucket(dt.timedelta(minutes=7)), "time_bucket(INTERVAL 7 MINUTE, t, TIMESTAMP '1970-01-01')", "t"),
    (col("t").bucket(dt.timedelta(hours=1), dt.timedelta(minutes=5)),
     "time_bucket(INTERVAL 1 HOUR, t, TIMESTAMP '1970-01-01 00:05:00')", "t"),
    (col("t").strftime("%Y/%m/%d %H:%M:%S"), "strftime(t, '%Y/%m/%d %H:%M:%S')", "t"),
    (col("t").strftime("%H:%M"), "strftime(t, '%H:%M')", "t"),
    (col("t").strftime("%j %A %p%I"), "strftime(t, '%j %A %p%I')", "t"),
    (col("t").strftime("%M'%S"), "strftime(t, '%M''%S')", "t"),
    (col("d").strftime("%d.%m.%y"), "strftime(d, '%d.%m.%y')", "d"),
    (col("s").strptime("%Y-%m-%d %H:%M:%S").or_null(), "try_strptime(s, '%Y-%m-%d %H:%M:%S')", "s"),
    *[
        (dbsp.date_diff(unit, col("t"), col("d").cast(dbsp.TIMESTAMP)), f"date_diff('{unit}', t, d::TIMESTAMP)", "td")
        for unit in ("year", "quarter", "month", "day", "hour", "minute", "second", "millisecond", "microsecond")
    ],
    (col("l").list_length(), "len(l)", "l"),
    (col("l").element(2), "l[2]", "l"),
    (col("m").element(1), "m[1]", "m"),
    (col("l").element(-1), "l[-1]", "l"),
    (col("l").element(-3), "l[-3]", "l"),
    (col("l").element(col("i")), f"CASE WHEN i = 0 THEN {FAIL} ELSE l[i] END", "li"),
    (col("l").list_contains(1), "list_contains(l, 1)", "l"),
    (col("m").list_contains(""), "list_contains(m, '')", "m"),
    (col("l").list_sort(), "list_sort(l, 'ASC', 'NULLS LAST')", "l"),
    (col("m").list_sort(descending=True), "list_sort(m, 'DESC', 'NULLS LAST')", "m"),
    (col("l").list_distinct().list_sort(), "CASE WHEN list_count(l) < len(l) THEN list_append(list_sort(list_distinct(l)), NULL)"
     " ELSE list_sort(list_distinct(l)) END", "l"),
    (col("l").list_slice(1, 2), "l[1:2]", "l"),
    (col("l").list_slice(2, col("i")), f"CASE WHEN i < 0 THEN {FAIL} ELSE l[2:i] END", "li"),
    (col("l").list_position(1), "list_position(l, 1)", "l"),
    (col("m").list_position(""), "list_position(m, '')", "m"),
    (col("l").list_reverse(), "list_reverse(l)", "l"),
    (col("m").list_reverse(), "list_reverse(m)", "m"),
    (col("l").list_min(), "list_min(l)", "l"),
    (col("l").list_max(), "list_max(l)", "l"),
    (col("m").list_max(), "list_max(m)", "m"),
    (col("l").list_sum(), "list_sum(l)", "l"),
    (dbsp.coalesce(col("l"), col("l")).list_concat(col("l"), dbsp.sequence(col("i"), 3)),
     "list_concat(l, l, generate_series(i, 3))", "li"),
    (col("m").list_concat(col("m")), "list_concat(m, m)", "m"),
    (col("l").list_transform(lambda x, at: x * 2 + at + col("i")), "list_transform(l, lambda x, j: x * 2 + j + i)", "li"),
    (col("l").list_transform(lambda x: dbsp.lit(6) // x),
     f"list_transform(l, lambda x: CASE WHEN x = 0 THEN {FAIL} ELSE 6 // x END)", "l"),
    (col("m").list_transform(lambda x: x + col("w")), "list_transform(m, lambda x: x || w)", "mw"),
    (col("m").list_transform(lambda x: dbsp.lit(None, dbsp.INT64)), "list_transform(m, lambda x: null::bigint)", "m"),
    (col("q").list_transform(lambda x: x["b"]), "list_transform(q, lambda x: x.b)", "q"),
    (col("l").list_transform(lambda x: dbsp.struct(x=x, s=col("w"))), "list_transform(l, lambda x: {'x': x, 's': w})", "lw"),
    (col("l").list_transform(lambda x: dbsp.sequence(1, x).list_transform(lambda y: y * col("i") + x)),
     "list_transform(l, lambda x: list_transform(generate_series(1, x), lambda y: y * i + x))", "li"),
    (col("l").list_filter(lambda x: x >= col("i")), "list_filter(l, lambda x: x >= i)", "li"),
    (col("l").list_filter(lambda x, at: x.is_null() | (at > 1)), "list_filter(l, lambda x, j: x is null or j > 1)", "l"),
    (col("l").list_filter(lambda x: dbsp.lit(6) // x > 1),
     f"list_filter(l, lambda x: CASE WHEN x = 0 THEN {FAIL} ELSE 6 // x > 1 END)", "l"),
    (col("m").list_filter(lambda x: dbsp.lit(None, dbsp.BOOL)), "list_filter(m, lambda x: null)", "m"),
    (col("q").list_filter(lambda x: x["b"].is_null()), "list_filter(q, lambda x: x.b is null)", "q"),
    (dbsp.list_value(col("a"), 7, col("i")), "[a, 7, i]", "ai"),
    (dbsp.list_value(col("l"), col("l")), "[l, l]", "l"),
    (dbsp.list_value(None, col("f")).list_max(), "list_max([null, f])", "f"),
    (dbsp.sequence(col("i"), 3), "generate_series(i, 3)", "i"),
    (dbsp.sequence(5, col("i"), -2), "generate_series(5, i, -2)", "i"),
    (dbsp.sequence(col("d"), dbsp.lit(dt.date(2013, 2, 3)), dbsp.days(1)).list_slice(1, 9),
     "generate_series(d, DATE '2013-02-03', INTERVAL 1 DAY)[1:9]::DATE[]", "d"),
    (dbsp.sequence(col("t"), col("t") + dbsp.hours(1), dbsp.minutes(25)),
     "generate_series(t, t + INTERVAL 1 HOUR, INTERVAL 25 MINUTE)", "t"),
    (dbsp.sequence(col("d").truncate("month"), dbsp.lit(dt.date(2013, 3, 1)), "month").list_length(),
     "len(generate_series(date_trunc('month', d), DATE '2013-03-01', INTERVAL 1 MONTH))", "d"),
    (col("m").list_join("-"), "coalesce(array_to_string(m, '-'), CASE WHEN m IS NOT NULL THEN '' END)", "m"),
    (col("s").split(","), "str_split(s, ',')", "s"),
    (col("s").split("-").list_length(), "len(str_split(s, '-'))", "s"),
    (dbsp.coalesce(col("l"), col("l")), "coalesce(l, l)", "l"),
    (dbsp.when(col("a") > 0, col("l")).otherwise(None), "CASE WHEN a > 0 THEN l END", "la"),
    (col("l").is_null(), "l IS NULL", "l"),
    (col("e").field("b"), "e.b", "e"),
    (col("e.a") + 1, "e.a + 1", "e"),
    (col("e").is_null(), "e IS NULL", "e"),
    (col("q").element(1)["b"], "q[1].b", "q"),
    (col("q").list_length(), "len(q)", "q"),
    (dbsp.struct("a", x=col("s"), e="e"), "{'a': a, 'x': s, 'e': e}", "e"),
    (dbsp.coalesce(col("e"), dbsp.struct(a=col("a"), b=col("s"))), "coalesce(e, {'a': a, 'b': s})", "es"),
    (dbsp.when(col("a") > 0, col("e")).otherwise(None), "CASE WHEN a > 0 THEN e END", "ea"),
    (dbsp.when(col("a") > 0, col("q")).otherwise(None), "CASE WHEN a > 0 THEN q END", "qa"),
    (col("j").json_elements("$.a.b"), "CASE WHEN json_valid(j) AND json_type(j, '$.a.b') = 'ARRAY' THEN j->>'$.a.b[*]' END", "j"),
    (col("j").json_elements(), "CASE WHEN json_valid(j) AND json_type(j) = 'ARRAY' THEN j->>'$[*]' END", "j"),
    (col("j").json_value("$.a.b[1]"), "CASE WHEN json_valid(j) THEN j->>'$.a.b[1]' END", "j"),
    (col("j").json_value("$.a"), "CASE WHEN json_valid(j) THEN j->>'$.a' END", "j"),
    (col("j").json_value('$["b c"].k[0].x'), "CASE WHEN json_valid(j) THEN j->>'$.\"b c\".k[0].x' END", "j"),
    (col("j").json_length("$.a.b"), "CASE WHEN json_valid(j) THEN json_array_length(j, '$.a.b')::BIGINT END", "j"),
]  # fmt: skip


class Rows:
    """A table as rows that an expression reads."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def column(self, name: str) -> pa.Array:
        return self.table.column(name).combine_chunks()

    def __len__(self) -> int:
        return self.table.num_rows


def combinations(names: str) -> list[dict[str, Any]]:
    """All values of one column, or all pairs of two; the other columns are null."""
    rows: list[dict[str, Any]] = [dict.fromkeys(TYPES)]
    for name in names:
        rows = [{**row, name: value} for row in rows for value in TYPES[name][2]]
    return rows


def ours(expression: Expression, rows: list[dict[str, Any]]) -> list[Any]:
    table = pa.Table.from_pylist(rows, schema=SCHEMA.to_arrow())
    values: list[Any] = []
    for index in range(len(rows)):
        try:
            values += expression.evaluate(Rows(table.slice(index, 1))).to_pylist()
        except ROW_ERRORS:
            values.append("failed")
    return values


@pytest.fixture(scope="module")
def oracle() -> Iterator[duckdb.DuckDBPyConnection]:
    with duck.connect() as connection:
        yield connection


def theirs(oracle: duckdb.DuckDBPyConnection, sql: str, reads: str, rows: list[dict[str, Any]]) -> list[Any]:
    """Of the rows of these columns; row by row where one of them fails, because then DuckDB gives none."""
    table = f"of_{reads or 'none'}"
    if not oracle.execute("SELECT 1 FROM duckdb_tables() WHERE table_name = ?", [table]).fetchone():
        columns = (f"{name} {type_}" for name, (_, type_, _) in TYPES.items())
        oracle.execute(f"CREATE TABLE {table} (place BIGINT, {', '.join(columns)})")
        oracle.executemany(
            f"INSERT INTO {table} VALUES ({', '.join('?' * (1 + len(TYPES)))})",
            [[place, *(row[name] for name in TYPES)] for place, row in enumerate(rows)],
        )
    try:
        return [value for (value,) in oracle.execute(f"SELECT {sql} FROM {table} ORDER BY place").fetchall()]
    except duckdb.Error:
        return [_alone(oracle, sql, f"(SELECT * FROM {table} WHERE place = {place})") for place in range(len(rows))]


def _alone(oracle: duckdb.DuckDBPyConnection, sql: str, row: str) -> Any:
    try:
        (value,) = oracle.execute(f"SELECT {sql} FROM {row}").fetchall()[0]
    except duckdb.Error:
        return "failed"
    return value


def alike(mine: Any, other: Any) -> bool:
    if isinstance(mine, float) and isinstance(other, int | float):
        return (math.isnan(mine) and math.isnan(other)) or math.isclose(mine, other, rel_tol=1e-14) or mine == other
    return bool(mine == other)


@pytest.mark.parametrize(("ours_", "sql", "reads"), CASES, ids=[str(case[0]) for case in CASES])
def test_value_null_failure_and_type(ours_: Expr, sql: str, reads: str, oracle: duckdb.DuckDBPyConnection) -> None:
    rows = combinations(reads)
    expression = resolve(unwrap(ours_), SCHEMA)
    singles, expected = ours(expression, rows), theirs(oracle, sql, reads, rows)
    for row, mine, other in zip(rows, singles, expected, strict=True):
        assert alike(mine, other), (sql, {name: row[name] for name in reads}, mine, other)
    good = [row for row, value in zip(rows, singles, strict=True) if value != "failed"]
    whole = expression.evaluate(Rows(pa.Table.from_pylist(good, schema=SCHEMA.to_arrow())))
    assert whole.type == expression.type(SCHEMA)
    assert [repr(value) for value in whole.to_pylist()] == [repr(value) for value in singles if value != "failed"]
    assert expression.nullable(SCHEMA) or whole.null_count == 0


def functions_of(expression: Expression) -> set[str]:
    if not isinstance(expression, Call):
        return set()
    return {expression.function.name}.union(*map(functions_of, expression.args))


def test_every_function_is_compared() -> None:
    """By this file or by the random expressions beside it, or it says here why not."""
    without_oracle = {
        "now",  # tests/timing
        "in_zone", "from_zone", "in_zone_by_row", "from_zone_by_row",  # test_zones
        "title",  # DuckDB has none
        "hash",  # test_encodings: its values are its own
        "shift_left",  # DuckDB refuses to shift negative numbers
        "cut_divide", "cut_modulo",  # below, where a division by zero fails
        "or", "and", "not", "is_null", "is_not_null", "is_in", "case", "coalesce", "cast", "concat",
        "float_text",  # test_float_texts
        "decimal_float",  # test_decimals
        "equal", "not_equal", "less", "less_equal", "greater", "greater_equal",
        "add", "subtract", "multiply", "divide", "floor_divide", "modulo", "negate", "abs", "floor", "ceil",
        "round", "round_float",  # test_float_rounding
        "lower", "upper", "trim", "length", "starts_with", "ends_with", "contains", "like", "substr", "replace",
        "year", "quarter", "month", "day", "day_of_week", "day_of_year", "hour", "minute", "second", "truncate",
    }  # fmt: skip
    covered: set[str] = set().union(*(functions_of(unwrap(expr)) for expr, _, _ in CASES))
    assert covered | without_oracle >= set(FUNCTIONS)


def test_quotients_that_are_cut_towards_zero(oracle: duckdb.DuckDBPyConnection) -> None:
    """The compact forms of SQL's `//` and `%`: as in DuckDB, but a division by zero fails its row."""
    pairs = [(a, b) for a in (-(2**63), -7, -1, 0, 7, 2**63 - 1, None) for b in (-7, -2, 0, 1, 3, None)]
    rows = [{**dict.fromkeys(TYPES), "a": a, "i": b} for a, b in pairs]
    for function, sql in ((CUT_DIVIDE, "//"), (CUT_MODULO, "%")):
        found = ours(resolve(Call(function, (unwrap(col("a")), unwrap(col("i")))), SCHEMA), rows)
        for (a, b), value in zip(pairs, found, strict=True):
            if a is not None and b == 0:
                assert value == "failed"
                continue
            (expected,) = oracle.execute(f"select ?::bigint {sql} ?::bigint", [a, b]).fetchone()
            assert value == expected, (a, sql, b)


def test_title_and_shift_left() -> None:
    rows = [{**dict.fromkeys(TYPES), "s": "ab cd", "i": 3}, {**dict.fromkeys(TYPES), "i": 63}]
    assert ours(resolve(unwrap(col("s").title()), SCHEMA), rows) == ["Ab Cd", None]
    assert ours(resolve(unwrap(dbsp.lit(1).shift_left(col("i"))), SCHEMA), rows) == [8, "failed"]
    assert ours(resolve(unwrap(dbsp.lit(1).shift_left(col("i") - 4)), SCHEMA), rows) == ["failed", 2**59]
    assert ours(resolve(unwrap(dbsp.lit(-3).shift_left(col("i") - 1)), SCHEMA), rows) == [-12, "failed"]
    assert ours(resolve(unwrap(dbsp.lit(-3).shift_right(col("i"))), SCHEMA), rows) == [-1, -1]


def test_a_format_without_zeros() -> None:
    rows = [{**dict.fromkeys(TYPES), "t": dt.datetime(2004, 1, 2, 3, 4, 5)}]
    assert ours(resolve(unwrap(col("t").strftime("%-d.%m. %-H:%%-M")), SCHEMA), rows) == ["2.01. 3:%-M"]
    with pytest.raises(dbsp.CircuitError, match="strftime has no %_d"):
        resolve(unwrap(col("t").strftime("%_d")), SCHEMA)


@pytest.mark.parametrize(("step", "months"), [("month", 1), ("quarter", 3), ("year", 12)])
def test_months_of_a_sequence_go_on_from_its_first_day(step: str, months: int) -> None:
    """From the 31st of January the 29th of February, then the 31st of March, where DuckDB goes on from the 29th."""

    def later(day: dt.date, number: int) -> dt.date:
        year, month = divmod(day.year * 12 + day.month - 1 + number, 12)
        return dt.date(year, month + 1, min(day.day, calendar.monthrange(year, month + 1)[1]))

    starts = [dt.date(2023, 11, 28) + dt.timedelta(days=by) for by in range(0, 100, 3)]
    pairs = [
        (start, start + dt.timedelta(days=by)) for start in starts for by in (-1, 0, 27, *range(28, 33), 89, 91, 366)
    ]
    wanted = [[day for day in (later(start, months * k) for k in range(14)) if day <= end] for start, end in pairs]
    rows = Rows(pa.table({"a": [start for start, _ in pairs], "b": [end for _, end in pairs]}))
    schema = Schema.of({"a": dbsp.DATE, "b": dbsp.DATE})
    assert resolve(unwrap(dbsp.sequence(col("a"), col("b"), step)), schema).evaluate(rows).to_pylist() == wanted


def test_a_sequence_too_long_fails_its_row() -> None:
    rows = [{**dict.fromkeys(TYPES), "a": value} for value in (2**63 - 1, -(2**63), 999_999, 1_000_000, -5)]
    lengths = ours(resolve(unwrap(dbsp.sequence(0, col("a")).list_length()), SCHEMA), rows)
    assert lengths == ["failed", 0, 1_000_000, "failed", 0]
    assert ours(resolve(unwrap(dbsp.sequence(0, col("a"), 2**62).list_length()), SCHEMA), rows[:2]) == [2, 0]
    assert ours(
        resolve(unwrap(dbsp.sequence(dbsp.lit(-(2**63)), col("a"), 2**62).list_length()), SCHEMA), rows[:1]
    ) == [4]


def test_more_months_than_there_are_fail_their_row() -> None:
    rows = [{**dict.fromkeys(TYPES), "d": dt.date(1970, 1, 31), "a": months} for months in (1, 10**8, -(10**15))]
    moved = col("d").add_months(col("a")).epoch("second")
    assert ours(resolve(unwrap(moved), SCHEMA), rows) == [58 * 86_400, "failed", "failed"]


def test_weeks_between_count_mondays() -> None:
    """DuckDB counts whole weeks instead, and only this unit so; every other counts boundaries."""
    moments = [moment for moment in TYPES["t"][2] if moment is not None]
    end = dt.datetime(2020, 1, 1)
    rows = [{**dict.fromkeys(TYPES), "t": moment} for moment in moments]
    mondays = [(moment.date() - dt.timedelta(days=moment.weekday())).toordinal() for moment in (*moments, end)]
    expression = resolve(unwrap(dbsp.date_diff("week", col("t"), dbsp.lit(end))), SCHEMA)
    assert ours(expression, rows) == [(mondays[-1] - monday) // 7 for monday in mondays[:-1]]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: col("s").regexp_extract("a(b", 1), "not a regular expression"),
        (lambda: col("s").regexp_extract("ab", 1), "no such group"),
        (lambda: col("j").json_value("a.b"), "not a path"),
        (lambda: col("t").bucket(dt.timedelta(0)), "positive size"),
        (lambda: col("t").epoch("hour"), "no such unit"),
        (lambda: dbsp.date_diff("fortnight", col("t"), col("t")), "no such unit"),
        (lambda: col("s").lpad(3, "ab"), "one character"),
        (lambda: col("s").split_part("", 1), "parts are counted"),
        (lambda: col("s").sqrt(), "for numbers"),
        (lambda: col("f").bit_and(1), "bits"),
        (lambda: col("a").is_nan(), "for floats"),
        (lambda: col("s").strftime("%Y"), "dates and timestamps"),
        (lambda: col("t").strftime("%f"), "format"),
        (lambda: col("l") < col("l"), "lists can be compared only by == and !="),
        (lambda: col("s").list_length(), "for lists"),
        (lambda: col("l").list_join(","), "lists of text"),
        (lambda: col("l").element(0), "positions count from 1"),
        (lambda: col("l").list_contains("a"), "no element"),
    ],
)
def test_wrong_use_is_refused_when_the_circuit_is_built(build: Any, message: str) -> None:
    t = dbsp.table("t", SCHEMA)
    with pytest.raises(dbsp.CircuitError, match=message):
        t.select(x=build())

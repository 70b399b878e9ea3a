"""Random expressions over random rows: value, null, failure and type agree with DuckDB, row by row."""

from __future__ import annotations

import datetime as dt
import math
from dataclasses import dataclass

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dbsp
from dbsp import Expr, col, lit
from dbsp.expr.expression import Expression
from dbsp.expr.methods.applied import unwrap
from dbsp.expr.resolving import resolve
from dbsp.expr.rows import ROW_ERRORS
from dbsp.zset.schema import Column, Schema
from tests.pace import examples

SCHEMA = Schema(
    (
        Column("a", dbsp.INT64),
        Column("b", dbsp.INT64, nullable=False),
        Column("f", dbsp.FLOAT64),
        Column("s", dbsp.STRING),
        Column("p", dbsp.BOOL),
        Column("t", dbsp.TIMESTAMP),
    )
)
SQL_TYPES = {"a": "BIGINT", "b": "BIGINT", "f": "DOUBLE", "s": "VARCHAR", "p": "BOOLEAN", "t": "TIMESTAMP"}
INTS = [-(2**63), -3, -1, 0, 1, 2, 7, 2**63 - 1]
FLOATS = [-2.5, -0.0, 0.0, 0.5, 1.0, 3.75, math.nan, 1e300]
TEXTS = ["", "a", "ab", "Äb", "7", "x7", "a%b"]
TIMES = [dt.datetime(1969, 12, 31, 23, 59, 59), dt.datetime(2013, 1, 1), dt.datetime(2016, 2, 29, 12, 30, 15, 250000)]
# Both sides may fail on a row; where only DuckDB turns a division by zero into null, it is told to fail.
FAIL = "error('division by zero')"


@dataclass(frozen=True)
class Rows:
    table: pa.Table

    def column(self, name: str) -> pa.Array:
        return self.table.column(name).combine_chunks()

    def __len__(self) -> int:
        return self.table.num_rows


@dataclass(frozen=True)
class Pair:
    ours: Expr
    sql: str


def sql_literal(value: object) -> str:
    match value:
        case bool():
            return str(value).upper()
        case int():
            return f"CAST({value} AS BIGINT)" if value > -(2**63) else "CAST('-9223372036854775808' AS BIGINT)"
        case float():
            return f"CAST('{value}' AS DOUBLE)"
        case str():
            return f"'{value}'"
        case dt.datetime():
            return f"TIMESTAMP '{value}'"
        case _:
            raise AssertionError(value)


def leaf(names: list[str], values: list[object]) -> st.SearchStrategy[Pair]:
    columns = st.sampled_from(names).map(lambda name: Pair(col(name), name))
    literals = st.sampled_from(values).map(lambda value: Pair(lit(value), sql_literal(value)))
    return st.one_of(columns, columns, literals)


def binary(left: st.SearchStrategy[Pair], right: st.SearchStrategy[Pair], forms: dict) -> st.SearchStrategy[Pair]:
    return st.builds(
        lambda x, y, form: Pair(forms[form](x.ours, y.ours), form.format(x=x.sql, y=y.sql)),
        left,
        right,
        st.sampled_from(sorted(forms)),
    )


def unary(inner: st.SearchStrategy[Pair], forms: dict) -> st.SearchStrategy[Pair]:
    return st.builds(
        lambda x, form: Pair(forms[form](x.ours), form.format(x=x.sql)), inner, st.sampled_from(sorted(forms))
    )


def choice(condition: st.SearchStrategy[Pair], value: st.SearchStrategy[Pair]) -> st.SearchStrategy[Pair]:
    return st.builds(
        lambda c, x, y: Pair(
            dbsp.when(c.ours, x.ours).otherwise(y.ours), f"CASE WHEN {c.sql} THEN {x.sql} ELSE {y.sql} END"
        ),
        condition,
        value,
        value,
    )


FLOOR = (
    "CASE WHEN {x} IS NOT NULL AND {y} = 0 THEN CAST(" + FAIL + " AS BIGINT) ELSE CAST((CAST({x} AS HUGEINT)"
    " - (CAST({x} AS HUGEINT) % {y} + {y}) % {y}) // {y} AS BIGINT) END"
)
MODULO = (
    "CASE WHEN {x} IS NOT NULL AND {y} = 0 THEN CAST(" + FAIL + " AS BIGINT) ELSE"
    " CAST((CAST({x} AS HUGEINT) % {y} + {y}) % {y} AS BIGINT) END"
)
QUOTIENT = "CASE WHEN {x} IS NOT NULL AND {y} = 0 THEN CAST(" + FAIL + " AS DOUBLE) ELSE CAST({x} AS DOUBLE) / {y} END"
COMPARE = {
    "({x} = {y})": lambda x, y: x == y,
    "({x} <> {y})": lambda x, y: x != y,
    "({x} < {y})": lambda x, y: x < y,
    "({x} <= {y})": lambda x, y: x <= y,
    "({x} > {y})": lambda x, y: x > y,
    "({x} >= {y})": lambda x, y: x >= y,
}


def integers(depth: int) -> st.SearchStrategy[Pair]:
    plain = leaf(["a", "b"], INTS)
    if depth == 0:
        return plain
    below = integers(depth - 1)
    arithmetic = {
        "({x} + {y})": lambda x, y: x + y,
        "({x} - {y})": lambda x, y: x - y,
        "({x} * {y})": lambda x, y: x * y,
        FLOOR: lambda x, y: x // y,
        MODULO: lambda x, y: x % y,
        "COALESCE({x}, {y})": lambda x, y: x.fill_null(y),
    }
    parts = {"year(t)": col("t").year(), "hour(t)": col("t").hour(), "isodow(t)": col("t").day_of_week()}
    return st.one_of(
        plain,
        binary(below, below, arithmetic),
        unary(below, {"CAST(-{x} AS BIGINT)": lambda x: -x, "abs({x})": lambda x: x.abs()}),
        unary(texts(depth - 1), {"length({x})": lambda x: x.length()}),
        st.sampled_from(sorted(parts)).map(lambda sql: Pair(parts[sql], sql)),
        choice(conditions(depth - 1), below),
    )


def floats(depth: int) -> st.SearchStrategy[Pair]:
    plain = leaf(["f"], FLOATS)
    if depth == 0:
        return plain
    below = floats(depth - 1)
    forms = {"({x} + {y})": lambda x, y: x + y, "({x} - {y})": lambda x, y: x - y, QUOTIENT: lambda x, y: x / y}
    mixed = {"({x} + CAST({y} AS DOUBLE))": lambda x, y: x + y, QUOTIENT: lambda x, y: x / y}
    rounding = {"floor({x})": lambda x: x.floor(), "ceil({x})": lambda x: x.ceil(), "abs({x})": lambda x: x.abs()}
    return st.one_of(plain, binary(below, below, forms), binary(below, integers(0), mixed), unary(below, rounding))


def texts(depth: int) -> st.SearchStrategy[Pair]:
    plain = leaf(["s"], TEXTS)
    if depth == 0:
        return plain
    below = texts(depth - 1)
    forms = {
        "lower({x})": lambda x: x.lower(),
        "upper({x})": lambda x: x.upper(),
        "substr({x}, 2)": lambda x: x.substr(2),
        "substr({x}, 1, 1)": lambda x: x.substr(1, 1),
        "replace({x}, 'a', 'bb')": lambda x: x.replace("a", "bb"),
    }
    return st.one_of(
        plain,
        unary(below, forms),
        binary(below, below, {"({x} || {y})": lambda x, y: x + y}),
        unary(integers(0), {"CAST({x} AS VARCHAR)": lambda x: x.cast(dbsp.STRING)}),
        choice(conditions(depth - 1), below),
    )


def moments(depth: int) -> st.SearchStrategy[Pair]:
    plain = leaf(["t"], TIMES)
    forms = {
        "date_trunc('hour', {x})": lambda x: x.truncate("hour"),
        "CAST(date_trunc('month', {x}) AS TIMESTAMP)": lambda x: x.truncate("month"),
        "CAST(date_trunc('week', {x}) AS TIMESTAMP)": lambda x: x.truncate("week"),
        "({x} + INTERVAL 90 MINUTE)": lambda x: x + dt.timedelta(minutes=90),
    }
    return plain if depth == 0 else st.one_of(plain, unary(moments(depth - 1), forms))


def conditions(depth: int) -> st.SearchStrategy[Pair]:
    plain = leaf(["p"], [True, False])
    if depth == 0:
        return plain
    below = conditions(depth - 1)
    connect = {"({x} AND {y})": lambda x, y: x & y, "({x} OR {y})": lambda x, y: x | y}
    nulls = {"({x} IS NULL)": lambda x: x.is_null(), "({x} IS NOT NULL)": lambda x: x.is_not_null()}
    search = {
        "({x} LIKE 'a%')": lambda x: x.like("a%"),
        "starts_with({x}, 'a')": lambda x: x.starts_with("a"),
        "contains({x}, 'b')": lambda x: x.contains("b"),
        "({x} IN ('a', 'ab'))": lambda x: x.is_in(["a", "ab"]),
        "({x} IN ('a', NULL))": lambda x: x.is_in(["a", None]),
        "regexp_matches({x}, '[0-9]')": lambda x: x.regexp_match("[0-9]"),
    }
    of_ints = {
        "({x} BETWEEN -1 AND 7)": lambda x: x.between(-1, 7),
        "({x} IN (1, 2, NULL))": lambda x: x.is_in([1, 2, None]),
    }
    return st.one_of(
        plain,
        binary(below, below, connect),
        unary(below, {"(NOT {x})": lambda x: ~x}),
        *(binary(kind, kind, COMPARE) for kind in (integers(0), floats(depth - 1), texts(0), moments(depth - 1))),
        *(unary(kind, nulls) for kind in (integers(0), texts(depth - 1))),
        unary(texts(depth - 1), search),
        unary(integers(0), of_ints),
    )


def row() -> st.SearchStrategy[dict]:
    pick = {"a": INTS, "b": INTS, "f": FLOATS, "s": TEXTS, "p": [True, False], "t": TIMES}
    return st.fixed_dictionaries(
        {name: st.sampled_from(values + ([None] if name != "b" else [])) for name, values in pick.items()}
    )


@pytest.fixture(scope="module")
def connection() -> duckdb.DuckDBPyConnection:
    made = duckdb.connect()
    made.execute(f"CREATE TABLE r (place BIGINT, {', '.join(f'{name} {type_}' for name, type_ in SQL_TYPES.items())})")
    return made


def ours(expression: Expression, rows: Rows) -> object:
    """The value on a single row, or "failed"."""
    try:
        (value,) = expression.evaluate(rows).to_pylist()
    except ROW_ERRORS:
        return "failed"
    return value


def theirs(connection: duckdb.DuckDBPyConnection, sql: str, rows: list[dict]) -> list[object]:
    """Of all rows at once; row by row where one of them fails, because then DuckDB gives none."""
    connection.execute("DELETE FROM r")
    values = [[place, *(item[name] for name in SQL_TYPES)] for place, item in enumerate(rows)]
    connection.executemany(f"INSERT INTO r VALUES ({', '.join('?' * (1 + len(SQL_TYPES)))})", values)
    try:
        return [value for (value,) in connection.execute(f"SELECT {sql} FROM r ORDER BY place").fetchall()]
    except duckdb.Error:
        return [
            _alone(connection, f"SELECT {sql} FROM (SELECT * FROM r WHERE place = {place}) r")
            for place in range(len(rows))
        ]


def _alone(connection: duckdb.DuckDBPyConnection, query: str) -> object:
    try:
        (value,) = connection.execute(query).fetchall()[0]
    except duckdb.Error:
        return "failed"
    return value


def alike(mine: object, other: object) -> bool:
    if isinstance(mine, float) and isinstance(other, float):
        return (math.isnan(mine) and math.isnan(other)) or mine == other
    return mine == other


@pytest.mark.parametrize("kind", [integers, floats, texts, conditions, moments])
@settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_values_nulls_failures_and_types(kind, connection, data):
    pair = data.draw(kind(2))
    rows = data.draw(st.lists(row(), min_size=1, max_size=4))
    expression = resolve(unwrap(pair.ours), SCHEMA)
    table = pa.Table.from_pylist(rows, schema=SCHEMA.to_arrow())
    singles = [ours(expression, Rows(table.slice(index, 1))) for index in range(len(rows))]
    expected = theirs(connection, pair.sql, rows)
    for mine, other in zip(singles, expected, strict=True):
        assert alike(mine, other), (str(expression), pair.sql, mine, other)
    good = [index for index, value in enumerate(singles) if value != "failed"]
    whole = expression.evaluate(Rows(table.take(pa.array(good, pa.int64()))))
    assert whole.type == expression.type(SCHEMA)
    assert all(alike(mine, singles[index]) for mine, index in zip(whole.to_pylist(), good, strict=True))
    if not expression.nullable(SCHEMA):
        assert whole.null_count == 0
    assert expression.evaluate(Rows(table.slice(0, 0))).type == whole.type

"""SHOW TABLES, DESCRIBE and SHOW COLUMNS; what refused statements say to do."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
import sqlglot

from dbsp.coordinator.query.listing import Listing, columns_query, listing, names_query, sql_type
from dbsp.coordinator.query.statement import QueryLimits, run_query
from dbsp.sql.types import column_type
from dbsp.zset import schema as t
from dbsp.zset.schema import SCALARS, Column
from tests.postgres.conftest import Connect

VIEWS = [("all_kinds",), ("dead_letters",), ("large",), ("per_customer",), ("spent",)]
NESTED = [
    t.decimal(38, 0),
    t.list_of(t.list_of(t.DATE)),
    t.struct_of({"a b": t.INT8, "select": t.list_of(t.decimal(9, 2))}),
]


@pytest.mark.parametrize(
    "sql", ["show tables", "SHOW VIEWS;", "show materialized views", "/* all */ show all tables -- of them"]
)
def test_the_views_are_listed(connect: Connect, sql: str) -> None:
    assert connect().execute(sql).fetchall() == VIEWS


@pytest.mark.parametrize(
    "sql", ["describe large", "DESC public.large", 'show columns from "large"', "describe table Large;"]
)
def test_the_columns_of_a_view_are_listed(connect: Connect, sql: str) -> None:
    cursor = connect().execute(sql)
    assert [column.name for column in cursor.description] == ["column_name", "column_type", "null"]
    assert [row[:2] for row in cursor.fetchall()] == [("id", "bigint"), ("customer", "varchar"), ("amount", "bigint")]


def test_variables_are_shown_as_before(connect: Connect) -> None:
    assert connect().execute("show timezone").fetchall() == [("UTC",)]
    with pytest.raises(psycopg.errors.UndefinedObject) as found:
        connect().execute("show sources")
    assert "SHOW TABLES lists the views" in str(found.value)


@pytest.mark.parametrize(
    ("sql", "hint"),
    [
        ("create materialized view v as select 1", "--accept-circuit"),
        ("drop view large", "--accept-circuit"),
        ("refresh materialized view large", "has all rows that were processed"),
        ("grant select on large to me", "tokens"),
        ("insert into orders values (1)", "coordinator push"),
        ("describe larg", "did you mean `large`"),
    ],
)
def test_a_refused_statement_says_what_to_do(connect: Connect, sql: str, hint: str) -> None:
    with pytest.raises(psycopg.Error) as found:
        connect().execute(sql)
    assert hint in str(found.value)


@pytest.mark.parametrize("type_", [*sorted(SCALARS, key=str), *NESTED], ids=str)
def test_a_type_has_the_name_that_declares_it(type_: Any) -> None:
    assert column_type(sqlglot.parse_one(f"cast(null as {sql_type(type_)})", read="duckdb").to) == type_


def test_names_are_quoted_and_a_circuit_without_views_has_no_row() -> None:
    def ask(sql: str) -> list[dict[str, Any]]:
        return run_query(sql, {}, QueryLimits()).to_pylist()

    assert ask(names_query([])) == []
    assert ask(names_query(["it's", 'a"b'])) == [{"name": 'a"b'}, {"name": "it's"}]
    found = ask(columns_query([Column("it's", t.struct_of({'x"y': t.INT8}))]))
    assert found == [{"column_name": "it's", "column_type": 'struct("x""y" tinyint)', "null": "YES"}]


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        ("describe select 1", None), ("show create view v", None), ("show timezone", None), ("select 'show tables'", None),
        ("show tables from x.y", None), ("describe a, b", None), ('desc "a ""b"""', Listing('a "b"')),
        ("describe materialized view v", Listing("v")), ("show tables; select 1", None),
    ],
)  # fmt: skip
def test_what_a_statement_lists(sql: str, found: Listing | None) -> None:
    assert listing(sql) == found

"""What a wrong script is told: what is wrong, the text, file, line and column, and what to write instead."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import dbsp
from dbsp.circuit.load import load_circuit

TABLES = """\
create table orders (id bigint not null, customer varchar, euros decimal(9, 2), at_ timestamp, primary key (id));
create table customers (name varchar, country varchar, primary key (name));
"""
WRONG = [
    tuple(block.strip().split("\n    "))
    for block in (Path(__file__).parent / "wrong_queries.txt").read_text().split("\n\n")
]
"""A wrong query, and what it is told."""


@pytest.mark.parametrize(("query", "message"), WRONG)
def test_a_wrong_query_is_told(query: str, message: str) -> None:
    script = query if query.startswith("insert") else f"create view v as\n  {query}"
    with pytest.raises(dbsp.CircuitError) as error:
        dbsp.sql_circuit("c", f"{TABLES}{script};", file="shop.sql")
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("create table t (a bigint);", "the script has no view"),
        ("create table t (a bigint, primary key (b)); create view v as select a from t", 'no such column: column="b"'),
        ("create table t (a bigint primary key, b bigint primary key)", "a table has one primary key"),
        ("create table t (a bigint primary key, b bigint, primary key (b))", "a table has one primary key"),
        ("create table t (a bigint); create table T (a bigint)", "the name is taken: name=T"),
        ("create table t (a bigint check (a > 3))", "a column can have only NOT NULL, DEFAULT and PRIMARY KEY"),
        ("create table t (a timestamp default now())", "a default is a constant"),
        ("create table t (a bigint default (select 1))", "a default is a constant"),
        ("create table t (a bigint default b, b bigint)", "no such column: column=b"),
        ("create table t (a bigint default 'one')", "a default that does not fit its column: column=a"),
        ("create table t (a bigint default 1 primary key)", "a column of the primary key has no default: column=a"),
        ("create table t (a bigint) with (appendonly = true)", "a table has no such option: option=appendonly"),
        ("create table t (a timestamp) with (watermark = 'a soon')", "not an interval"),
        ("set frobnicate = 3", "no such setting: setting=frobnicate"),
        (
            "create table t (a bigint); create view v as select a from t; set error_policy = 'halt'",
            "no such error policy",
        ),
        (
            "create table t (a varchr)",
            "no such type of a column: type=varchr text='varchr' .*; did you mean \"varchar\"[?]",
        ),
        (
            "create table t (a bigint); create view v as select cnt(a) from t",
            "no such function: function=cnt text='cnt.a.' .*; did you mean \"count\"[?]",
        ),
        (
            "create table t (a bigint)\ncreate view v as select a from t",
            "a `;` is missing between two statements text='create view' .*2:1.*; write `;` between",
        ),
        ("create table t as select 1", "a script cannot contain this statement: statement=create table"),
        ("drop table t", "a script cannot contain this statement: statement=drop table"),
    ],
)
def test_a_wrong_script_is_told(script: str, message: str) -> None:
    with pytest.raises(dbsp.CircuitError, match="^" + message.replace("(", "\\(")):
        dbsp.sql_circuit("c", script)


@pytest.mark.parametrize(
    ("statement", "place"),
    [("create table u (a timestamp) with (watermark = 'a soon')", "2:48"), ("set error_policy = 'halt'", "2:5")],
)
def test_the_place_of_a_wrong_setting_is_its_own(statement: str, place: str) -> None:
    with pytest.raises(dbsp.CircuitError, match=f"at=shop.sql:{place}; "):
        dbsp.sql_circuit(
            "c", f"create table t (a bigint);\n{statement};\ncreate view v as select a from t", file="shop.sql"
        )


def test_in_python_the_line_of_the_program_is_named_too() -> None:
    t = dbsp.table("t", {"a": dbsp.INT64})
    with pytest.raises(dbsp.CircuitError) as error:
        dbsp.sql("select a,\n  b from t", t=t)
    line = sys._getframe().f_lineno - 1
    assert str(error.value) == f"no such column: column=b text='b' sql=2:3 at={__file__}:{line}; there is \"a\""


@pytest.mark.parametrize("text", ["select a from t; select a from t", ""])
def test_sql_takes_one_query(text: str) -> None:
    with pytest.raises(dbsp.CircuitError, match="sql takes one query"):
        dbsp.sql(text, t=dbsp.table("t", {"a": dbsp.INT64}))


def test_without_the_parser_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sqlglot", None)
    with pytest.raises(dbsp.ConfigError, match=r"pip install 'dbsp-engine\[sql\]'"):
        dbsp.sql("select 1")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(dbsp.ConfigError, match=r"does not exist: file=.*shop\.sql"):
        load_circuit("shop.sql", tmp_path)


def test_nodes_of_a_file_know_their_line_there(tmp_path: Path) -> None:
    file = tmp_path / "shop.sql"
    file.write_text(f"{TABLES}\ncreate view v as\n  select name from customers where country = 'UK'")
    circuit = load_circuit("shop.sql", tmp_path)
    ((_, node),) = circuit.views
    assert str(node.source) == f"{file}:4"
    assert [str(table.source) for table in circuit.tables] == [f"{file}:2"]

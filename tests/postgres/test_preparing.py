"""PREPARE, EXECUTE and DEALLOCATE as statements, as psql and SQL scripts send them."""

from __future__ import annotations

import shutil
import subprocess
from typing import Any

import pytest

from tests.postgres.conftest import Connect, check_refused

psycopg = pytest.importorskip("psycopg", reason="needs psycopg: pip install -e '.[test]'")


def test_a_statement_is_prepared_executed_and_dropped(connect: Connect) -> None:
    connection = connect()
    assert (
        connection.execute("prepare by_id (bigint, text) as select amount, $2 from large where id = $1").statusmessage
        == "PREPARE"
    )
    for _ in range(2):
        found = connection.execute("execute by_id (2, 'it''s')")
        assert (found.fetchall(), found.statusmessage) == ([(600, "it's")], "SELECT 1")
    assert connection.execute("execute by_id (-2, null)").fetchall() == []
    assert connection.execute("deallocate by_id").statusmessage == "DEALLOCATE"
    check_refused(connection, "execute by_id (2, 'x')", "26000", "by_id")
    connection.execute("prepare whole as select * from per_customer")
    assert len(connection.execute("execute whole").fetchall()) == 2
    connection.execute("deallocate prepare all")
    check_refused(connection, "execute whole", "26000", "whole")


@pytest.mark.parametrize(
    ("types", "expression", "value", "expected"),
    [
        ("(numeric(5, 2))", "$1 + 1", "1.25", "2.25"),
        ("(double precision)", "$1 * 2", "-1.5e1", "-30"),
        ("(int[])", "$1[2]", "'{7,8}'", "8"),
        ("(timestamp(3) with time zone)", "extract(year from $1)", "timestamp '2024-05-06 00:00:00+00'", "2024"),
        ("(date)", "$1", "'2024-05-06'::date", "2024-05-06"),
        ("(boolean)", "not $1", "false", "True"),
        ("", "coalesce($1, 'none')", "null", "none"),
        ("", "$1 || 'x'", "'a'", "ax"),
    ],
)
def test_values_have_the_types_of_their_parameters(
    connect: Connect, types: str, expression: str, value: str, expected: str
) -> None:
    connection = connect()
    connection.execute(f"prepare p {types} as select ({expression})")
    ((found,),) = connection.execute(f"execute p ({value})").fetchall()
    assert str(found).removesuffix(".0") == expected


@pytest.mark.parametrize(
    ("sql", "sqlstate", "story"),
    [
        ("prepare p as insert into large values (1)", "25006", "a prepared statement is a SELECT"),
        ("prepare p as select 1; prepare p as select 2", "42P05", "already exists"),
        ("prepare p (nothing) as select $1", "42704", 'type "nothing" does not exist'),
        ("prepare p", "42601", "PREPARE name"),
        ("prepare p as select 1; execute p (1)", "42601", "expected=0 given=1"),
        ("prepare p as select $1; execute p", "42601", "expected=1 given=0"),
        ("prepare p as select $1; execute p (now())", "0A000", "EXECUTE takes constants"),
        ("prepare p as select $1; execute p (1,)", "42601", "empty element"),
        ("prepare p (int) as select $1; execute p ('x')", "22P02", "x"),
        ("execute", "42601", "EXECUTE name"),
    ],
)
def test_refusals_say_what_to_write(connect: Connect, sql: str, sqlstate: str, story: str) -> None:
    connection = connect()
    *before, last = sql.split("; ")
    for each in before:
        connection.execute(each)
    check_refused(connection, last, sqlstate, story)


def test_an_execute_is_described_and_limited_as_a_select(connect: Connect) -> None:
    """By the protocol's own messages, and in a transaction that has failed."""
    connection = connect()
    connection.execute("prepare p (bigint) as select id, amount from large where id = $1")
    found = connection.execute("execute p (2)", binary=True)
    assert [each.name for each in found.description or ()] == ["id", "amount"]
    assert found.fetchall() == [(2, 600)]
    connection.execute("begin")
    with pytest.raises(psycopg.errors.UndefinedTable):
        connection.execute("select * from nowhere")
    with pytest.raises(psycopg.errors.InFailedSqlTransaction):
        connection.execute("execute p (2)")
    connection.execute("rollback")
    assert connection.execute("execute p (2)").fetchall() == [(2, 600)]


def test_an_execute_of_itself_is_refused(connect: Connect) -> None:
    """As a message of the protocol prepares it."""
    connection = connect()
    for _ in range(6):  # psycopg prepares a text that is sent often, under a name of its own
        with pytest.raises(psycopg.Error, match="_pg3_0"):
            connection.execute("execute _pg3_0", prepare=True)


def test_psql_prepares(server: Any) -> None:
    psql = shutil.which("psql")
    if psql is None:
        pytest.skip("needs psql")
    host, port = server.address
    script = "prepare p (text) as select orders from per_customer where customer = $1; execute p ('a'); deallocate p;"
    found = subprocess.run(
        [psql, "-X", "-A", "-t", "-d", f"postgresql://me@{host}:{port}/kinds"], input=script, capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
    assert (found.stdout.split(), found.stderr) == (["PREPARE", "1", "DEALLOCATE"], "")

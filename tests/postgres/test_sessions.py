"""Transactions, cursors, errors, cancelling, bounds."""

from __future__ import annotations

import socket
import threading
import time
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from dbsp.coordinator.postgres import messages as m
from dbsp.coordinator.postgres.listen import bind_postgres
from dbsp.coordinator.postgres.section import PostgresSection
from dbsp.errors import ConfigError
from tests.certificates import certificate
from tests.open_sockets import none_left_open
from tests.postgres.conftest import Connect, answering, check_refused
from tests.postgres.test_follow import until
from tests.postgres.test_wire import startup_bytes

psycopg = pytest.importorskip("psycopg", reason="needs psycopg: pip install -e '.[test]'")

ENDLESS = "select count(*) from range(1000000) a, range(1000000) b"


@pytest.mark.parametrize(
    ("sql", "sqlstate", "story"),
    [
        ("insert into per_customer values ('a', 1)", "25006", "coordinator push"),
        ("create table t (a int)", "25006", "coordinator push"),
        ("copy per_customer from stdin", "25006", "coordinator push"),
        ("with a as (select 1) delete from large", "25006", "coordinator push"),
        ("select * from large for update", "25006", "leave the lock out"),
        ("select * from nowhere", "42P01", "no such view: view=nowhere"),
        ("select nothing from large", "42703", "nothing"),
        ("select no_such_function(1)", "42883", "no_such_function"),
        ("select 'x'::int", "22P02", "x"),
        ("selec 1", "42601", "SELECT"),
        ("select (", "42601", "not SQL"),
        ("select * from read_csv('/etc/passwd')", "42000", "read_csv"),
        ("copy (select 1) to '/tmp/file'", "0A000", "STDOUT"),
        ("begin isolation level serializable", "0A000", "READ COMMITTED"),
        ("set no_such_variable = 1", "42704", "no_such_variable"),
        ("set client_encoding = 'LATIN1'", "0A000", "LATIN1"),
        ("fetch 1 from nowhere", "34000", "nowhere"),
    ],
)
def test_errors_have_a_code_and_a_hint(connect: Connect, sql: str, sqlstate: str, story: str) -> None:
    check_refused(connect(), sql, sqlstate, story)


def test_a_plan_is_a_result(connect: Connect) -> None:
    connection = connect()
    for binary in (False, True):
        found = connection.execute("explain select amount from large where id = %s", [2], binary=binary)
        assert found.statusmessage == "EXPLAIN"
        lines = [line for (line,) in found]
        assert lines[0].startswith("as of step ")
        assert "DuckDB:" in lines
    with connection.transaction(), connection.cursor("mine") as cursor:
        cursor.execute("explain analyze select * from pg_catalog.pg_class, large")
        assert any(line.endswith("rows read: 1") for (line,) in cursor)


def test_a_failed_transaction_ignores_everything_until_it_ends(connect: Connect) -> None:
    connection = connect(autocommit=False)
    connection.execute("select 1")
    with pytest.raises(psycopg.errors.UndefinedTable):
        connection.execute("select * from nowhere")
    with pytest.raises(psycopg.errors.InFailedSqlTransaction):
        connection.execute("select 1")
    connection.rollback()
    with connection.transaction():
        connection.execute("savepoint a")
        with pytest.raises(psycopg.Error):
            connection.execute("select * from nowhere")
        connection.execute("rollback to savepoint a")
        assert connection.execute("select 2").fetchone() == (2,)


def test_cursors_give_their_rows_in_parts(connect: Connect) -> None:
    connection = connect(autocommit=False)
    with connection.cursor("mine") as cursor:
        cursor.itersize = 7
        assert [row[0] for row in cursor.execute("select i from range(20) t(i)")] == list(range(20))
    with connection.cursor("other") as cursor:
        cursor.execute("select i from range(5) t(i)")
        assert [cursor.fetchmany(3), cursor.fetchmany(3), cursor.fetchmany(3)] == [[(0,), (1,), (2,)], [(3,), (4,)], []]


@pytest.mark.parametrize(
    "asked", ["i / 8.0::float8", "round((i / 8.0::float8)::numeric, 3)", "cast(i / 8.0::float8 as decimal)"]
)
def test_a_number_cast_to_numeric_without_places_keeps_its_own(connect: Connect, asked: str) -> None:
    rows = connect().execute(f"select {asked} from range(1000, 1003) t(i)").fetchall()
    assert [float(row[0]) for row in rows] == [125.0, 125.125, 125.25]


def test_prepared_statements_are_run_again(connect: Connect) -> None:
    connection = connect()
    for number in range(8):  # psycopg prepares from the sixth time on
        found = connection.execute("select %s::int + 1", [number], prepare=number > 2).fetchone()
        assert found == (number + 1,)


def test_a_query_is_cancelled(connect: Connect) -> None:
    connection = connect()
    runner = []

    def cancel() -> None:
        while not runner:
            time.sleep(0.01)
        while True:  # until it has begun: a cancellation before that is for nothing
            connection.cancel_safe()
            if done.wait(0.1):
                return

    done = threading.Event()
    thread = threading.Thread(target=cancel)
    thread.start()
    runner.append(1)
    try:
        with pytest.raises(psycopg.errors.QueryCanceled, match="cancelled"):
            connection.execute(ENDLESS)
    finally:
        done.set()
        thread.join()
    assert connection.execute("select 1").fetchone() == (1,)


def test_a_statement_has_its_time(connect: Connect) -> None:
    connection = connect()
    connection.execute("set statement_timeout = '200ms'")
    assert connection.execute("show statement_timeout").fetchone() == ("200ms",)
    with pytest.raises(psycopg.errors.QueryCanceled, match="took too long"):
        connection.execute(ENDLESS)


def test_there_is_one_database(connect: Connect) -> None:
    with pytest.raises(psycopg.OperationalError, match='the database of this pipeline is "kinds"'):
        connect(dbname="other")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A service with tokens, of which only some may read, and two connections."""
    overrides = ("http.read_token=reader", "http.ingest_token=writer", "postgres.connections_max=2")
    with answering(tmp_path_factory.mktemp("guarded"), *overrides) as made:
        yield made


def connected(server: Any, **more: Any) -> Any:
    return psycopg.connect(host=server.address[0], port=server.address[1], dbname="kinds", user="me", **more)


def test_the_password_is_a_token_that_may_read(guarded: Any) -> None:
    with connected(guarded, password="reader") as connection:
        assert connection.execute("select 1").fetchone() == (1,)
        assert connection.pgconn.used_password
    for password, story in (("wrong", "no such token"), ("writer", "does not allow to read")):
        with pytest.raises(psycopg.OperationalError, match=story):
            connected(guarded, password=password)


def test_connections_are_bounded(guarded: Any) -> None:
    first, second = connected(guarded, password="reader"), connected(guarded, password="reader")
    with first, second, pytest.raises(psycopg.OperationalError, match="connections_max=2"):
        connected(guarded, password="reader")


def test_with_a_certificate_only_tls_is_answered(tmp_path: Path) -> None:
    certificate(tmp_path, "own", x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1")))
    overrides = ("http.certificate=own.pem", "http.key=own.key", "http.read_token=reader")
    with answering(tmp_path, *overrides) as server:
        trusting = {"password": "reader", "sslmode": "verify-full", "sslrootcert": str(tmp_path / "own.pem")}
        with connected(server, **trusting) as connection:
            assert connection.pgconn.ssl_in_use
            assert connection.execute("select count(*) from per_customer").fetchone() == (2,)
            assert server._service.status()["postgres"] == {"url": server.url, "sessions": 1, "connections_max": 64}
        with pytest.raises(psycopg.OperationalError, match="by TLS alone"):
            connected(server, password="reader", sslmode="disable")


def test_strangers_need_a_token() -> None:
    with pytest.raises(ConfigError, match="without a token"):
        bind_postgres(PostgresSection(port=0, host="0.0.0.0"), has_tokens=False)


def test_it_stops_while_clients_are_there(tmp_path: Path) -> None:
    """One waits, one has said nothing, and one asks for more than the sockets hold, but reads none of it."""
    with none_left_open(), answering(tmp_path) as server:
        connection = connected(server, autocommit=True)
        with socket.create_connection(server.address), socket.create_connection(server.address) as stalled:
            stalled.sendall(startup_bytes() + m.message(b"Q", b"select * from range(3000000)\0"))
            until(lambda: server.status()["sessions"] == 2)
            until(lambda: any(each.transport.get_write_buffer_size() for each in tuple(server._open)))
            begun = time.monotonic()
            server.stop()
            assert time.monotonic() - begun < 9
        with pytest.raises(psycopg.OperationalError):
            connection.execute("select 1")

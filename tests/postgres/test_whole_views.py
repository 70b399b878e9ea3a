"""A plain SELECT of a view is sent while the view is read: the same bytes as by DuckDB, any size, one step, bounded memory."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dbsp.coordinator.postgres import whole_views
from dbsp.coordinator.postgres.whole_views import WholeView, whole_view_of
from tests.postgres.conftest import Connect, answering
from tests.postgres.test_follow import connected, push, until

psycopg = pytest.importorskip("psycopg", reason="needs psycopg: pip install -e '.[test]'")

ROWS = 30_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A service with a view of more rows than a query may give."""
    with answering(tmp_path_factory.mktemp("whole"), "query.rows_max=1000") as made:
        push(made, *((number, "x" * 400, 900) for number in range(10, 10 + ROWS)))
        yield made


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        ("select * from v", WholeView("v")),
        ('SELECT a, "B" FROM "public"."V"', WholeView("V", ("a", "B"))),
        ("select a b from v", None),
        ("select a from v limit 1", None),
        ("select a from v w", None),
        ("select a from pg_catalog.v", None),
        ("select 'a' from v", None),
        ("select a, from v", None),
        ("select * from v;", None),
        ("select 1 from v", None),
        ("table v", None),
        ("explain select a from v", None),
    ],
)
def test_a_plain_select_is_recognized(sql: str, found: WholeView | None) -> None:
    assert whole_view_of(sql) == found


@pytest.mark.parametrize("binary", [False, True])
def test_the_bytes_are_those_of_a_query(connect: Connect, binary: bool) -> None:
    connection = connect()
    for columns in ("*", "exact, id, place, span, words", "raw"):
        plain, asked = (
            connection.pgconn.exec_params(
                f"select {columns} from all_kinds{where}".encode(), None, result_format=int(binary)
            )
            for where in ("", " where true")
        )
        assert plain.nfields > 0
        shape = [
            [(result.fname(n), result.ftype(n), result.fmod(n), result.fformat(n)) for n in range(result.nfields)]
            for result in (plain, asked)
        ]
        assert shape[0] == shape[1]
        rows = [
            sorted(
                tuple(result.get_value(row, n) or b"" for n in range(result.nfields)) for row in range(result.ntuples)
            )
            for result in (plain, asked)
        ]
        assert rows[0] == rows[1]
        assert len(rows[0]) == 2


def test_a_view_of_any_size_is_sent(server: Any, connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    connection = connect()
    with (
        connection.transaction(),
        connection.cursor("held") as cursor,
        pytest.raises(psycopg.Error, match="rows_max=1000"),
    ):
        cursor.execute("select id from large where true")
    for most in (whole_views.KEPT_VIEW_BYTES_MAX, -1):  # read at once, and piece by piece
        monkeypatch.setattr(whole_views, "KEPT_VIEW_BYTES_MAX", most)
        monkeypatch.setattr(server._service, "_kept_views", {})
        found = [number for (number,) in connection.execute("select id from large")]
        assert sorted(found) == [2, *range(10, 10 + ROWS)]
        with (
            connection.cursor() as cursor,
            cursor.copy("copy large (amount, id) to stdout (format csv, header)") as copy,
        ):
            lines = b"".join(copy).decode().splitlines()
        assert lines[0] == "amount,id"
        assert sorted(lines[1:]) == sorted(["600,2", *(f"900,{number}" for number in range(10, 10 + ROWS))])
        assert connection.execute("select * from large").statusmessage == f"SELECT {ROWS + 1}"
    for sql in ("select nothing from large", "select * from nowhere"):
        with pytest.raises(psycopg.errors.ProgrammingError):
            connection.execute(sql)


def test_a_query_of_any_size_is_sent(connect: Connect) -> None:
    """While DuckDB makes it; in the meantime the session's other statements go on, and a cancelled one leaves nothing behind."""
    connection = connect()
    sql = "select id + 0 as n from large where id > 2"
    assert sorted(number for (number,) in connection.execute(sql)) == [*range(10, 10 + ROWS)]
    with connection.cursor() as cursor, cursor.copy(f"copy ({sql}) to stdout") as copy:
        assert sorted(map(int, b"".join(copy).split())) == [*range(10, 10 + ROWS)]
    with connection.transaction():
        for _ in range(4):  # more than `at_once_max`
            connection.execute(f"declare c{_} cursor for {sql} limit 500")
        assert [len(connection.execute(f"fetch 300 from c{_}").fetchall()) for _ in range(4)] == [300] * 4
        assert len(connection.execute("fetch all from c3").fetchall()) == 200
    for _ in range(4):
        with pytest.raises(psycopg.Error, match="late"):
            connection.execute("select case when range < 300000 then 1 else error('late') end from range(400000)")
    assert connection.execute("select 1").fetchall() == [(1,)]


def test_rows_come_as_often_as_their_weight(server: Any, connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    for most in (whole_views.KEPT_VIEW_BYTES_MAX, -1):
        monkeypatch.setattr(whole_views, "KEPT_VIEW_BYTES_MAX", most)
        found = connect().execute("select amount from spent").fetchall()
        assert len(found) == ROWS + 2
        assert set(found) == {(10,), (600,), (900,)}


def test_all_pieces_are_of_one_step_and_memory_is_bounded(
    server: Any, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whole_views, "KEPT_VIEW_BYTES_MAX", -1)
    service, held = server._service, server._backend.held
    monkeypatch.setattr(service, "_kept_views", {})
    before = service.leases.count
    connection = connect(autocommit=False)
    connection.execute("declare c cursor for select id, customer from large")
    found = connection.execute("fetch 100 c").fetchall()
    size = held._now
    assert 0 < size < service.read_view("large").table.nbytes / 2, "a piece, not the view"
    push(server, (5, "a", 900))
    push(server, *((number, "y", 1) for number in range(10, 1000)))
    rest = connection.execute("fetch all c").fetchall()
    assert sorted(number for number, _ in found + rest) == [2, *range(10, 10 + ROWS)]
    connection.commit()
    assert held._now == 0
    push(server, *((number, "x" * 400, 900) for number in range(10, 1000)), (5, "a", 1))
    until(lambda: service.leases.count <= before, 30)


def test_a_cursor_over_a_small_view_holds_no_lease(
    server: Any, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server._service, "_kept_views", {})
    connection = connect(autocommit=False)
    connection.execute("declare c cursor for select * from all_kinds")
    assert len(connection.execute("fetch 1 c").fetchall()) == 1
    assert server._service.kept("all_kinds") is not None, "further readers of this step share it"
    assert sorted(number for (number,) in connect().execute("select id from all_kinds")) == [1, 2]
    push(server, (6, "a", 1))  # ends the leases without a reader
    until(lambda: server._service.leases.count == 0, 30)
    assert len(connection.execute("fetch all c").fetchall()) == 1


def test_what_is_broken_off_gives_its_lease_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole_views, "KEPT_VIEW_BYTES_MAX", -1)
    with answering(tmp_path) as server:
        push(server, *((number, "x" * 2000, 900) for number in range(10, 10 + ROWS)))
        connection = connected(server)
        connection.pgconn.send_query(b"copy large to stdout")  # and nothing of it is read
        until(lambda: server._backend.held._now)
        push(server, (5, "a", 1))
        assert server._service.leases.count == 1
        begun = time.monotonic()
        connection.close()
        until(lambda: server._service.leases.count == 0)
        assert time.monotonic() - begun < 10
        until(lambda: not server._backend.held._now)

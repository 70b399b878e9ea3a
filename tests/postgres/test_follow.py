"""SUBSCRIBE: snapshot and changes in order are the view at every step, by COPY, cursors and streams, through restarts."""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.postgres.conftest import Connect, answering, check_refused, until_processed

psycopg = pytest.importorskip("psycopg", reason="needs psycopg: pip install -e '.[test]'")

Row = tuple[Any, ...]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A service of its own, whose views change."""
    with answering(tmp_path_factory.mktemp("follow")) as made:
        yield made


def push(server: Any, *rows: tuple[int, str, int]) -> int:
    """Push rows, wait for them, and return the step that follows them."""
    service = server._service
    service.push(
        "orders", pa.table(dict(zip(("id", "customer", "amount"), map(list, zip(*rows, strict=True)), strict=True)))
    )
    until_processed(service)
    return int(service.finished_steps())


def view_of(server: Any, view: str) -> tuple[int, Counter[Row]]:
    """The view and its step, by another way than the one that is tested."""
    found = server._service.read_view(view)
    *columns, weights = (column.to_pylist() for column in found.table.columns)
    return found.step, Counter(dict(zip(zip(*columns, strict=True), weights, strict=True)))


def added_up(rows: list[Row], below: int | None = None) -> dict[Row, int]:
    """Rows of (step, diff, columns…), added up."""
    total: Counter[Row] = Counter()
    for step, diff, *columns in rows:
        if below is None or step < below:
            total[tuple(columns)] += diff
    return {row: weight for row, weight in total.items() if weight}


def texts(lines: list[bytes]) -> list[Row]:
    """Rows of per_customer as COPY writes them."""
    parts = [line.decode().rstrip("\n").split("\t") for line in lines]
    return [
        (int(step), int(diff), customer, int(orders), int(amount)) for step, diff, customer, orders, amount in parts
    ]


def test_the_snapshot_and_the_changes_are_the_view_at_every_step(server: Any, connect: Connect) -> None:
    known = [view_of(server, "per_customer")]
    first = known[0][0]
    rows: list[Row] = []
    ends = first + 3
    with connect().cursor() as cursor, cursor.copy(f"copy (subscribe per_customer up to {ends}) to stdout") as copy:
        lines = iter(copy)
        rows.append(*texts([bytes(next(lines))]))
        for number in range(3):
            push(server, (100 + number, "follow", 5), (200 + number, "a", number))
            known.append(view_of(server, "per_customer"))
        rows += texts([bytes(line) for line in lines])
    assert {step for step, *_ in rows} == {first - 1, first, first + 1, first + 2}
    assert [step for step, *_ in rows] == sorted(step for step, *_ in rows)
    assert [step for step, _ in known] == [first, first + 1, first + 2, first + 3]
    for step, view in known:
        assert added_up(rows, step) == dict(view)


def test_progress_says_which_step_is_complete(server: Any, connect: Connect) -> None:
    first, view = view_of(server, "per_customer")
    found: list[Row] = []
    with connect().cursor() as cursor:
        stream = cursor.stream("subscribe to per_customer with (snapshot, progress)")
        assert cursor.description is None
        while not found or not found[-1][1]:
            found.append(next(stream))
        assert [each.name for each in cursor.description] == [
            "step",
            "progressed",
            "diff",
            "customer",
            "orders",
            "amount",
        ]
        assert found[-1] == (first, True, None, None, None, None)
        assert added_up([(step, *row) for step, _, *row in found[:-1]]) == dict(view)
        step = push(server, (300, "progress", 1))
        found = []
        while not found or found[-1][0] < step:
            found.append(next(stream))
        assert found == [(step - 1, False, 1, "progress", 1, 1), (step, True, None, None, None, None)]
        cursor.connection.cancel_safe()
        with pytest.raises(psycopg.errors.QueryCanceled):
            next(stream)


def test_a_follow_from_a_step_to_a_step_has_the_changes_between(server: Any, connect: Connect) -> None:
    first = server._service.finished_steps()
    for number in range(4):
        push(server, (250 + number, "between", 1))
    with connect().cursor() as cursor:
        sql = "subscribe per_customer with (snapshot = false, progress) as of %s up to %s"
        found = list(cursor.stream(sql, [first + 1, first + 3]))
    changed = [(step, diff, orders) for step, progressed, diff, _, orders, _ in found if not progressed]
    assert sorted(changed) == [(first + 1, -1, 1), (first + 1, 1, 2), (first + 2, -1, 2), (first + 2, 1, 3)]
    assert [step for step, progressed, *_ in found if progressed] == [first + 1, first + 2, first + 3]


def test_a_cursor_gives_what_is_ready(server: Any, connect: Connect) -> None:
    connection = connect(autocommit=False)
    count = len(view_of(server, "per_customer")[1])
    connection.execute("declare c cursor for subscribe per_customer")
    assert len(connection.execute("fetch 1 c").fetchall()) == 1
    assert len(connection.execute("fetch 100 from c").fetchall()) == count - 1
    assert connection.execute("fetch all c with (timeout = '0s')").fetchall() == []
    assert connection.execute("fetch all c with (timeout = '50ms')").fetchall() == []
    pushed = threading.Thread(target=push, args=(server, (400, "cursor", 7)))
    pushed.start()
    ((_, diff, *row),) = connection.execute("fetch all c").fetchall()
    pushed.join()
    assert (diff, *row) == (1, "cursor", 1, 7)
    connection.commit()
    with pytest.raises(psycopg.errors.InvalidCursorName):
        connection.execute("fetch 1 c")


def test_a_named_cursor_of_psycopg_follows(server: Any, connect: Connect) -> None:
    count = len(view_of(server, "per_customer")[1])
    with connect(autocommit=False) as connection, connection.cursor("mine") as cursor:
        cursor.execute("subscribe per_customer with (progress = true)")
        found = cursor.fetchmany(count)
        assert len(found) == count
        assert [each.name for each in cursor.description][:3] == ["step", "progressed", "diff"]
        assert cursor.fetchone()[1] is True


def test_a_follow_goes_on_after_a_restart(tmp_path: Path) -> None:
    """A follower that keeps the last row of progress with its rows has every change once."""
    rows: list[Row] = []
    with answering(tmp_path) as server, connected(server) as connection:
        at = int(server._service.finished_steps())
        copy = f"copy (subscribe per_customer with (progress) up to {at}) to stdout"
        for line in lines_of(connection, copy):
            at = take(line, rows, at)
        push(server, (1, "a", 1), (500, "missed", 1))
    with answering(tmp_path) as server, connected(server) as connection:
        step = push(server, (501, "missed", 2))
        assert at < step - 1
        for line in lines_of(
            connection, f"copy (subscribe per_customer with (snapshot=false) as of {at} up to {step}) to stdout"
        ):
            take(line, rows, at)
        assert added_up(rows) == dict(view_of(server, "per_customer")[1])
        assert ("missed", 2, 3) in added_up(rows)


def take(line: list[str], rows: list[Row], at: int) -> int:
    """Keep a line of a COPY; return the step up to which all is there."""
    if line[1] == "t":
        return int(line[0])
    values = [each for each in line if each != "f"]
    rows.append((int(values[0]), int(values[1]), values[2], *map(int, values[3:])))
    return at


def connected(server: Any, **more: Any) -> Any:
    return psycopg.connect(
        host=server.address[0], port=server.address[1], dbname="kinds", user="me", autocommit=True, **more
    )


def lines_of(connection: Any, sql: str) -> Iterator[list[str]]:
    with connection.cursor() as cursor, cursor.copy(sql) as copy:
        for line in copy:
            yield bytes(line).decode().rstrip("\n").split("\t")


def test_every_type_is_followed_in_text_and_binary(server: Any, connect: Connect) -> None:
    step = server._service.finished_steps()
    whole = connect().execute("select * from all_kinds order by id").fetchall()
    for binary in (False, True):
        with connect().cursor(binary=binary) as cursor:
            found = list(cursor.stream("subscribe all_kinds up to %s", [step]))
        assert sorted((row[2:] for row in found), key=lambda row: row[0]) == whole
    with (
        connect().cursor() as cursor,
        cursor.copy("copy (subscribe per_customer with (progress)) to stdout (format binary)") as copy,
    ):
        copy.set_types(["int8", "bool", "int8", "text", "int8", "numeric"])
        assert next(copy.rows())[1] is False


@pytest.mark.parametrize(
    ("sql", "sqlstate", "story"),
    [
        ("subscribe nowhere", "42P01", "no such view: view=nowhere"),
        ("subscribe", "42601", "SUBSCRIBE TO view"),
        ("subscribe (select 1)", "0A000", "a view of the circuit"),
        ("subscribe per_customer envelope upsert (key (customer))", "0A000", "their weight"),
        ("subscribe per_customer with (snapshot = maybe)", "22023", "not true or false"),
        ("subscribe per_customer with (nothing)", "0A000", "NOTHING"),
        ("subscribe per_customer as of 1", "0A000", "SNAPSHOT = false"),
        ("subscribe per_customer with (snapshot = false) as of x", "22023", "not a step"),
        ("subscribe per_customer with (snapshot = false) as of 999999", "55000", "has not reached this step"),
        ("subscribe per_customer with (snapshot = false) as of 2 up to 1", "22023", "before AS OF"),
        ("subscribe per_customer up to 0", "22023", "a step of the past"),
        ("subscribe dead_letters", "0A000", "not materialized"),
        ("copy (subscribe nowhere) to stdout", "42P01", "nowhere"),
        ("declare c cursor with hold for insert into t values (1)", "25006", "SELECT or a SUBSCRIBE"),
        ("fetch 1 c with (nothing = 1)", "42601", "TIMEOUT"),
    ],
)
def test_what_cannot_be_followed_is_refused(connect: Connect, sql: str, sqlstate: str, story: str) -> None:
    check_refused(connect(), sql, sqlstate, story)


def test_a_statement_timeout_ends_a_follow(connect: Connect) -> None:
    connection = connect()
    connection.execute("set statement_timeout = '100ms'")
    with pytest.raises(psycopg.errors.QueryCanceled, match="timeout"), connection.cursor() as cursor:
        list(cursor.stream("subscribe per_customer"))


def test_changes_that_were_dropped_are_refused(server: Any, connect: Connect) -> None:
    push(server, (600, "dropped", 1))
    for log in server._service._feed._open().values():
        log.trim(1)
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="were dropped"), connect().cursor() as cursor:
        list(cursor.stream("subscribe per_customer with (snapshot = false) as of 0"))


def idle(server: Any) -> bool:
    """Whether nothing is held for any session: no bytes, no wait for a step, no session."""
    backend = server._backend
    return not (backend.held._now or backend.shared.notifier.waiting or server._sessions)


def until(condition: Any, seconds: float = 20) -> None:
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.01)


def test_a_client_that_leaves_ends_its_follow(tmp_path: Path) -> None:
    with answering(tmp_path) as server:
        connection = connected(server)
        connection.pgconn.send_query(b"subscribe per_customer with (progress)")
        until(lambda: server._backend.shared.notifier.waiting)
        assert not idle(server)
        connection.close()
        until(lambda: idle(server))


def test_the_service_stops_while_views_are_followed(tmp_path: Path) -> None:
    with answering(tmp_path) as server:
        connections = [connected(server) for _ in range(3)]
        streams = [each.cursor().stream("subscribe per_customer") for each in connections]
        for stream in streams:
            next(stream)
        until(lambda: server._backend.shared.notifier.waiting == 3)
        begun = time.monotonic()
        server.stop()
        assert time.monotonic() - begun < 2
        for stream in streams:
            with pytest.raises(psycopg.OperationalError, match="the service stops"):
                list(stream)


def test_a_client_that_does_not_read_holds_one_page(tmp_path: Path) -> None:
    """The next page is read when the client has taken the one before; the others are not kept back, nor is the stop."""
    with answering(tmp_path) as server:
        wide = "x" * 1000
        slow, fast = connected(server), connected(server)
        slow.pgconn.send_query(b"copy (subscribe large) to stdout")
        until(lambda: server._backend.shared.notifier.waiting)
        sizes = []
        for batch in range(12):
            rows = [(10_000 * (batch + 1) + number, wide, 900) for number in range(5_000)]
            step = push(server, *rows)
            sizes.append(server._backend.held._now)
        view = server._service.changes("large", step - 1).steps[0].table
        assert 0 < max(sizes) < 4 * view.nbytes, "a page or two of twelve"
        read = fast.execute("select count(*) from large").fetchone()
        assert read == (60_001,)
        begun = time.monotonic()
        server.stop()
        assert time.monotonic() - begun < 2
        fast.close()
        slow.close()


def test_psql_follows(server: Any) -> None:
    psql = shutil.which("psql")
    if psql is None:
        pytest.skip("needs psql")
    step, view = view_of(server, "per_customer")
    host, port = server.address
    done = subprocess.run(
        [psql, "-X", "-At", "-d", f"postgresql://me@{host}:{port}/kinds",
         "-c", f"copy (subscribe to per_customer with (snapshot, progress) up to {step}) to stdout",
         "-c", "begin", "-c", "declare c cursor for subscribe per_customer", "-c", "fetch 2 c", "-c", "commit",
         "-c", f"subscribe per_customer up to {step}"],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    lines = done.stdout.splitlines()
    assert len(lines) == 2 * len(view) + 1 + 2 + 3, done.stdout
    assert lines[len(view)] == f"{step}\tt\t\\N\t\\N\t\\N\t\\N"

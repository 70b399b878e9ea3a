"""Who may read, TLS, bounds, and the end of the service."""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest
from cryptography import x509

from dbsp.coordinator.flight import messages as m
from dbsp.coordinator.flight.listen import bind_flight
from dbsp.coordinator.flight.section import FlightSection
from dbsp.coordinator.http.access_log import open_log
from dbsp.errors import ConfigError, UnavailableError
from tests.certificates import certificate
from tests.flight.conftest import Connect, answering, asked, connecting, dbapi
from tests.postgres.conftest import until_processed
from tests.postgres.test_follow import until

TOKENS = ("http.read_token=reader", "http.ingest_token=pusher", "http.admin_token=admin")
ENDLESS = "select count(*) from range(1000000) a, range(1000000) b"
COUNT = "select count(*) as n from per_customer"


def bearer(token: str) -> dict[str, str]:
    return {"authorization_header": f"Bearer {token}"}


def in_thread(cursor: Any) -> tuple[threading.Thread, list[Any]]:
    """A thread that asks what never ends, and its errors."""
    errors: list[Any] = []

    def ask() -> None:
        try:
            cursor.execute(ENDLESS)
            cursor.fetchall()
        except dbapi.Error as error:
            errors.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    return thread, errors


def test_a_token_that_may_read_is_needed(tmp_path: Path, connect: Connect) -> None:
    with answering(tmp_path, *TOKENS) as server:
        for options in (bearer("reader"), bearer("admin"), {"username": "me", "password": "reader"}):
            assert asked(connect(server, **options), COUNT).to_pylist() == [{"n": 2}]
        for options, story in (
            ({}, "a token is needed"),
            (bearer("wrong"), "a token is needed"),
            ({"username": "reader", "password": "wrong"}, "a token is needed"),
            (bearer("pusher"), "the token does not allow it: scope=ingest"),
        ):
            with pytest.raises(dbapi.Error, match=story), connecting() as made:
                asked(made(server, **options), COUNT)
        for call in (
            lambda client: client.list_actions(),
            lambda client: client.get_flight_info(fl.FlightDescriptor.for_command(b"x")),
            lambda client: client.do_get(fl.Ticket(b"x")).read_all(),
            lambda client: list(client.do_action("CreatePreparedStatement")),
        ):
            with fl.connect(server.url) as client, pytest.raises(fl.FlightUnauthenticatedError):
                call(client)
        assert not server.service.status()["alarms"]


def test_tokens_are_read_again(tmp_path: Path, connect: Connect) -> None:
    (tmp_path / "tokens").write_text("old\n")
    with answering(tmp_path, 'http.token_files={ read = "tokens" }') as server:
        assert asked(connect(server, **bearer("old")), COUNT).num_rows == 1
        (tmp_path / "tokens").write_text("newer\n")
        (tokens,) = server.reloadables
        until(tokens.look)
        assert asked(connect(server, **bearer("newer")), COUNT).num_rows == 1
        with pytest.raises(dbapi.Error, match="a token is needed"):
            asked(connect(server, **bearer("old")), COUNT)


def test_with_a_certificate_only_tls_is_answered(tmp_path: Path, connect: Connect) -> None:
    names = (x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1")))
    certificate(tmp_path, "own", *names)
    with answering(tmp_path, "http.certificate=own.pem", "http.key=own.key", "http.read_token=reader") as server:
        assert server.url.startswith("grpc+tls://")
        roots = {"client_option.tls_root_certs": (tmp_path / "own.pem").read_text()}
        assert asked(connect(server, **roots, **bearer("reader")), COUNT).to_pylist() == [{"n": 2}]
        with pytest.raises(dbapi.Error), connecting() as made:
            asked(made(server, **bearer("reader")), COUNT)  # an unknown authority
        plain = fl.connect(server.url.replace("+tls", ""))
        with plain, pytest.raises(fl.FlightUnavailableError):
            plain.list_actions(fl.FlightCallOptions(timeout=10))
        certificate(tmp_path, "own", *names)
        _, read_again = server.reloadables
        until(read_again.look)
        newer = {"client_option.tls_root_certs": (tmp_path / "own.pem").read_text()}
        assert asked(connect(server, **newer, **bearer("reader")), COUNT).to_pylist() == [{"n": 2}]
        with pytest.raises(dbapi.Error), connecting() as made:
            asked(made(server, **roots, **bearer("reader")), COUNT)


def test_what_is_no_flight_sql_is_refused_and_no_bug(tmp_path: Path) -> None:
    with answering(tmp_path) as server, fl.connect(server.url) as client:
        descriptor = fl.FlightDescriptor.for_command(b"select 1")
        calls = (
            lambda: client.get_flight_info(descriptor),
            lambda: client.get_flight_info(fl.FlightDescriptor.for_path("a")),
            lambda: client.do_get(fl.Ticket(b"\xff")).read_all(),
            lambda: list(client.do_action(("CreatePreparedStatement", b"x"))),
            lambda: list(client.do_action("Nothing")),
        )
        for call in calls:
            with pytest.raises(fl.FlightServerError, match="not a command of Flight SQL"):
                call()
        with socket.create_connection(server.address) as raw:
            raw.sendall(b"GET / HTTP/1.1\r\n\r\n" * 100)
            raw.settimeout(10)
            while raw.recv(65_536):
                pass
        assert [name for name, _ in client.list_actions()] == ["CreatePreparedStatement", "ClosePreparedStatement"]
        assert not server.service.status()["alarms"]


def test_connections_are_bounded(tmp_path: Path, connect: Connect) -> None:
    with answering(tmp_path, "flight.connections_max=2") as server:
        first, second = connect(server), connect(server)
        for each in (first, second):
            assert asked(each, COUNT).num_rows == 1
        with socket.create_connection(server.address) as third:
            third.settimeout(10)
            assert third.recv(1) == b"", "closed at once"
        assert server.status()["connections"] == 2
        first.close()
        until(lambda: server.status()["connections"] == 1)
        assert asked(connect(server), COUNT).num_rows == 1


def test_calls_are_bounded(tmp_path: Path, connect: Connect) -> None:
    with answering(tmp_path, "flight.connections_max=1", "query.timeout_s=30") as server:
        connection = connect(server)
        cursor = connection.cursor()
        asking, errors = in_thread(cursor)
        until(lambda: server.service._queries._places._value < server.service.config.query.at_once_max)
        with pytest.raises(dbapi.Error, match="too many calls at once: calls_max=1"):
            asked(connection, COUNT)
        begun = time.monotonic()
        cursor.adbc_cancel()
        asking.join()
        cursor.close()
        assert len(errors) == 1
        until(lambda: server.status()["calls"] == 0)
        assert time.monotonic() - begun < 10, "cancelling broke the query off"
        assert asked(connection, COUNT).num_rows == 1


def test_requests_are_bounded_and_logged(tmp_path: Path, connect: Connect) -> None:
    with answering(tmp_path, "http.requests_per_s_max=1", "http.access_log=access.log") as server:
        log = open_log(server.service.config.http, tmp_path)
        server._calls._log = log
        with fl.connect(server.url) as client:
            client.list_actions()
            client.list_actions()
            with pytest.raises(fl.FlightUnavailableError, match="too many calls a second"):
                client.list_actions()
    lines = [json.loads(line) for line in (tmp_path / "access.log").read_text().splitlines()]
    assert [(line["client"], line["method"], line["path"], line["status"]) for line in lines] == [
        ("127.0.0.1", "ListActions", "flight", status) for status in ("ok", "ok", "error")
    ]


def test_too_many_held_results_are_refused(tmp_path: Path, connect: Connect) -> None:
    with answering(tmp_path) as server:
        connection = connect(server)
        server.results.held._most = 10
        with pytest.raises(dbapi.Error, match="too many results are held at once"):
            asked(connection, "select * from range(100)")
        server.results.held._most = 1 << 20
        assert asked(connection, "select * from range(100)").num_rows == 100
        assert server.results.held._now == 0


def test_a_bug_ends_its_call_and_is_noted(tmp_path: Path, connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    with answering(tmp_path) as server:
        bugs: list[Any] = []
        monkeypatch.setattr(server.service, "note_bug", lambda where, error: bugs.append((where, type(error))))
        with monkeypatch.context() as patch:
            patch.setattr(server.results, "columns", lambda *_: 1 // 0)
            with pytest.raises(dbapi.Error, match="a bug: ZeroDivisionError") as caught:
                asked(connect(server), COUNT)
        assert "Traceback" not in str(caught.value)
        assert bugs == [("flight", ZeroDivisionError)]
        assert asked(connect(server), COUNT).num_rows == 1


def test_it_stops_while_clients_read(tmp_path: Path, connect: Connect) -> None:
    with answering(tmp_path, "query.timeout_s=60") as server:
        ids = range(10, 200_010)
        server.service.push(
            "orders", pa.table({"id": ids, "customer": ["c" * 200] * len(ids), "amount": [900] * len(ids)})
        )
        until_processed(server.service)
        with fl.connect(server.url) as client:
            cursor = connect(server).cursor()
            ticket = ticket_of(client, "select * from large")
            reader = client.do_get(ticket)
            reader.read_chunk()  # and no more
            until(lambda: server.service.leases.count == 1)
            asking, errors = in_thread(cursor)
            until(lambda: server.status()["calls"] == 2)
            begun = time.monotonic()
            server.stop()
            assert time.monotonic() - begun < 8
            with pytest.raises((fl.FlightUnavailableError, fl.FlightInternalError, fl.FlightCancelledError)):
                reader.read_all()
            asking.join(10)
            assert len(errors) == 1
            cursor.close()
        until(lambda: server.service.leases.count == 0)
        assert server.results.held._now == 0
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(server.address)


def ticket_of(client: Any, sql: str) -> Any:
    descriptor = fl.FlightDescriptor.for_command(m.packed(m.message("CommandStatementQuery", query=sql)))
    return client.get_flight_info(descriptor).endpoints[0].ticket


def test_a_client_that_leaves_gives_its_lease_back(tmp_path: Path) -> None:
    with answering(tmp_path) as server:
        ids = range(10, 200_010)
        server.service.push(
            "orders", pa.table({"id": ids, "customer": ["c" * 200] * len(ids), "amount": [900] * len(ids)})
        )
        until_processed(server.service)
        with fl.connect(server.url) as client:
            client.do_get(ticket_of(client, "select * from large")).read_chunk()
            until(lambda: server.service.leases.count == 1)
        until(lambda: server.service.leases.count == 0 and server.status()["calls"] == 0)
        assert server.status()["connections"] == 0


def test_a_port_in_use_gives_one_clear_error() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(UnavailableError, match=f"the address is in use: host=127.0.0.1 port={port}") as caught:
            bind_flight(FlightSection(port=port), has_tokens=False)
        assert "[flight]" in str(caught.value.hint)


def test_settings_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert bind_flight(FlightSection(), has_tokens=False) is None
    with pytest.raises(ConfigError, match="without a token"):
        bind_flight(FlightSection(port=0, host="0.0.0.0"), has_tokens=False)
    for port in (-1, 65_536):
        with pytest.raises(ConfigError, match="not a port"):
            FlightSection(port=port)
    with pytest.raises(ConfigError, match="connections_max"):
        FlightSection(port=0, connections_max=0)
    monkeypatch.setitem(sys.modules, "google.protobuf", None)
    with pytest.raises(ConfigError, match=r"not installed: package=google\.protobuf") as caught:
        bind_flight(FlightSection(port=0), has_tokens=False)
    assert "dbsp-engine[flight]" in str(caught.value.hint)

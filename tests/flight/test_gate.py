"""The gate before Arrow's server, with a server that sends more than a client reads."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from dbsp.coordinator.flight import gate as gates
from dbsp.coordinator.flight.gate import FlightGate
from tests.open_sockets import none_left_open
from tests.postgres.test_follow import until


@contextmanager
def stalled() -> Iterator[tuple[FlightGate, socket.socket, socket.socket]]:
    """A gate, a client that reads nothing, and the server's side, which could send no more."""
    bound, inner = socket.create_server(("127.0.0.1", 0)), socket.socket(socket.AF_UNIX)
    gate = FlightGate(bound, connections_max=2, tls=None, handshake_timeout_s=5)
    with inner:
        inner.bind(str(gate.inner))
        inner.listen()
        gate.start()
        with socket.create_connection(bound.getsockname()) as client:
            server = inner.accept()[0]
            with server:
                server.settimeout(0.5)
                with pytest.raises(OSError):  # noqa: PT011 - a time-out, or the gate has closed it
                    server.sendall(bytes(1 << 26))
                yield gate, client, server
        gate.stop()


def test_no_socket_stays_open_when_it_stops() -> None:
    with none_left_open(), stalled() as (gate, client, _server):
        gate.stop()
        with suppress(ConnectionResetError):
            while client.recv(1 << 20):
                pass


def test_what_the_server_sent_arrives_after_its_end() -> None:
    with none_left_open(), stalled() as (gate, client, server):
        server.shutdown(socket.SHUT_WR)
        while client.recv(1 << 20):
            pass
        until(lambda: gate.connections == 0)


def test_a_client_that_reads_nothing_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gates, "STALLED_S", 0.2)
    with none_left_open(), stalled() as (gate, _client, _server):
        until(lambda: gate.connections == 0)

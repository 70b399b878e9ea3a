"""A proxy between client and broker that reads Kafka's frames and can drop an answer or hold a request back.

It stands at the broker's advertised address for one client: answers that name the broker's port are rewritten to the
proxy's (metadata, and where a transaction's coordinator is), so that every connection of the client comes through here.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable

END_TXN = 26


class Proxy:
    """Listens on a port of its own; `on_request` is called with (api key, frame) and says what to do with the request."""

    def __init__(self, broker_port: int) -> None:
        self._broker_port = broker_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.address = f"127.0.0.1:{self.port}"
        self.drop_answer_of: Callable[[int], bool] = lambda _: False
        self.hold: Callable[[int], bool] = lambda _: False
        self.cut_when_holding = False
        self.held: list[tuple[socket.socket, bytes]] = []
        self.dropped = threading.Event()
        self.holding = threading.Event()
        self._sockets: list[socket.socket] = [self._listener]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._broker_port))
            self._sockets += [client, server]
            dropping: set[int] = set()
            threading.Thread(target=self._requests, args=(client, server, dropping), daemon=True).start()
            threading.Thread(target=self._answers, args=(client, server, dropping), daemon=True).start()

    def _requests(self, client: socket.socket, server: socket.socket, dropping: set[int]) -> None:
        while (frame := _frame(client)) is not None:
            api, _, correlation = struct.unpack_from(">hhi", frame, 4)
            if self.hold(api):
                self.held.append((server, frame))
                self.holding.set()
                if self.cut_when_holding:
                    _close(client)
                    return
                continue
            if self.drop_answer_of(api):
                dropping.add(correlation)
            try:
                server.sendall(frame)
            except OSError:
                break
        if not any(server is held for held, _ in self.held):
            _close(server)

    def _answers(self, client: socket.socket, server: socket.socket, dropping: set[int]) -> None:
        """Pass answers on; one to be dropped closes the connection instead, after the broker has done what was asked."""
        while (frame := _frame(server)) is not None:
            if struct.unpack_from(">i", frame, 4)[0] in dropping:
                self.dropped.set()
                break
            old, new = struct.pack(">i", self._broker_port), struct.pack(">i", self.port)
            try:
                client.sendall(frame.replace(old, new))
            except OSError:
                break
        _close(client)

    def release(self) -> None:
        """Let the held requests go to the broker, late, and wait for its answers."""
        for server, frame in self.held:
            server.sendall(frame)
        self.held = []

    def close(self) -> None:
        for each in self._sockets:
            _close(each)


def _close(each: socket.socket) -> None:
    with contextlib.suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
    each.close()


def _frame(stream: socket.socket) -> bytes | None:
    head = _exactly(stream, 4)
    body = None if head is None else _exactly(stream, struct.unpack(">i", head)[0])
    return None if head is None or body is None else head + body


def _exactly(stream: socket.socket, size: int) -> bytes | None:
    data = b""
    while len(data) < size:
        try:
            more = stream.recv(size - len(data))
        except OSError:
            return None
        if not more:
            return None
        data += more
    return data

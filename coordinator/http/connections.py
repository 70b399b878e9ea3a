"""Connections: their number, and how long each may keep the service waiting.

The engine must never find the table of file descriptors full, so connections take a bounded part of it. A client that
only holds a connection open makes room for one that sends requests.

Invariants
1. At most `connections_max` connections are open, and `ACCEPTED_AT_ONCE` more within one turn of the event loop.
2. At the bound, the oldest connection without a request is closed for a new one. Requests are bounded below the
   connections (`requests_max`), so there is such a connection, unless requests for figures take the rest. Then the new
   one is refused (503).
3. A head of a request is complete `header_timeout_s` after its first byte, or after the connection was opened. That
   holds for TLS handshakes too. The protocol sees no handshake before its end, so connections are counted on
   acceptance.
4. A client is disconnected if it does not read its response for `STALLED_S`, or continues to send for
   `header_timeout_s` after it.
5. A response to unreadable bytes arrives, because all further bytes of the client are read and thrown away. To close
   a socket with unread bytes resets the connection, and the client loses the response.

Left out: the number of requests in progress, and the size of bodies (`doors`).
"""

from __future__ import annotations

import asyncio
import json
import resource
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from dbsp.coordinator.http.section import CONNECTIONS_MIN, HttpSection
from dbsp.errors import ConfigError

ACCEPTED_AT_ONCE = 64
"""The most connections that one turn of the event loop accepts."""
ENGINE_SHARE = 0.5
"""The share of the table of file descriptors that is kept for the engine."""
DESCRIPTORS_WANTED = 65_536
FIGURES_PLACES = 16
"""The number of connections that are kept for status, health and metrics."""
STALLED_S = 60.0
HEAD_BYTES_MAX = 64 << 10
TOO_LARGE_STATUS = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE.value


def _last_response(status: HTTPStatus, code: str, message: str, hint: str | None, *headers: str) -> bytes:
    """Return the bytes of a refusal after which the connection is closed."""
    body = json.dumps({"error": {"code": code, "message": message, "hint": hint}})
    lines = (
        f"HTTP/1.1 {status.value} {status.phrase}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
    )
    return "\r\n".join([*lines, *headers, "Connection: close", "", body]).encode()


FULL = _last_response(
    HTTPStatus.SERVICE_UNAVAILABLE, "overloaded", "too many connections", "ask again later", "Retry-After: 1"
)
LATE = _last_response(HTTPStatus.REQUEST_TIMEOUT, "unavailable", "the head of the request did not arrive in time", None)
TOO_LARGE = _last_response(
    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "config",
    f"the head of the request, with its address, is longer than {HEAD_BYTES_MAX} bytes", "send a long query as a body",
)  # fmt: skip
UNREADABLE = _last_response(HTTPStatus.BAD_REQUEST, "config", "the request is no HTTP/1.1", None)


def raise_descriptor_limit() -> None:
    """Let this process open as many files as the system allows, up to `DESCRIPTORS_WANTED`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS_WANTED if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_WANTED)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def connections_max(section: HttpSection) -> int:
    """Return the bound of connections: that of the settings, or less if the system's limit of open files leaves less.

    **Errors** `ConfigError` if the limit of open files leaves too few.
    """
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        return section.connections_max
    left = int(limit * (1 - ENGINE_SHARE)) - ACCEPTED_AT_ONCE
    if left < CONNECTIONS_MIN:
        raise ConfigError(
            f"the limit of open files is too low: limit={limit} least={2 * (CONNECTIONS_MIN + ACCEPTED_AT_ONCE)}",
            "raise it with `ulimit -n 4096` before the start, or LimitNOFILE of the systemd unit",
        )
    return min(section.connections_max, left)


def requests_max(section: HttpSection) -> int:
    """Return how many requests may be in progress besides those for figures."""
    return connections_max(section) - FIGURES_PLACES


@dataclass(slots=True, eq=False)
class _Open:
    """A connection that was accepted; `protocol` is None until its TLS handshake is done."""

    accepted: _Accepted
    since_s: float
    protocol: BoundedProtocol | None = None

    @property
    def heard_s(self) -> float:
        """Return the time at which the client last sent bytes; during its TLS handshake, the time of acceptance."""
        return self.since_s if self.protocol is None else self.protocol.heard_s

    def end(self) -> None:
        """Close the connection, also during its TLS handshake."""
        if self.protocol is not None:
            self.protocol.transport.abort()
        else:
            with suppress(OSError):  # the peer has closed it already
                self.accepted.shutdown(socket.SHUT_RDWR)


class _Accepted(socket.socket):
    """The socket of an accepted connection; it reports its closing."""

    forget: Callable[[int], None] | None = None

    def _real_close(self, *args: Any) -> None:  # every way to close a socket calls this method of the standard library
        if self.forget is not None:
            self.forget(self.fileno())
        super()._real_close(*args)  # type: ignore[misc]


class Gate(socket.socket):
    """A listening socket that keeps its connections within a bound."""

    def __init__(self, section: HttpSection, inherited: int | None = None) -> None:
        """Create the gate without a socket, or with an `inherited` one."""
        most = connections_max(section)
        family = socket.AF_INET6 if ":" in section.host else socket.AF_INET
        super().__init__(family, socket.SOCK_STREAM, fileno=inherited)
        self.section, self.connections_max = section, most
        self._open: dict[int, _Open] = {}

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept the next connection for which there is room or can be made."""
        for _ in range(ACCEPTED_AT_ONCE):
            number, address = self._accept()  # type: ignore[attr-defined]
            found = _Accepted(self.family, self.type, self.proto, fileno=number)
            if len(self._open) < self.connections_max or self._made_room():
                loop = asyncio.get_running_loop()
                found.forget = self._forget
                self._open[number] = opened = _Open(found, loop.time())
                loop.call_later(self.section.header_timeout_s, self._end_handshake, number, opened)
                return found, address
            found.setblocking(False)
            with suppress(OSError):  # the peer has reset the connection: it is closed in any case
                found.send(FULL)
                found.recv(HEAD_BYTES_MAX)
            found.close()
        raise BlockingIOError

    def met(self, protocol: BoundedProtocol, transport: asyncio.Transport) -> None:
        """Record that a connection is ready for requests."""
        found = self._open.get(transport.get_extra_info("socket").fileno())
        if found is not None:
            found.protocol = protocol

    async def end_all(self) -> None:
        """Close all connections. A loop that ends before would leave their sockets open."""
        for found in list(self._open.values()):
            found.end()
        while self._open:
            await asyncio.sleep(0)

    def _forget(self, number: int) -> None:
        self._open.pop(number, None)

    def _made_room(self) -> bool:
        """Close the connection that has been idle for longest; return False if every connection has a request."""
        spared = [each for each in self._open.values() if each.protocol is None or each.protocol.is_idle]
        if not spared:
            return False
        found = min(spared, key=lambda each: each.heard_s)
        self._forget(found.accepted.fileno())
        found.end()
        return True

    def _end_handshake(self, number: int, opened: _Open) -> None:
        if self._open.get(number) is opened and opened.protocol is None:
            opened.end()


class BoundedProtocol(H11Protocol):
    """The protocol of one connection, with bounds on its times."""

    def __init__(self, gate: Gate, **parts: Any) -> None:
        """Create uvicorn's protocol, with the gate that accepted the connection."""
        super().__init__(**parts)
        self._gate = gate
        self._head: asyncio.TimerHandle | None = None
        self._stall: asyncio.TimerHandle | None = None
        self._is_refused = False
        self.heard_s = self.loop.time()

    @property
    def is_idle(self) -> bool:
        """Return whether no request is in progress: its head is not complete, or its response or refusal is sent."""
        return self._is_refused or self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the time limit of the request's head."""
        super().connection_made(transport)
        self._gate.met(self, transport)
        self._watch_head()

    def data_received(self, data: bytes) -> None:
        """Receive bytes; those after a refused head are thrown away."""
        self.heard_s = self.loop.time()
        if self._is_refused:
            return
        super().data_received(data)
        self._watch_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the time limits."""
        super().connection_lost(exc)
        for timer in (self._head, self._stall):
            if timer is not None:
                timer.cancel()

    def pause_writing(self) -> None:
        """Begin to wait for a client that does not read."""
        super().pause_writing()
        self._stall = self.loop.call_later(STALLED_S, self.transport.abort)

    def resume_writing(self) -> None:
        """Stop waiting for the client."""
        super().resume_writing()
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - uvicorn's signature
        """Refuse bytes that h11 cannot read, and let the client read that; uvicorn calls this as it handles the error.

        A route that still waits for a body gets the error of a disconnected client.
        """
        if not self.is_idle:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
            if self.cycle.response_started:
                self.transport.close()
                return
        error = sys.exception()
        is_large = isinstance(error, h11.RemoteProtocolError) and error.error_status_hint == TOO_LARGE_STATUS
        self._is_refused = True
        self.transport.write(TOO_LARGE if is_large else UNREADABLE)
        if self.transport.can_write_eof():
            self.transport.write_eof()

    def eof_received(self) -> None:
        """Close the connection after a refused head: the client has sent all."""
        if self._is_refused:
            self.transport.close()

    def _watch_head(self) -> None:
        """Start the time limit of a head unless one is complete; bytes after a response begin a new head."""
        if not self.is_idle and self._head is not None:
            self._head.cancel()
            self._head = None
        elif self.is_idle and self._head is None and not self.transport.is_closing():
            self._head = self.loop.call_later(self._gate.section.header_timeout_s, self._end_head)

    def _end_head(self) -> None:
        if self.is_idle and not self.transport.is_closing():
            if not self._is_refused and self.cycle is None and self.conn.their_state is h11.IDLE:
                self.transport.write(LATE)
                self.transport.close()
            else:
                self.transport.abort()

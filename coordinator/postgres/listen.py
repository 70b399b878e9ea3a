"""Listen for PostgreSQL's protocol: sessions run on one thread, in a bounded number.

The port is bound before any other resource is touched, as HTTP's is.

Invariants
1. At most `connections_max` sessions are open, and `STARTING_MAX` connections more. These further ones have not sent
   their startup message, or have not read their last messages.
2. No bytes of a client end the thread: an error ends one session.
3. After `stop` no socket is open.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from dbsp.coordinator.http.access_log import AccessLog
from dbsp.coordinator.http.listen import listen_beside
from dbsp.coordinator.http.tls import certificate_of, listening
from dbsp.coordinator.http.tokens import tokens_of
from dbsp.coordinator.postgres.backend import Backend
from dbsp.coordinator.postgres.connection import PostgresConnection
from dbsp.coordinator.postgres.refusals import PostgresRefusal
from dbsp.coordinator.postgres.section import PostgresSection
from dbsp.coordinator.postgres.session import TOO_MANY, PostgresSession
from dbsp.coordinator.service import Service
from dbsp.coordinator.settings.extras import refuse_missing
from dbsp.reloading import Reloadable

QUEUE = 128
STARTING_MAX = 64
STOP_TIMEOUT_S = 10.0


def bind_postgres(section: PostgresSection, *, has_tokens: bool, inherited: int | None = None) -> socket.socket | None:
    """Listen on the configured address, or go on with an `inherited` socket; None where no port is set.

    **Errors** `UnavailableError` if it is taken. `ConfigError` if it is not of this host, if strangers could read without
    a token, or if sqlglot is not installed.
    """
    if section.port is None:
        return None
    refuse_missing("postgres")
    found = listen_beside(section, section.port, QUEUE, has_tokens=has_tokens, inherited=inherited)
    if inherited is None:
        found.setblocking(False)
    return found


class PostgresServer:
    """A server of PostgreSQL sessions on a bound socket, with a thread of its own."""

    def __init__(self, service: Service, bound: socket.socket, log: AccessLog | None = None) -> None:
        """Create the server, which serves no session before `start`."""
        config = service.config
        self._service, self._bound = service, bound
        self._tokens = tokens_of(config.http, config.folder)
        self.certificate = certificate_of(config.http, config.folder)
        self._tls = None if self.certificate is None else listening(self.certificate)
        self._backend = Backend(service, self._tokens.value, log)
        self._sessions: dict[int, PostgresSession] = {}
        self._running: dict[asyncio.Task[None], PostgresSession] = {}
        self._open: set[PostgresConnection] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._started = threading.Event()
        self._ended: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._serve, name="dbsp-postgres", daemon=True)
        host, port = bound.getsockname()[:2]
        self.address: tuple[str, int] = (str(host), int(port))

    @property
    def reloadables(self) -> tuple[Reloadable[Any], ...]:
        """Return the certificate and tokens that are read again when their files change."""
        return (self._tokens,) if self.certificate is None else (self._tokens, self.certificate)

    @property
    def url(self) -> str:
        """Return the URL of the service."""
        host, port = self.address
        return f"postgresql://{f'[{host}]' if ':' in host else host}:{port}/{self._backend.database}"

    def status(self) -> Mapping[str, Any]:
        """Return the entry of the protocol in the service's status."""
        return {
            "url": self.url,
            "sessions": len(self._sessions),
            "connections_max": self._service.config.postgres.connections_max,
        }

    def start(self) -> None:
        """Serve sessions from now on."""
        self._thread.start()
        self._started.wait()

    def stop(self) -> None:
        """End all sessions with an error message, cancel running statements, and close the sockets."""
        loop, ended = self._loop, self._ended
        if loop is not None and ended is not None and self._thread.is_alive():
            with suppress(RuntimeError):  # the thread has already ended
                loop.call_soon_threadsafe(ended.set)
            self._thread.join(STOP_TIMEOUT_S)
        self._bound.close()

    def _serve(self) -> None:
        asyncio.run(self._listen())

    async def _listen(self) -> None:
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        server = await self._loop.create_server(
            lambda: PostgresConnection(self._met, self._open.discard), sock=self._bound, backlog=QUEUE
        )
        self._started.set()
        await self._ended.wait()
        server.close()
        for task, session in list(self._running.items()):
            session.end() if self._sessions.get(session.pid) is session else task.cancel()
        if self._running:
            _, late = await asyncio.wait(self._running, timeout=STOP_TIMEOUT_S / 2)
            for task in late:
                task.cancel()
        for connection in self._open:
            connection.abandon()
        while self._open:
            await asyncio.sleep(0)  # the loop closes the sockets

    def _met(self, connection: PostgresConnection) -> None:
        """Begin the session of a new connection, unless too many sessions are starting."""
        self._open.add(connection)
        if len(self._open) - len(self._sessions) > STARTING_MAX:
            connection.close()
            return
        connection.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._backend.use(self._tokens.value)
        session = PostgresSession(connection, self._backend, self._tls, self._admit, self._cancel)
        task = asyncio.get_running_loop().create_task(session.run())
        self._running[task] = session
        task.add_done_callback(lambda done: self._leave(done, session))

    def _admit(self, session: PostgresSession) -> None:
        most = self._service.config.postgres.connections_max
        if len(self._sessions) >= most:
            raise PostgresRefusal(
                TOO_MANY,
                f"too many connections: connections_max={most}",
                "close some, or raise `connections_max` in [postgres]",
            )
        while session.pid in self._sessions:
            session.pid += 1
        self._sessions[session.pid] = session

    def _leave(self, task: asyncio.Task[None], session: PostgresSession) -> None:
        del self._running[task]
        if self._sessions.get(session.pid) is session:
            del self._sessions[session.pid]
        if not task.cancelled() and task.exception() is not None:
            self._service.note_bug("postgres", task.exception() or RuntimeError())

    def _cancel(self, pid: int, secret: int) -> None:
        found = self._sessions.get(pid)
        if found is not None and found.secret == secret and found.runner is not None:
            found.runner.cancel()

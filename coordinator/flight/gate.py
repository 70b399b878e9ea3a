"""The listening socket of Flight SQL: accept a bounded number of connections, end TLS, and forward the bytes to Arrow's server.

Arrow's server binds its own port, keeps the certificate with which it began, and knows no bound on connections. So
Arrow's server listens at a socket in a private folder, and this gate forwards to it. The port is bound before any other
resource is touched, and a successor can inherit it, as HTTP's.

Invariants
1. At most `connections_max` connections are open, those in their TLS handshake included. Further ones are closed at
   once.
2. No bytes of a client end the thread: an error ends one connection.
3. A side that does not read for `STALLED_S` is disconnected.
4. After `stop` no socket is open.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import tempfile
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path

from dbsp.coordinator.http.connections import STALLED_S

BUFFER_BYTES = 1 << 20
ACCEPT_AGAIN_S = 1.0
STOP_TIMEOUT_S = 10.0
INNER = "flight"


class FlightGate:
    """Connections between a bound socket and Arrow's server, on a thread of their own."""

    def __init__(
        self, bound: socket.socket, *, connections_max: int, tls: ssl.SSLContext | None, handshake_timeout_s: float
    ) -> None:
        """Create the gate, which accepts no connection before `start`; `inner` is the path of the server's socket."""
        self._bound, self._connections_max = bound, connections_max
        self._tls, self._handshake_timeout_s = tls, handshake_timeout_s
        self._folder = tempfile.TemporaryDirectory(prefix="dbsp-flight-")
        self.inner = Path(self._folder.name) / INNER
        self._open: dict[asyncio.Task[None], str] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._accept()), name="dbsp-flight", daemon=True)
        self._main: asyncio.Task[None] | None = None

    @property
    def connections(self) -> int:
        """Return the number of open connections."""
        return len(self._open)

    def start(self) -> None:
        """Accept connections from now on; those that arrived since the port was bound have waited."""
        self._thread.start()
        self._started.wait()

    def stop(self) -> None:
        """Close all connections and the port."""
        loop, main = self._loop, self._main
        if loop is not None and main is not None and self._thread.is_alive():
            with suppress(RuntimeError):  # the thread has already ended
                loop.call_soon_threadsafe(main.cancel)
            self._thread.join(STOP_TIMEOUT_S)
        self._bound.close()
        self._folder.cleanup()

    async def _accept(self) -> None:
        self._loop, self._main = asyncio.get_running_loop(), asyncio.current_task()
        self._bound.setblocking(False)
        self._started.set()
        try:
            while True:
                try:
                    client, address = await self._loop.sock_accept(self._bound)
                except OSError:  # too many open files: some may be closed soon
                    await asyncio.sleep(ACCEPT_AGAIN_S)
                    continue
                if len(self._open) >= self._connections_max:
                    client.close()
                    continue
                task = self._loop.create_task(self._carry(client, f"{address[0]}:{address[1]}"))
                self._open[task] = address[0]
                task.add_done_callback(partial(self._forget, client))
        except asyncio.CancelledError:
            for task in list(self._open):
                task.cancel()
            if self._open:
                await asyncio.wait(list(self._open), timeout=STOP_TIMEOUT_S / 2)

    def _forget(self, client: socket.socket, task: asyncio.Task[None]) -> None:
        del self._open[task]
        client.close()  # a task that is cancelled before it began has not done so

    async def _carry(self, client: socket.socket, address: str) -> None:
        """Carry the bytes of one connection both ways until a side ends."""
        writers: list[asyncio.StreamWriter] = []
        try:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            outer, to_client = await self._outer(client)
            writers.append(to_client)
            inner, to_server = await asyncio.open_unix_connection(sock=await self._inner(address), limit=BUFFER_BYTES)
            writers.append(to_server)
            ways = {asyncio.ensure_future(_copy(outer, to_server)), asyncio.ensure_future(_copy(inner, to_client))}
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
            async with asyncio.timeout(STALLED_S):
                await _flush(writers)
        except (OSError, asyncio.CancelledError):
            pass  # the client left, does not read, its handshake failed, or the service ends
        finally:
            for writer in writers:
                writer.transport.abort()

    async def _outer(self, client: socket.socket) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=BUFFER_BYTES)
        protocol = asyncio.StreamReaderProtocol(reader)
        timeout_s = None if self._tls is None else self._handshake_timeout_s
        transport, _ = await loop.connect_accepted_socket(
            lambda: protocol, client, ssl=self._tls, ssl_handshake_timeout=timeout_s
        )
        return reader, asyncio.StreamWriter(transport, protocol, reader, loop)

    async def _inner(self, address: str) -> socket.socket:
        """Return a connection to Arrow's server, whose socket is named by the client's address, so that the server knows it."""
        made = socket.socket(socket.AF_UNIX)
        made.setblocking(False)
        name = self.inner.with_name(address)
        try:
            made.bind(str(name))
            await asyncio.get_running_loop().sock_connect(made, str(self.inner))
        except BaseException:
            made.close()
            raise
        finally:
            name.unlink(missing_ok=True)
        return made


def client_of(peer: str) -> str:
    """Return the client's address from the name by which Arrow's server knows its connection.

    **Example**

    >>> client_of("unix:/tmp/dbsp-flight-x/127.0.0.1:5555")
    '127.0.0.1'
    """
    return peer.rpartition("/")[2].rpartition(":")[0]


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while data := await source.read(BUFFER_BYTES):
        target.write(data)
        async with asyncio.timeout(STALLED_S):
            await target.drain()


async def _flush(writers: list[asyncio.StreamWriter]) -> None:
    """Close each side once it has read what was written to it."""
    for writer in writers:
        writer.close()
    for writer in writers:
        await writer.wait_closed()

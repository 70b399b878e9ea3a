"""The bytes of a connection: bounded reads, writes that wait a bounded time, and the change to TLS between two messages."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import cast

from dbsp.coordinator.http.connections import STALLED_S
from dbsp.coordinator.postgres.messages import (
    HEAD,
    MESSAGE_BYTES_MAX,
    STARTUP_BYTES_MAX,
    First,
    Message,
    ProtocolError,
    decode,
    decode_startup,
)

SIZE_BYTES = 4
"""The bytes of a message's size, which counts them."""
READ_AHEAD_BYTES_MAX = 1 << 16
"""While more bytes than this wait to be processed, the connection is not read."""


class Gone(Exception):  # noqa: N818 - it is no fault
    """The client has disconnected, or does not read its results."""


class PostgresConnection(asyncio.Protocol):
    """A connection: `message` reads, `write` and `drain` write. `on_gone` is called once when the client leaves.

    `lost` is called once when its socket is closed, which may be later.
    """

    def __init__(
        self, met: Callable[[PostgresConnection], None], lost: Callable[[PostgresConnection], None] = lambda _: None
    ) -> None:
        """Call `met` when the connection is made, and `lost` when it is closed."""
        self._met, self._lost = met, lost
        self._loop = asyncio.get_running_loop()
        self._buffer = bytearray()
        self._news, self._writable = asyncio.Event(), asyncio.Event()
        self._writable.set()
        self._transport: asyncio.Transport | None = None
        self.gone = False
        self.on_gone: Callable[[], None] = lambda: None
        self.address = ""

    # --- what asyncio calls -------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the client's address."""
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.address = str(peer[0]) if peer else ""
        self._met(self)

    def data_received(self, data: bytes) -> None:
        """Buffer the bytes, and pause reading while many wait."""
        self._buffer += data
        self._news.set()
        if len(self._buffer) > READ_AHEAD_BYTES_MAX:
            self.transport.pause_reading()

    def eof_received(self) -> bool:
        """Treat the end of the input as a disconnected client."""
        self._leave()
        return False

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        """Note that the client has disconnected, and that the socket is closed."""
        self._leave()
        self._lost(self)

    def pause_writing(self) -> None:
        """Begin to wait for the client to read."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Stop waiting for the client."""
        self._writable.set()

    def _leave(self) -> None:
        if not self.gone:
            self.gone = True
            self._news.set()
            self._writable.set()
            self.on_gone()

    # --- what a session calls -----------------------------------------------------------------------------------

    @property
    def transport(self) -> asyncio.Transport:
        """Return the transport, which a TLS handshake replaces."""
        assert self._transport is not None  # noqa: S101 - a session begins with `connection_made`
        return self._transport

    async def first(self) -> First:
        """Read the startup message, which has no kind byte.

        **Errors** `ProtocolError` for bytes that are none, `Gone` when the client leaves.
        """
        size = int.from_bytes(await self._take(SIZE_BYTES), "big")
        if not 2 * SIZE_BYTES <= size <= STARTUP_BYTES_MAX:
            raise ProtocolError(f"not a first message: bytes={size}")
        return decode_startup(await self._take(size - SIZE_BYTES))

    async def message(self, bytes_max: int = MESSAGE_BYTES_MAX) -> Message:
        """Read the next message.

        **Errors** `ProtocolError` for bytes that are none, `Gone` when the client leaves.
        """
        kind, size = HEAD.unpack(await self._take(HEAD.size))
        if not SIZE_BYTES <= size <= bytes_max:
            raise ProtocolError(f"a message is too long: bytes={size} bytes_max={bytes_max}")
        return decode(kind, await self._take(size - SIZE_BYTES))

    async def _take(self, count: int) -> bytes:
        while len(self._buffer) < count:
            if self.gone:
                raise Gone
            self._news.clear()
            self.transport.resume_reading()
            await self._news.wait()
        found = bytes(self._buffer[:count])
        del self._buffer[:count]
        return found

    @property
    def is_empty(self) -> bool:
        """Return whether nothing waits to be read."""
        return not self._buffer

    def write(self, data: bytes) -> None:
        """Send bytes to the client."""
        if not self.gone:
            self.transport.write(data)

    async def drain(self) -> None:
        """Wait until the client has read enough; disconnect a client that does not read in time.

        **Errors** `Gone`.
        """
        try:
            async with asyncio.timeout(STALLED_S):
                await self._writable.wait()
        except TimeoutError:
            self.transport.abort()
            raise Gone from None
        if self.gone:
            raise Gone

    async def encrypt(self, context: ssl.SSLContext, seconds: float) -> None:
        """Change the connection to TLS. **Errors** `OSError` if the handshake fails or takes too long."""
        try:
            found = await self._loop.start_tls(
                self.transport, self, context, server_side=True, ssl_handshake_timeout=seconds
            )
        except BaseException:
            self._lost(self)  # asyncio closes the socket, but calls no `connection_lost`
            raise
        if found is None:
            raise Gone
        self._transport = found

    def abandon(self) -> None:
        """End the connection, whatever the client has not read yet."""
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """Close the connection once all bytes are sent, or after `STALLED_S`; the call itself does not wait."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.close()
            if self._transport.get_write_buffer_size():
                self._loop.call_later(STALLED_S, self._transport.abort)
        self._leave()

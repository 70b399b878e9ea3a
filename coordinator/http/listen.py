"""The service's socket: bind the address, run the application in a thread, publish the address (`coordinator.json`).

The port is bound before any other resource is touched. So a second coordinator on the same address stops with one
clear error, instead of fencing the first.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import socket
import threading
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn

from dbsp.coordinator.address import ADDRESS_FILE, read_address, write_whole
from dbsp.coordinator.http.connections import ACCEPTED_AT_ONCE, HEAD_BYTES_MAX, BoundedProtocol, Gate
from dbsp.coordinator.http.section import LOOPBACK, HttpSection
from dbsp.coordinator.http.tls import certificate_of, listening
from dbsp.coordinator.settings.address_section import AddressSection
from dbsp.disk import alone_in, make_folder
from dbsp.errors import ConfigError, UnavailableError

STOP_TIMEOUT_S = 10.0
QUEUE = 1024
"""The most connections that wait to be accepted."""


def bind(section: HttpSection, inherited: int | None = None) -> Gate:
    """Listen on the configured address, or go on with an `inherited` socket.

    **Errors** `UnavailableError` if the address is taken, `ConfigError` if it is not of this host.
    """
    found = Gate(section, inherited)
    if inherited is None:
        listen_at(found, "http", section.host, section.port, QUEUE)
    return found


def listen_at(found: socket.socket, section: str, host: str, port: int, queue: int) -> None:
    """Bind a socket to the address of a section of the settings, and listen; close it if that fails.

    **Errors** `UnavailableError` if the address is taken, `ConfigError` if it is not of this host.
    """
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host, port))
        found.listen(queue)
    except OSError as error:
        found.close()
        place = f"host={host} port={port}"
        if error.errno == errno.EADDRINUSE:
            hint = f"stop what listens there, or set another `port` in [{section}] (0: any free one)"
            raise UnavailableError(f"the address is in use: {place}", hint) from None
        raise ConfigError(f"cannot listen: {place} error={error.strerror}", f"fix `host` in [{section}]") from None


def listen_beside(
    section: AddressSection, port: int, queue: int, *, has_tokens: bool, inherited: int | None = None
) -> socket.socket:
    """Listen for another protocol on the host of its section, or go on with an `inherited` socket.

    **Errors** `UnavailableError` if the address is taken. `ConfigError` if it is not of this host, or if strangers could read
    without a token.
    """
    host = section.host
    if host not in LOOPBACK and not has_tokens:
        raise ConfigError(
            f"refusing to listen beyond this host without a token: {section.SECTION}.host={host}",
            "set `read_token` in [http] or DBSP_HTTP_READ_TOKEN, or listen on 127.0.0.1",
        )
    if inherited is not None:
        return socket.socket(fileno=inherited)
    found = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    listen_at(found, section.SECTION, host, port, queue)
    return found


class _Uvicorn(uvicorn.Server):
    """Uvicorn's server, with a long queue of connections of which it accepts a bounded number at once."""

    loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept."""
        await super().startup(sockets)
        self.loop = asyncio.get_running_loop()
        for found in sockets or ():
            found.listen(QUEUE)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Finish the requests in progress, then cut off clients that do not read, or are in their handshake."""
        await super().shutdown(sockets)
        for gate in sockets or ():
            if isinstance(gate, Gate):
                await gate.end_all()

    def close_listeners(self) -> None:
        """Accept no more connections; called on any thread."""
        if self.loop is not None:
            for server in self.servers:
                self.loop.call_soon_threadsafe(server.close)


class HttpServer:
    """An application on a bound socket, which serves requests on a thread of its own."""

    def __init__(
        self, app: Any, bound: Gate, data_dir: Path, who: Mapping[str, str] | None = None, *, folder: Path = Path()
    ) -> None:
        """Create the server, which serves no request before `start`.

        The address file also gets `who`: the pipeline's name and run. Paths of the settings are relative to `folder`.
        """
        self._who = dict(who or {})
        self.certificate = certificate = certificate_of(bound.section, folder)
        config = uvicorn.Config(
            app, log_level="error", access_log=False, lifespan="off", timeout_graceful_shutdown=2, loop="asyncio",
            http=partial(BoundedProtocol, bound),  # type: ignore[arg-type]  # a class with its first argument
            ws="none", backlog=ACCEPTED_AT_ONCE, server_header=False, h11_max_incomplete_event_size=HEAD_BYTES_MAX,
            ssl_context_factory=None if certificate is None else lambda _config, _default: listening(certificate),
        )  # fmt: skip
        self._server = _Uvicorn(config)
        self._bound, self._file = bound, data_dir / ADDRESS_FILE
        self._is_handed_over = False
        self._scheme = "http" if certificate is None else "https"
        self._thread = threading.Thread(target=self._serve, name="dbsp-http", daemon=True)

    @property
    def address(self) -> tuple[str, int]:
        """Return (host, port) as bound."""
        host, port = self._bound.getsockname()[:2]
        return str(host), int(port)

    @property
    def url(self) -> str:
        """Return the URL of the service."""
        host, port = self.address
        return f"{self._scheme}://[{host}]:{port}" if ":" in host else f"{self._scheme}://{host}:{port}"

    def start(self) -> None:
        """Serve requests from now on; those that arrived since the address was bound have waited."""
        self._thread.start()

    def announce(self) -> None:
        """Write the service's address: before the pipeline is claimed, and again once it is.

        Of two services that start together, the last to claim owns the pipeline. Each writes before its claim, and
        again while it holds the ledger for the claim. So the owner's last write is later than every write of the
        other.
        """
        host, port = self.address
        make_folder(self._file.parent)
        text = json.dumps({"host": host, "port": port, "url": self.url, "pid": os.getpid(), **self._who}) + "\n"
        with alone_in(self._file.parent):
            write_whole(self._file, text)

    def keep_announced(self) -> None:
        """Write the address again if the file was deleted: clients find the service by it."""
        if not self._file.exists():
            self.announce()

    def _serve(self) -> None:
        self._server.run(sockets=[self._bound])

    def hand_over(self) -> None:
        """Accept no more connections: they wait for the process that has this socket, too, and that answers at this address."""
        self._is_handed_over = True
        self._server.close_listeners()
        self._server.should_exit = True

    def stop(self) -> None:
        """Finish the requests in progress, then close; delete the address file if it is still this process's."""
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join(STOP_TIMEOUT_S)
        self._bound.close()
        if self._is_handed_over:
            return
        with alone_in(self._file.parent):
            if read_address(self._file.parent).get("pid") == os.getpid():
                self._file.unlink(missing_ok=True)

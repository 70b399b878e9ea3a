"""Listening: binds the address, runs the application in a thread of its own, tells others where (`coordinator.json`).

The port is bound before anything else is touched, so that a second coordinator on the same address stops with one clear
error instead of fencing the first.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn

from dbsp.coordinator.config import HttpSection
from dbsp.coordinator.http.address import ADDRESS_FILE, read_address, write_whole
from dbsp.errors import ConfigError, UnavailableError

STOP_TIMEOUT_S = 10.0
BACKLOG = 128


def bind(section: HttpSection) -> socket.socket:
    """Listen on the configured address; `UnavailableError` if it is taken, `ConfigError` if it is not of this host."""
    family = socket.AF_INET6 if ":" in section.host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((section.host, section.port))
        found.listen(BACKLOG)
    except OSError as error:
        found.close()
        place = f"host={section.host} port={section.port}"
        if error.errno == errno.EADDRINUSE:
            hint = "stop what listens there, or set another `port` in [http] (0: any free one)"
            raise UnavailableError(f"the address is in use: {place}", hint) from None
        raise ConfigError(f"cannot listen: {place} error={error.strerror}", "mend `host` in [http]") from None
    return found


class Server:
    """An application answering on a bound socket, on a thread of its own."""

    def __init__(self, app: Any, bound: socket.socket, data_dir: Path, who: Mapping[str, str] | None = None) -> None:
        """Nothing is answered before `start`; `who` is told with the address: the pipeline's name and run."""
        self._who = dict(who or {})
        config = uvicorn.Config(app, log_level="error", access_log=False, lifespan="off", timeout_graceful_shutdown=2)
        self._server = uvicorn.Server(config)
        self._bound, self._file = bound, data_dir / ADDRESS_FILE
        self._thread = threading.Thread(target=self._serve, name="dbsp-http", daemon=True)

    @property
    def address(self) -> tuple[str, int]:
        """(host, port) as bound."""
        host, port = self._bound.getsockname()[:2]
        return str(host), int(port)

    @property
    def url(self) -> str:
        """Where to ask."""
        host, port = self.address
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def start(self) -> None:
        """Answer from now on; what was asked since the address was bound has waited."""
        self._thread.start()

    def announce(self) -> None:
        """Write where to ask: before the pipeline is claimed, and again once it is.

        Of two services that start together the one that claims last owns the pipeline. Each writes before its claim and while it
        holds the ledger for it, so all that the other writes comes before what the owner writes last.
        """
        host, port = self.address
        self._file.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"host": host, "port": port, "url": self.url, "pid": os.getpid(), **self._who}) + "\n"
        with _alone_in(self._file.parent):
            write_whole(self._file, text)

    def keep_announced(self) -> None:
        """Write the address again if somebody deleted it: clients find the service by it."""
        if not self._file.exists():
            self.announce()

    def _serve(self) -> None:
        self._server.run(sockets=[self._bound])

    def stop(self) -> None:
        """Answer what was asked, then close; the address is forgotten if it is still ours."""
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join(STOP_TIMEOUT_S)
        self._bound.close()
        with _alone_in(self._file.parent):
            if read_address(self._file.parent).get("pid") == os.getpid():
                self._file.unlink(missing_ok=True)


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Nobody else writes or forgets an address meanwhile; the lock is the folder's, and goes with the process."""
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)

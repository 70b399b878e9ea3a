"""A network between Spark's driver and its executors that can be cut, one way or both ways, and healed.

The driver listens on 127.0.0.1 and says that it is at `HOST`, where a proxy listens on the same ports: every connection of an
executor to its driver (the endpoint that hands tasks out, takes results and heartbeats; the block manager that has broadcasts)
comes through here. A cut does not close anything: as in a network that drops packets, bytes wait, new connections hang, and
what is closed on one side is not noticed on the other. After the heal what waited arrives late.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator, Mapping

HOST = "127.0.0.9"
DRIVER = "127.0.0.1"
TO_DRIVER, TO_EXECUTORS = "to the driver", "to the executors"
BOTH_WAYS = (TO_DRIVER, TO_EXECUTORS)
_PIECE = 1 << 16


class Network:
    """Two proxied ports; `cut` and `heal` are for all connections, those to come too."""

    def __init__(self) -> None:
        """Listen, with both ways open."""
        self._listeners = [socket.create_server((HOST, 0)) for _ in range(2)]
        self._sockets: list[socket.socket] = []
        self._open = {way: threading.Event() for way in BOTH_WAYS}
        self._waiting = {way: threading.Event() for way in BOTH_WAYS}
        self.heal()
        for listener in self._listeners:
            threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def conf(self) -> Mapping[str, str]:
        """Spark's settings with which executors find their driver here."""
        driver, blocks = (str(listener.getsockname()[1]) for listener in self._listeners)
        return {
            "spark.driver.bindAddress": DRIVER,
            "spark.driver.host": HOST,
            "spark.driver.port": driver,
            "spark.driver.blockManager.port": blocks,
            "spark.port.maxRetries": "0",
        }

    def cut(self, *ways: str) -> None:
        """Nothing passes these ways any more."""
        for way in ways:
            self._waiting[way].clear()
            self._open[way].clear()

    def heal(self) -> None:
        """Everything passes, what waited first."""
        for way in BOTH_WAYS:
            self._open[way].set()

    def has_struck(self, *ways: str) -> bool:
        """Whether something has come to one of these ways since it was cut, and waits there."""
        return any(self._waiting[way].is_set() for way in ways)

    def close(self) -> None:
        """Close all; threads that wait come to their end."""
        for each in (*self._listeners, *self._sockets):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        self.heal()

    def _accept(self, listener: socket.socket) -> None:
        port = listener.getsockname()[1]
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            self._sockets.append(near)
            threading.Thread(target=self._connect, args=(near, port), daemon=True).start()

    def _connect(self, near: socket.socket, port: int) -> None:
        """A connection is made when packets pass both ways."""
        for way in BOTH_WAYS:
            self._passes(way)
        try:
            far = socket.create_connection((DRIVER, port))
        except OSError:
            near.close()
            return
        self._sockets.append(far)
        for pair in ((near, far, TO_DRIVER), (far, near, TO_EXECUTORS)):
            threading.Thread(target=self._carry, args=pair, daemon=True).start()

    def _carry(self, source: socket.socket, sink: socket.socket, way: str) -> None:
        """Bytes, and the end of them, one way."""
        with contextlib.suppress(OSError):
            while piece := source.recv(_PIECE):
                self._passes(way)
                sink.sendall(piece)
        self._passes(way)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)

    def _passes(self, way: str) -> None:
        """Wait while it is cut."""
        if not self._open[way].is_set():
            self._waiting[way].set()
            self._open[way].wait()


@contextlib.contextmanager
def network() -> Iterator[Network]:
    """A network that is gone afterwards."""
    made = Network()
    try:
        yield made
    finally:
        made.close()

"""Run the process of a background worker, which answers requests on a socket until its owner ends, and leaves no files.

Run as `python -m dbsp.runtime.background.server <settings as JSON>`, with the lock of its folder as descriptor 3.

The process watches its owner by a process descriptor, which becomes readable when the owner ends for any reason. The
process then exits at once. It also exits after `IDLE_S` seconds without a request, when its socket was deleted, or on
request.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dbsp.errors import DbspError, InternalError
from dbsp.processes import find_process, leave_note
from dbsp.runtime.background.holder import Holder
from dbsp.runtime.background.place import SocketPlace, sweep
from dbsp.runtime.background.protocol import Job
from dbsp.runtime.background.wire import receive, same_user, send

IDLE_S = 600.0
_LOOK_S = 5.0
_REQUEST_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """The settings on the command line of a background worker's process."""

    folder: str
    worker: int
    owner: int
    owner_started: int
    kinds: Mapping[str, str]

    def to_json(self) -> str:
        """Return the settings as JSON for the command line."""
        return json.dumps(asdict(self))


class JobServer:
    """The server of tasks' requests."""

    def __init__(self, settings: ServerSettings) -> None:
        """Prepare to serve; nothing is answered before `serve`."""
        self._settings = settings
        self._place = SocketPlace(folder=Path(settings.folder))
        self._holder = Holder(settings.worker, settings.kinds, packs=True)
        self._heard = time.monotonic()

    def serve(self) -> None:
        """Serve requests until the owner is gone; this does not return."""
        try:
            owner = os.pidfd_open(self._settings.owner)
        except ProcessLookupError:
            self._end()
        found = find_process(self._settings.owner)
        if found is None or found.started != self._settings.owner_started:
            self._end()
        sweep()
        listener = self._listen()
        leave_note(self._place.folder, 0)
        with selectors.DefaultSelector() as selector:
            selector.register(owner, selectors.EVENT_READ)
            selector.register(listener, selectors.EVENT_READ)
            while True:
                ready = {key.fileobj for key, _ in selector.select(_LOOK_S)}
                if owner in ready or not self._wanted():
                    self._end()
                if listener in ready:
                    connection, _ = listener.accept()
                    threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _listen(self) -> socket.socket:
        with suppress(FileNotFoundError):
            Path(self._place.socket).unlink()
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        before = os.umask(0o177)
        listener.bind(self._place.socket)
        os.umask(before)
        listener.listen(64)
        return listener

    def _wanted(self) -> bool:
        return time.monotonic() - self._heard < IDLE_S and Path(self._place.socket).exists()

    def _end(self) -> None:
        """Exit at once: only caches and work in progress are lost."""
        self._place.remove()
        os._exit(0)

    def _talk(self, connection: socket.socket) -> None:
        with connection, suppress(OSError, EOFError):
            connection.settimeout(_REQUEST_S)
            if not same_user(connection):
                return
            while (request := receive(connection)) is not None:
                self._heard = time.monotonic()
                send(connection, self._answer(*request))
                self._heard = time.monotonic()

    def _answer(self, what: str, *arguments: Any) -> tuple[Any, DbspError | None]:
        try:
            return self._do(what, *arguments), None
        except DbspError as error:
            return None, error
        except Exception as error:  # noqa: BLE001 - the caller's process raises the error
            return None, InternalError(
                f"a background worker failed: request={what} error={type(error).__name__}: {error}"
            )

    def _do(self, what: str, job: Job | None = None, wait_s: float = 0.0) -> Any:
        if what == "hello":
            return os.getpid()
        if what == "close":
            self._end()
        if job is None:
            raise InternalError(f"a request without a job: request={what}")
        match what:
            case "start":
                return self._holder.start(job)
            case "wait":
                return self._holder.wait(job, wait_s)
            case "take":
                return self._holder.take(job)
            case "cancel":
                return self._holder.cancel(job)
        raise InternalError(f"not a request to a background worker: request={what}")


def main() -> None:
    """Serve with the settings of the command line."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    JobServer(ServerSettings(**json.loads(sys.argv[1]))).serve()


if __name__ == "__main__":
    main()

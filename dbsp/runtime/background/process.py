"""Background workers that are processes: how a task starts one, finds it again and talks to it.

A task never waits for a background worker to start. Until the process answers, `BackgroundLostError` says that there is
none, and the task does the work itself.

Every call is bounded in time and can be interrupted. A background worker that does not answer is killed, which costs
only time, so that a stopped process cannot hold resources that others need.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dbsp.processes import Process, notes_of_others
from dbsp.runtime.background.place import SocketPlace, find_owner, place_of
from dbsp.runtime.background.protocol import KINDS, BackgroundLostError, Job, Status, find_kind
from dbsp.runtime.background.server import ServerSettings
from dbsp.runtime.background.wire import receive, same_user, send

ANSWER_S = 5.0
_POLL_S = 0.02
_LOCK_FD = 3


class BackgroundProcess:
    """A worker's background worker as its tasks see it; implements `dbsp.runtime.background.protocol.BackgroundWorker`."""

    def __init__(self, settings: ServerSettings, place: SocketPlace) -> None:
        """Name the process; nothing is started or connected yet."""
        self._settings, self._place = settings, place
        self._children: list[int] = []

    def prepare(self) -> None:
        """Start the process, if there is none; return at once."""
        self._reap()
        lock = self._place.lock()
        if lock is None:
            return
        try:
            self._children.append(_spawn(self._settings, lock))
        finally:
            os.close(lock)

    def _reap(self) -> None:
        """Wait for ended processes that were started here, without blocking, so that the system forgets them."""
        for pid in list(self._children):
            with suppress(ChildProcessError):
                if os.waitpid(pid, os.WNOHANG) == (0, 0):
                    continue
            self._children.remove(pid)

    def ready(self, wait_s: float) -> int:
        """Start the process if necessary, and wait until it answers; return its process number."""
        deadline, pause = time.monotonic() + wait_s, threading.Event()
        while True:
            try:
                return int(self._ask(("hello",)))
            except BackgroundLostError:
                if time.monotonic() > deadline:
                    raise
            self.prepare()
            pause.wait(_POLL_S)

    def start(self, job: Job) -> None:
        """Begin the job; if no process answers, start one for the next time and raise `BackgroundLostError`."""
        try:
            self._ask(("start", job))
        except BackgroundLostError:
            self.prepare()
            raise

    def wait(self, job: Job, wait_s: float = 0.0) -> Status:
        """Return the job's status."""
        found: Status = self._ask(("wait", _named(job), wait_s), wait_s)
        return found

    def take(self, job: Job) -> Any:
        """Return the result of the job, in shared memory where it is large."""
        return find_kind(self._settings.kinds, job.kind).unpack(self._ask(("take", _named(job))))

    def cancel(self, job: Job) -> None:
        """Ask the job to end, and forget it."""
        self._ask(("cancel", _named(job)))

    def close(self) -> None:
        """End the process; do nothing if there is none."""
        with suppress(BackgroundLostError):
            self._ask(("close",))

    def _ask(self, request: tuple[Any, ...], wait_s: float = 0.0) -> Any:
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.settimeout(wait_s + ANSWER_S)
                connection.connect(self._place.socket)
                if not same_user(connection):
                    raise BackgroundLostError(f"a background worker of another user: socket={self._place.socket}")
                send(connection, request)
                answer = receive(connection)
        except TimeoutError as error:
            self._kill()
            raise BackgroundLostError(f"a background worker does not answer: worker={self._settings.worker}") from error
        except (OSError, EOFError) as error:
            raise BackgroundLostError(
                f"there is no background worker: worker={self._settings.worker} error={error}"
            ) from error
        if answer is None:
            raise BackgroundLostError(f"a background worker has ended: worker={self._settings.worker}")
        value, failure = answer
        if failure is not None:
            raise failure
        return value

    def _kill(self) -> None:
        """Kill the process whose note is in the folder."""
        with suppress(OSError):
            for note in notes_of_others(self._place.folder):
                note.end()


def _named(job: Job) -> Job:
    """Return the job without its arguments."""
    return Job(kind=job.kind, key=job.key, epoch=job.epoch)


def _spawn(settings: ServerSettings, lock: int) -> int:
    """Start the process in a session of its own, with no descriptor of this process except the lock; return its number."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)}
    command = [sys.executable, "-m", "dbsp.runtime.background.server", settings.to_json()]
    actions: list[tuple[Any, ...]] = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
        (os.POSIX_SPAWN_OPEN, 2, f"{settings.folder}/log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600),
        (os.POSIX_SPAWN_DUP2, lock, _LOCK_FD),
    ]
    return os.posix_spawn(sys.executable, command, environment, file_actions=actions, setsid=True)


@dataclass(slots=True)
class BackgroundProcesses:
    """The background workers of one run on this host, as a picklable value.

    They are `BackgroundWorkers` of `dbsp.runtime.background.protocol`.

    They end with the process `owner`: if none is given, with the executor for which this process works.
    """

    run: str
    kinds: Mapping[str, str]
    owner: Process | None
    _found: dict[int, BackgroundProcess]

    def __init__(self, run: str, kinds: Mapping[str, str] = KINDS, owner: Process | None = None) -> None:
        """Name the run; nothing is started before its first use."""
        self.run, self.kinds, self.owner, self._found = run, dict(kinds), owner, {}

    @property
    def apart(self) -> bool:
        """Return True: the background workers are separate processes."""
        return True

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the names by which another process finds the same background workers."""
        return BackgroundProcesses, (self.run, self.kinds, self.owner)

    def of(self, worker: int) -> BackgroundProcess | None:
        """Return the worker's background worker; None if no executor owns this process, or the system lacks `pidfd_open`."""
        if worker not in self._found:
            owner = (self.owner or find_owner()) if hasattr(os, "pidfd_open") else None
            if owner is None:
                return None
            place = place_of(self.run, worker, owner)
            settings = ServerSettings(
                folder=str(place.folder), worker=worker, owner=owner.pid, owner_started=owner.started, kinds=self.kinds
            )
            self._found[worker] = BackgroundProcess(settings, place)
        return self._found[worker]

    def prepare(self, worker: int) -> None:
        """Start the worker's background worker, if there is none."""
        background_worker = self.of(worker)
        if background_worker is not None:
            background_worker.prepare()

    def below(self, owner: Process | None) -> BackgroundProcesses:
        """Return the background workers of this run that end with this owner."""
        return BackgroundProcesses(self.run, self.kinds, owner)

    def close(self) -> None:
        """End the background workers that were found here."""
        for background_worker in self._found.values():
            background_worker.close()

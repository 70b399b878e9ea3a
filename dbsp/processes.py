"""Notes that writers leave beside a file, so that a stopped writer cannot block its successors for ever.

A process stopped inside an LMDB write transaction (SIGSTOP, a suspended job) holds the write lock. The wait for that lock
has no time-out; a process that died releases the lock. So a writer notes itself in a folder, as an empty file
`<pid>.<start time>.<epoch>.<number>`, and a process that may end other writers reads the notes. A process is identified by
pid and start time, because the system may have given the pid alone to another process since. Two rules say which processes
are killed:

- `end_older`: a process that raises an epoch kills the live writers noted under an older one. The epoch would refuse
  their writes anyway.
- `Writers.waiting`: where no epoch is raised first, a process that waits `STALL_S` for the lock kills the *stopped* writers.

This module needs /proc to see which processes live. Elsewhere it kills no process.
"""

from __future__ import annotations

import itertools
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

STALL_S = 2.0
STOPPED = "T"
_GONE = "ZX"
_numbers = itertools.count()


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process as /proc shows it: its start time in clock ticks since boot, and the letter of its state."""

    pid: int
    started: int
    state: str

    @property
    def name(self) -> str:
        """Return a name that no other process since boot has: pid and start time."""
        return f"{self.pid}.{self.started}"


def own_name() -> str:
    """Return the name of this process; its start time is 0 if there is no /proc."""
    return f"{os.getpid()}.{_own_start()}"


@cache
def _own_start() -> int:
    """Return when this process began, 0 if there is no /proc.

    It is read once: every write asks for it, and each system call gives the interpreter's lock away.
    """
    own = find_process(os.getpid())
    return 0 if own is None else own.started


os.register_at_fork(after_in_child=_own_start.cache_clear)


def lives(name: str) -> bool:
    """Return whether the process of this name still runs; False for a text that is not a name.

    >>> lives(own_name()), lives("0.0"), lives("work")
    (True, False, False)
    """
    pid, _, _ = name.partition(".")
    found = find_process(int(pid)) if pid.isdigit() else None
    return found is not None and found.name == name


def find_process(pid: int) -> Process | None:
    """Return the process of this number; None if no such process still runs, or if there is no /proc.

    >>> import os
    >>> find_process(os.getpid()).pid == os.getpid()
    True
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in _GONE else Process(pid=pid, started=int(fields[19]), state=fields[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """The note of one writer: its file, and the process and epoch that the file's name contains."""

    file: Path
    pid: int
    started: int
    epoch: int

    def process(self) -> Process | None:
        """Return the process that left the note; None if it has ended, even if another process has its pid now."""
        found = find_process(self.pid)
        return found if found is not None and found.started == self.started else None

    def forget(self) -> None:
        """Delete the file of the note, if it exists."""
        with suppress(FileNotFoundError):
            self.file.unlink()

    def end(self) -> bool:
        """Kill the process that left the note; return whether it was still alive."""
        if self.process() is None:
            return False
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        return True


def leave_note(folder: Path, epoch: int) -> Note:
    """Note this process as a writer of an epoch."""
    pid, started = os.getpid(), _own_start()
    file = folder / f"{pid}.{started}.{epoch}.{next(_numbers)}"
    os.close(os.open(file, os.O_CREAT | os.O_WRONLY, 0o600))
    return Note(file=file, pid=pid, started=started, epoch=epoch)


def notes_of_others(folder: Path) -> list[Note]:
    """Return the notes of other processes, sorted by name; ignore files that are no notes."""
    found = []
    for file in sorted(folder.iterdir()):
        parts = file.name.split(".")
        if len(parts) == 4 and all(part.isdigit() for part in parts):  # noqa: PLR2004 (pid, start, epoch, number)
            pid, started, epoch, _ = map(int, parts)
            if pid != os.getpid():
                found.append(Note(file=file, pid=pid, started=started, epoch=epoch))
    return found


@contextmanager
def noted(folder: Path, epoch: int) -> Iterator[None]:
    """Note this process as a writer of an epoch while the block runs."""
    note = leave_note(folder, epoch)
    try:
        yield
    finally:
        note.forget()


def end_older(folder: Path, epoch: int) -> list[int]:
    """Kill live writers noted under an epoch below this one, and delete their notes; return the pids of the killed."""
    killed = []
    for note in notes_of_others(folder):
        if note.epoch < epoch:
            if note.end():
                killed.append(note.pid)
            note.forget()
    return killed


class Writers:
    """The writers of one environment, noted in its folder `writers` from their first write to their `forget`."""

    def __init__(self, environment: Path) -> None:
        """Create the object without a note: the first write leaves the note."""
        self._folder = environment / "writers"
        self._own: Note | None = None

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Note this process while it waits for the write lock, and kill stopped writers if the wait exceeds `STALL_S`."""
        self._note()
        if self._own is None or not notes_of_others(self._folder):
            yield
            return
        begun = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(begun,), name="dbsp-writers", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            begun.set()

    def _note(self) -> None:
        """Note this process once, and delete the notes of dead ones.

        If the folder cannot be written, the process writes without a note. The same holds where there is no /proc.
        """
        if self._own is not None and self._own.pid == os.getpid() and self._own.file.exists():
            return
        if not _own_start():
            return
        with suppress(OSError):
            self._folder.mkdir(mode=0o700, exist_ok=True)
            for note in notes_of_others(self._folder):
                if note.process() is None:
                    note.forget()
            self._own = leave_note(self._folder, 0)

    def _watch(self, begun: threading.Event) -> None:
        while not begun.wait(STALL_S):
            for note in notes_of_others(self._folder):
                found = note.process()
                if found is not None and found.state == STOPPED:
                    note.end()

    def forget(self) -> None:
        """Delete the note of this process, which writes no more."""
        if self._own is not None and self._own.pid == os.getpid():
            with suppress(OSError):
                self._own.forget()
        self._own = None

"""Who writes an environment, so that a process that was stopped inside a write cannot block its successors for ever.

LMDB frees the write lock of a process that died, but not of one that is stopped (SIGSTOP, a suspended job). Each process
notes itself beside the environment before its first write. One that waits `STALL_S` for the lock looks at the others'
notes: dead ones are removed, stopped ones are killed; an owner that old would be refused by its epoch anyway. A process is known
by number and start time, so that a reused number is never mistaken. Needs /proc: elsewhere nothing is noted and nobody killed.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

STALL_S = 2.0
_STOPPED = "T"


class Writers:
    """The notes of one environment, in the folder `writers` inside it."""

    def __init__(self, environment: Path) -> None:
        """Nothing is noted before the first write."""
        self._folder = environment / "writers"
        self._own: Path | None = None

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Around the wait for the write lock: note this process, and end stopped writers if the wait is long."""
        self._note()
        if self._own is None or not any(note != self._own for note in self._folder.iterdir()):
            yield
            return
        begun = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(begun,), daemon=True)
        watcher.start()
        try:
            yield
        finally:
            begun.set()

    def _note(self) -> None:
        if self._own is not None and self._own.exists():
            return
        known = process_state(os.getpid())
        if known is None:
            return
        with suppress(OSError):
            self._folder.mkdir(exist_ok=True)
            for note in self._folder.iterdir():
                if _state_of(note) is None:
                    note.unlink(missing_ok=True)
            own = self._folder / f"{os.getpid()}-{known[1]}"
            own.touch()
            self._own = own

    def _watch(self, begun: threading.Event) -> None:
        while not begun.wait(STALL_S):
            for note in self._folder.iterdir():
                if note != self._own and _state_of(note) == _STOPPED:
                    with suppress(ProcessLookupError):
                        os.kill(int(note.name.split("-")[0]), signal.SIGKILL)

    def forget(self) -> None:
        """This process writes no more."""
        if self._own is not None:
            with suppress(OSError):
                self._own.unlink()
        self._own = None


def process_state(pid: int) -> tuple[str, str] | None:
    """(state letter, start time) of a process; None if there is none, or no /proc."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return fields[0], fields[19]


def _state_of(note: Path) -> str | None:
    """The state letter of the very process that wrote a note, None if it is gone."""
    pid, _, start = note.name.partition("-")
    if not pid.isdigit():
        return None
    found = process_state(int(pid))
    return found[0] if found is not None and found[1] == start else None

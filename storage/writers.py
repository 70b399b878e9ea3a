"""Who writes: a record per write transaction, so that a stopped writer of an older epoch can be ended.

A process stopped inside an LMDB write transaction holds its lock for ever, and waiting for that lock has no time-out. So a
writer notes (pid, start time, epoch) in a file before it begins and takes the file away when it is done; whoever raises the
epoch kills what is noted under an older one, if a live process has exactly that pid and start time. A pid alone may have
been given to somebody else since.
"""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_numbers = itertools.count()


def start_time(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; None if there is none, or no /proc to tell."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    return int(stat.rpartition(")")[2].split()[19])


@contextmanager
def noted(folder: Path, epoch: int) -> Iterator[None]:
    """Note this process as a writer of an epoch while the block runs."""
    pid = os.getpid()
    file = folder / f"{pid}.{start_time(pid) or 0}.{epoch}.{next(_numbers)}"
    os.close(os.open(file, os.O_CREAT | os.O_WRONLY, 0o600))
    try:
        yield
    finally:
        with suppress(FileNotFoundError):
            file.unlink()


def end_older(folder: Path, epoch: int) -> list[int]:
    """Kill live writers noted under an epoch below this one, and forget the dead; answers whom it killed."""
    killed: list[int] = []
    for file in sorted(folder.iterdir()):
        parts = file.name.split(".")
        if len(parts) != 4 or not all(part.isdigit() for part in parts):  # noqa: PLR2004 (pid, start, epoch, number)
            continue
        pid, started, noted_epoch = int(parts[0]), int(parts[1]), int(parts[2])
        if noted_epoch >= epoch or pid == os.getpid():
            continue
        if started and start_time(pid) == started:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)
        with suppress(FileNotFoundError):
            file.unlink()
    return killed

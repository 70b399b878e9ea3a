"""Runs a command, and ends it with all that it started when it has used its processor time."""

from __future__ import annotations

import os
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from resource import RLIMIT_CPU, setrlimit
from signal import SIGKILL
from typing import Any

LIMIT_S = 60
"""The limit of processor seconds, for all processes of a run together: so the load of the machine changes no outcome."""
LIMIT_WALL_S = 3600
"""A generous bound by the clock, for a run that uses a little processor time for ever."""
STALLED_S = 300
"""A run that uses no processor time for this many seconds is taken to wait for ever."""
POLL_S = 1.0
"""Seconds between two looks at the processor time of a run."""
TICKS_S = os.sysconf("SC_CLK_TCK")


def run_bounded(command: list[str], folder: Path, environment: dict[str, str], log: Any) -> int:
    """Run a command within `LIMIT_S` of processor time, then end all that it started.

    Return the exit code of its process: of a killed one beyond a limit.
    """

    def limit() -> None:
        setrlimit(RLIMIT_CPU, (LIMIT_S, LIMIT_S + 5))

    process = subprocess.Popen(  # noqa: S603
        command,
        cwd=folder,
        env=environment,
        stdout=log,
        stderr=log,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=limit,  # noqa: PLW1509
    )
    family = Family(process.pid)
    began = since = time.monotonic()
    used = -1.0
    while True:
        try:
            code = process.wait(timeout=POLL_S)
            break
        except subprocess.TimeoutExpired:
            seconds, now = family.seconds(), time.monotonic()
            if seconds != used:
                used, since = seconds, now
            if seconds > LIMIT_S or now - since > STALLED_S or now - began > LIMIT_WALL_S:
                code = -SIGKILL
                break
    family.kill()
    process.wait()
    return code


@dataclass(slots=True)
class Family:
    """A process that leads a session, the processes of its session, and those below them, which may lead sessions of their own.

    `started` has the start of each by its number, so that a number that the system gave to another process is not mistaken.
    """

    top: int
    started: dict[int, int] = field(default_factory=dict)

    def seconds(self) -> float:
        """Return the processor seconds of the family. A dead process counts as its parent's time once that waited for it."""
        parents, ticks, starts = {}, {}, {}
        for path in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                fields = path.read_text(errors="replace").rpartition(")")[2].split()
                pid = int(path.parent.name)
                parents[pid] = self.top if int(fields[3]) == self.top else int(fields[1])
                ticks[pid], starts[pid] = sum(map(int, fields[11:15])), int(fields[19])
        found = {pid for pid, start in self.started.items() if starts.get(pid) == start} | {self.top}
        while more := {pid for pid, parent in parents.items() if parent in found} - found:
            found |= more
        self.started = {pid: starts[pid] for pid in found if pid in starts}
        return sum(ticks[pid] for pid in self.started) / TICKS_S

    def kill(self) -> None:
        """Kill the processes of the family that are alive."""
        self.seconds()
        with suppress(ProcessLookupError):
            os.killpg(self.top, SIGKILL)
        for pid in self.started:
            with suppress(ProcessLookupError):
                os.kill(pid, SIGKILL)

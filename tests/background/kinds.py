"""Work for the background workers of the tests."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from dbsp.errors import DataError
from dbsp.runtime.background import JobKind, Task


@dataclass
class Thing:
    """Something dear; its end is seen in a file."""

    trace: str
    uses: int = 0
    closed: bool = field(default=False)

    def close(self) -> None:
        with Path(self.trace).open("a") as out:
            out.write("closed\n")


def double(_: Task, numbers: np.ndarray) -> np.ndarray:
    return numbers * 2


def fail(_: Task, message: str) -> None:
    raise DataError(message, "a hint")


def crash(_: Task) -> None:
    raise ZeroDivisionError("of a bug")


def until_cancelled(task: Task, total: int, trace: str) -> None:
    for number in range(total):
        task.report(number, total)
    while not task.cancelled.wait(0.05):
        task.report(total, total)
    Path(trace).write_text("cancelled")
    task.check()


def use(task: Task, trace: str) -> tuple[int, int]:
    thing = task.cache.get("thing", lambda: Thing(trace))
    thing.uses += 1
    return os.getpid(), thing.uses


def hang(_: Task) -> None:
    threading.Event().wait(60)


DOUBLE, FAIL, CRASH, LONG, USE, HANG = (JobKind(run=f) for f in (double, fail, crash, until_cancelled, use, hang))
KINDS = {name.lower(): f"tests.background.kinds:{name}" for name in ("DOUBLE", "FAIL", "CRASH", "LONG", "USE", "HANG")}

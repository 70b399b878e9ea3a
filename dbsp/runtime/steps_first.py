"""Give steps priority over reads of views in the same process.

A step and a read need the interpreter's lock in turn. A small step releases the lock some hundred times, at each system
call and kernel, and then waits until the read releases it. Without priority, a step of one row took twice as long during
a read.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

GIVE_WAY_S = 0.02
"""Seconds that reads wait at most for a running step before they read the next piece.

A longer step loses little by a piece. A read that waits so long for each piece of some MiB still ends within its lease.
"""


class StepsFirst:
    """The running step of a process, for which readers wait between two pieces."""

    def __init__(self) -> None:
        """Begin without a step."""
        self._idle = threading.Event()
        self._idle.set()
        self._began_s = 0.0

    @contextmanager
    def step(self) -> Iterator[None]:
        """Return a context manager in whose block readers wait between two pieces."""
        self._began_s = time.monotonic()
        self._idle.clear()
        try:
            yield
        finally:
            self._idle.set()

    def give_way(self) -> None:
        """Wait until no step runs, or the step has run for `GIVE_WAY_S`."""
        if not self._idle.is_set():
            self._idle.wait(max(0.0, self._began_s + GIVE_WAY_S - time.monotonic()))

"""Time as a parameter: the only way in which the service learns the time or waits.

Wall time is written into step records and enters no other decision; intervals use the monotonic clock (fault row 15).
"""

from __future__ import annotations

import threading
import time
from typing import Protocol


class Clock(Protocol):
    """The clocks that the event loop uses; the simulator has its own."""

    def wall_us(self) -> int:
        """Return the microseconds since 1970 by the clock of the host."""
        ...

    def monotonic_s(self) -> float:
        """Return the seconds since an arbitrary moment; the value never decreases."""
        ...

    def wait(self, wake: threading.Event, timeout_s: float) -> None:
        """Wait until `wake` is set, at most `timeout_s` seconds."""
        ...


class SystemClock:
    """The clocks of the host."""

    def wall_us(self) -> int:
        """Return the wall clock in microseconds since 1970."""
        return time.time_ns() // 1000

    def monotonic_s(self) -> float:
        """Return the monotonic clock in seconds."""
        return time.monotonic()

    def wait(self, wake: threading.Event, timeout_s: float) -> None:
        """Wait in real time until `wake` is set, at most `timeout_s` seconds."""
        wake.wait(timeout_s)

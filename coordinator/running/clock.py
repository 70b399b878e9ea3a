"""Time, handed in: the only way the service learns what time it is or waits.

Wall time goes into step records and nowhere else into decisions; intervals use the monotonic clock (fault row 15).
"""

from __future__ import annotations

import threading
import time
from typing import Protocol


class Clock(Protocol):
    """What the event loop asks of time."""

    def wall_us(self) -> int:
        """Microseconds since 1970, as the host believes."""
        ...

    def monotonic_s(self) -> float:
        """Seconds since some moment; never goes back."""
        ...

    def wait(self, wake: threading.Event, timeout_s: float) -> None:
        """Return when `wake` is set or the time is over."""
        ...


class SystemClock:
    """The host's clocks."""

    def wall_us(self) -> int:
        """The wall clock."""
        return time.time_ns() // 1000

    def monotonic_s(self) -> float:
        """The monotonic clock."""
        return time.monotonic()

    def wait(self, wake: threading.Event, timeout_s: float) -> None:
        """Wait in real time."""
        wake.wait(timeout_s)

"""A bound on the bytes of results that clients have not taken yet."""

from __future__ import annotations

import threading

from dbsp.errors import CapacityError

HELD_RESULTS = 4
"""Number of results of the largest size that an interface holds at once."""


class HeldBytes:
    """The budget of memory for the results of an interface; it may be used from any thread.

    A result counts until its client has read it, because clients may be slow and cursors stay open.
    """

    def __init__(self, bytes_max: int) -> None:
        """Begin with an unused budget of `bytes_max` bytes."""
        self._most, self._now = bytes_max, 0
        self._lock = threading.Lock()

    def take(self, size: int) -> None:
        """Reserve `size` bytes for a result. **Errors** `CapacityError` if the budget has no room."""
        with self._lock:
            if self._now + size > self._most:
                raise CapacityError(
                    f"too many results are held at once: bytes={self._now + size} bytes_max={self._most}",
                    "close cursors, read results faster, or raise `result_mb_max` in [query]",
                )
            self._now += size

    def give(self, size: int) -> None:
        """Return `size` bytes to the budget."""
        with self._lock:
            self._now -= size

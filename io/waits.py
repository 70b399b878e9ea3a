"""Which inputs wait for a system of others, for what, and since when; an input that waits is left out of the steps.

Left out: asking again, which is the input's own business, and telling anybody, which is the service's.
"""

from __future__ import annotations

import threading
import time

from dbsp.logs import Waiting

AGAIN_S = 2.0
"""How long a table that waits is left in peace before its system is asked again."""


class Waits:
    """The tables of one input log that wait. May be read from any thread.

    **State** a `Waiting` for each of them, when its system is asked again, and which of them wait for a decision instead.
    """

    def __init__(self, again_s: float = AGAIN_S) -> None:
        """Begin with no table that waits."""
        self._again_s = again_s
        self._lock = threading.Lock()
        self._found: dict[str, Waiting] = {}
        self._ask_at: dict[str, float] = {}
        self._refused: set[str] = set()

    def note(self, table: str, place: str, reason: str) -> None:
        """Note that a table waits; one that waits already keeps the time of its beginning."""
        with self._lock:
            if table not in self._refused:
                self._note(table, place, reason)

    def refuse(self, table: str, place: str, reason: str) -> None:
        """Note that a table waits for a decision: until `release` it is not asked for, and no other reason counts."""
        with self._lock:
            self._refused.add(table)
            self._note(table, place, reason)

    def release(self, table: str) -> None:
        """Note that it has been decided."""
        with self._lock:
            self._refused.discard(table)
        self.clear(table)

    def _note(self, table: str, place: str, reason: str) -> None:
        before = self._found.get(table)
        since_s = time.time() if before is None else before.since_s
        self._found[table] = Waiting(table=table, place=place, reason=reason, since_s=since_s)
        self._ask_at[table] = time.monotonic() + self._again_s

    def clear(self, table: str) -> None:
        """Note that a table waits no more for its system."""
        if table in self._found:
            with self._lock:
                if table in self._refused:
                    return
                self._found.pop(table, None)
                self._ask_at.pop(table, None)

    def rests(self, table: str) -> bool:
        """Return whether a table waits and is not to be asked for yet, or not at all."""
        with self._lock:
            rests = table in self._found and time.monotonic() < self._ask_at.get(table, 0.0)
            return rests or table in self._refused

    def waits(self, table: str) -> bool:
        """Return whether a table waits."""
        return table in self._found

    def all(self) -> tuple[Waiting, ...]:
        """Return every table that waits, in order of name."""
        with self._lock:
            return tuple(self._found[table] for table in sorted(self._found))

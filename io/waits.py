"""The tables whose external system is away: the reason and the time of each; steps leave these tables out.

Left out: retrying, which is the input's task, and reporting, which is the service's.
"""

from __future__ import annotations

import threading
import time

from dbsp.logs import Waiting

AGAIN_S = 2.0
"""Seconds until the external system of a waiting table is asked again."""


class Waits:
    """The waiting tables of one input log; any thread may read it.

    **State** per table a `Waiting` and the time of the next retry; also, the tables that wait for a user's decision
    instead.
    """

    def __init__(self, again_s: float = AGAIN_S) -> None:
        """Begin without a waiting table."""
        self._again_s = again_s
        self._lock = threading.Lock()
        self._found: dict[str, Waiting] = {}
        self._ask_at: dict[str, float] = {}
        self._refused: set[str] = set()

    def note(self, table: str, place: str, reason: str) -> None:
        """Note that a table waits; a table that waits already keeps its starting time."""
        with self._lock:
            if table not in self._refused:
                self._note(table, place, reason)

    def refuse(self, table: str, place: str, reason: str) -> None:
        """Note that a table waits for a decision: until `release` it is not retried, and keeps this reason."""
        with self._lock:
            self._refused.add(table)
            self._note(table, place, reason)

    def release(self, table: str) -> None:
        """End a table's wait for a decision."""
        with self._lock:
            self._refused.discard(table)
        self.clear(table)

    def _note(self, table: str, place: str, reason: str) -> None:
        before = self._found.get(table)
        since_s = time.time() if before is None else before.since_s
        self._found[table] = Waiting(table=table, place=place, reason=reason, since_s=since_s)
        self._ask_at[table] = time.monotonic() + self._again_s

    def clear(self, table: str) -> None:
        """Note that a table's system works again; a wait for a decision continues."""
        if table in self._found:
            with self._lock:
                if table in self._refused:
                    return
                self._found.pop(table, None)
                self._ask_at.pop(table, None)

    def rests(self, table: str) -> bool:
        """Return whether a table waits and is not to be retried now."""
        with self._lock:
            rests = table in self._found and time.monotonic() < self._ask_at.get(table, 0.0)
            return rests or table in self._refused

    def waits(self, table: str) -> bool:
        """Return whether a table waits."""
        return table in self._found

    def all(self) -> tuple[Waiting, ...]:
        """Return every waiting table, ordered by name."""
        with self._lock:
            return tuple(self._found[table] for table in sorted(self._found))

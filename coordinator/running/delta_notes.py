"""Whose Delta tables are whose, and how far this data folder has taken each: kept in the folder, and in no backup of it.

**Law** no table of this pipeline holds a step that is not noted here: a commit is noted, durably, before it begins. So a table
that is further than its note, or has none, was taken there by another past, of which the folder knows nothing: it was put back
from a copy.
Source: docs/design/0028.
"""

from __future__ import annotations

import fcntl
import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dbsp.disk import replace_text

MARK_FILE = "delta-tables"
REACHED_FILE = "delta-tables.reached"


class DeltaNotes:
    """The notes of one data folder. Two coordinators may have it open, of which one does not know yet that it was replaced."""

    def __init__(self, data_dir: Path) -> None:
        """Nothing is read or written."""
        self._mark, self._reached = data_dir / MARK_FILE, data_dir / REACHED_FILE

    def mark(self) -> str:
        """What tells this pipeline's tables from others, made at the first call.

        A restored pipeline goes another way from some step on, and must not go on with tables that have gone the first one.
        """
        if not self._mark.exists():
            replace_text(self._mark, uuid.uuid4().hex)
        return self._mark.read_text()

    def reached(self, table: str) -> int | None:
        """How far a table may be at most, by its place in the settings; None if this folder has never written it."""
        return self._read().get(table)

    def reach(self, table: str, next_: int) -> None:
        """A commit follows that takes the table so far."""
        with self._alone():
            found = self._read()
            if next_ > found.get(table, -1):
                replace_text(self._reached, json.dumps({**found, table: next_}))

    def _read(self) -> dict[str, int]:
        try:
            found: dict[str, int] = json.loads(self._reached.read_text())
        except FileNotFoundError:
            return {}
        return found

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Nobody else notes meanwhile."""
        with self._mark.open() as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            yield

"""The notes about Delta tables: the identity of this pipeline's tables, and the greatest step that each may contain.

The notes are in the data folder, and in no backup of it.

**Law** no table of this pipeline contains a step that is not noted here: a commit is noted, durably, before it begins.
So a table that is ahead of its note, or has none, was written by another history that this folder does not know. The
folder was restored from a copy. Source: docs/design/0028.
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
    """The notes of one data folder.

    Two coordinators may have the folder open, while the older one has not noticed yet that it was replaced.
    """

    def __init__(self, data_dir: Path) -> None:
        """Remember the paths; read and write nothing."""
        self._mark, self._reached = data_dir / MARK_FILE, data_dir / REACHED_FILE

    def mark(self) -> str:
        """Return the identity of this pipeline's tables, created at the first call.

        A restored pipeline diverges from some step on, so it must not continue tables of the history before its
        restoration.
        """
        if not self._mark.exists():
            replace_text(self._mark, uuid.uuid4().hex)
        return self._mark.read_text()

    def reached(self, table: str) -> int | None:
        """Return the greatest step that the table at this place may contain; None if this folder has never written it."""
        return self._read().get(table)

    def reach(self, table: str, next_: int) -> None:
        """Note, before a commit, that the table may then reach step `next_`."""
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
        """Lock the notes against other processes while the body runs."""
        with self._mark.open() as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            yield

"""Rows that a session sends, taken piece by piece, and a bound on the bytes that all sessions hold together."""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa

from dbsp.coordinator.postgres.refusals import PostgresRefusal
from dbsp.coordinator.postgres.stopping import StopSignal


class RowSource(Protocol):
    """The rows of a statement, in order, each once."""

    schema: pa.Schema
    tag: str
    """The word of the statement's end, such as `SELECT`."""

    @property
    def done(self) -> bool:
        """Return whether all rows were taken."""
        ...

    async def take(self, count: int, stop: StopSignal, wait_s: float | None = None) -> pa.Table:
        """Return the next rows, up to `count`; wait for the first of them, at most `wait_s`.

        Without rows nothing came in time, or the last ones were taken.
        """
        ...

    def close(self) -> None:
        """Let go of everything; repeating it does nothing."""
        ...


class HeldBytes:
    """The bytes of results that are held, bounded over all sessions: readers may be slow, and cursors stay open."""

    def __init__(self, bytes_max: int) -> None:
        """Hold nothing."""
        self._most, self._now = bytes_max, 0

    def take(self, size: int) -> None:
        """Count a result. **Errors** `PostgresRefusal` where too much is held."""
        if self._now + size > self._most:
            raise PostgresRefusal(
                "53200", f"too many results are held at once: bytes={self._now + size} bytes_max={self._most}",
                "close cursors, read results faster, or raise `result_mb_max` in [query]",
            )  # fmt: skip
        self._now += size

    def give(self, size: int) -> None:
        """Let go of a result."""
        self._now -= size


class PendingRows:
    """Rows that were read and not yet sent. They are counted until the next ones are read, since they may be on their way."""

    def __init__(self, held: HeldBytes, schema: pa.Schema) -> None:
        """Have none."""
        self._held, self._rows, self._size = held, schema.empty_table(), 0

    @property
    def count(self) -> int:
        """Return the number of rows."""
        return len(self._rows)

    def hold(self, rows: pa.Table) -> None:
        """Hold rows. **Errors** `PostgresRefusal` where too much is held."""
        self._held.take(rows.nbytes)
        self._size += rows.nbytes
        self._rows = rows

    def take(self, count: int) -> pa.Table:
        """Return the next rows, up to `count`."""
        found, self._rows = self._rows.slice(0, count), self._rows.slice(count)
        return found

    def let_go(self) -> None:
        """Count the rows no more, which were sent."""
        self._held.give(self._size)
        self._size = 0

    def close(self) -> None:
        """Drop the rows."""
        self._rows = self._rows.slice(len(self._rows))
        self.let_go()


class HeldRows:
    """A result that is held whole."""

    def __init__(self, table: pa.Table, held: HeldBytes, tag: str = "SELECT") -> None:
        """Count the bytes. **Errors** `PostgresRefusal` where too much is held."""
        held.take(table.nbytes)
        self.schema, self.tag = table.schema, tag
        self._rest, self._held, self._size = table, held, table.nbytes

    @property
    def done(self) -> bool:
        """Return whether all rows were taken."""
        return not len(self._rest)

    async def take(self, count: int, stop: StopSignal, wait_s: float | None = None) -> pa.Table:
        """Return the next rows."""
        del stop, wait_s  # they are there
        found, self._rest = self._rest.slice(0, count), self._rest.slice(count)
        return found

    def close(self) -> None:
        """Let go of the rows."""
        self._rest = self._rest.slice(len(self._rest))
        self._held.give(self._size)
        self._size = 0

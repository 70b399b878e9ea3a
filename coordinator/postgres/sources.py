"""Result rows that a session sends piece by piece."""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa

from dbsp.coordinator.postgres.stopping import StopSignal
from dbsp.coordinator.query.held import HeldBytes


class RowSource(Protocol):
    """The result rows of one statement, which are read once and in order."""

    schema: pa.Schema
    tag: str
    """The command tag that is sent after the last row, such as `SELECT`."""

    @property
    def done(self) -> bool:
        """Return whether all rows were taken."""
        ...

    async def take(self, count: int, stop: StopSignal, wait_s: float | None = None) -> pa.Table:
        """Return the next rows, up to `count`; wait for the first of them, at most `wait_s`.

        An empty table means that no row arrived within `wait_s`, or that no rows are left (`done`).
        """
        ...

    def close(self) -> None:
        """Release the rows that were not taken; a second call does nothing."""
        ...


class PendingRows:
    """Rows that were read and not yet sent.

    They count in the budget until `let_go`, also after `take`, because the connection may still buffer them.
    """

    def __init__(self, held: HeldBytes, schema: pa.Schema) -> None:
        """Begin without rows."""
        self._held, self._rows, self._size = held, schema.empty_table(), 0

    @property
    def count(self) -> int:
        """Return the number of rows that were not taken yet."""
        return len(self._rows)

    def hold(self, rows: pa.Table) -> None:
        """Hold these rows. **Errors** `CapacityError` if the budget has no room."""
        self._held.take(rows.nbytes)
        self._size += rows.nbytes
        self._rows = rows

    def take(self, count: int) -> pa.Table:
        """Return the next rows, up to `count`."""
        found, self._rows = self._rows.slice(0, count), self._rows.slice(count)
        return found

    def let_go(self) -> None:
        """Return the bytes of all held rows to the budget, after the rows were sent."""
        self._held.give(self._size)
        self._size = 0

    def close(self) -> None:
        """Drop the rows that were not taken."""
        self._rows = self._rows.slice(len(self._rows))
        self.let_go()


class HeldRows:
    """A result that is in memory as a whole."""

    def __init__(self, table: pa.Table, held: HeldBytes, tag: str = "SELECT") -> None:
        """Reserve the bytes of the table. **Errors** `CapacityError` if the budget has no room."""
        held.take(table.nbytes)
        self.schema, self.tag = table.schema, tag
        self._rest, self._held, self._size = table, held, table.nbytes

    @property
    def done(self) -> bool:
        """Return whether all rows were taken."""
        return not len(self._rest)

    async def take(self, count: int, stop: StopSignal, wait_s: float | None = None) -> pa.Table:
        """Return the next rows, up to `count`, without waiting."""
        del stop, wait_s  # the rows are already in memory
        found, self._rest = self._rest.slice(0, count), self._rest.slice(count)
        return found

    def close(self) -> None:
        """Release the rows that were not taken."""
        self._rest = self._rest.slice(len(self._rest))
        self._held.give(self._size)
        self._size = 0

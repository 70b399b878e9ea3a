"""The result of a SELECT that is sent while DuckDB makes it, so that it is never in memory as a whole.

Meanwhile the process of the query serves no other query. So when the client pauses in a result, the rest is read into
memory, within the limits of [query]. A client pauses if it uses a cursor, or a portal with a number of rows.
"""

from __future__ import annotations

import pyarrow as pa

from dbsp.coordinator.http.lanes import Lane
from dbsp.coordinator.postgres.sources import PendingRows, RowSource
from dbsp.coordinator.postgres.stopping import StopSignal
from dbsp.coordinator.query.held import HeldBytes
from dbsp.coordinator.serving.results import OpenResult
from dbsp.errors import CapacityError


class SentRows:
    """The rows of a SELECT."""

    def __init__(self, result: OpenResult, lane: Lane, held: HeldBytes, tag: str = "SELECT") -> None:
        """Create the source, of which no row was taken."""
        self.schema, self.tag = result.schema, tag
        self._result, self._lane, self._held = result, lane, held
        self._pending = PendingRows(held, result.schema)
        self._ended = False

    @property
    def done(self) -> bool:
        """Return whether all rows were taken."""
        return self._ended and not self._pending.count

    async def take(self, count: int, stop: StopSignal, wait_s: float | None = None) -> pa.Table:
        """Return the next rows, up to `count`; empty after the last."""
        del wait_s  # no limit of time here: DuckDB produces rows as fast as it can
        while not self._pending.count and not self._ended:
            stop.refuse()
            self._pending.let_go()
            table = await stop.during(self._lane.run(self._result.next))
            if table is None:
                self.close()
            else:
                self._pending.hold(table)
        return self._pending.take(count)

    async def keep(self, rows_max: int, bytes_max: int) -> None:
        """Read the rest of the result into memory, and release the process of the query.

        **Errors** `CapacityError` names the limit that was reached.
        """
        if not self._ended:
            left = self._pending.take(self._pending.count)
            rest = await self._lane.run(self._read, rows_max, bytes_max)
            self._pending.let_go()
            self._ended = True
            self._result.close()
            self._pending.hold(pa.concat_tables([left, *rest]))

    def _read(self, rows_max: int, bytes_max: int) -> list[pa.Table]:
        found: list[pa.Table] = []
        rows = size = 0
        while (table := self._result.next()) is not None:
            rows, size = rows + len(table), size + table.nbytes
            if rows > rows_max:
                hint = "add a LIMIT, read without a cursor, or raise `rows_max` in [query]"
                raise CapacityError(f"the query gives too many rows: rows_max={rows_max}", hint)
            if size > bytes_max:
                hint = "ask for less, read without a cursor, or raise `result_mb_max` in [query]"
                raise CapacityError(f"the query's result is too large: result_mb_max={bytes_max >> 20}", hint)
            found.append(table)
        return found

    def close(self) -> None:
        """End the query, and release the rows that were not taken."""
        self._ended = True
        self._result.close()
        self._pending.close()


async def keep(rows: RowSource | None, rows_max: int, result_mb_max: int) -> None:
    """Read the rest of a query's result into memory, because its client pauses; do nothing for other rows."""
    if isinstance(rows, SentRows):
        await rows.keep(rows_max, result_mb_max << 20)

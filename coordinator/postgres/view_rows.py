"""Send the rows of a view while the view is read: the part that `Follow` and `WholeViewRows` share."""

from __future__ import annotations

import pyarrow as pa

from dbsp.coordinator.postgres.sources import PendingRows
from dbsp.coordinator.query.held import HeldBytes
from dbsp.coordinator.serving.pages import ViewRead


class RowsOfView:
    """A source of rows that may hold a read of the view, with its lease, and a piece that was not sent yet."""

    def __init__(self, held: HeldBytes, schema: pa.Schema, tag: str) -> None:
        """Create the source without a read and without rows."""
        self.schema, self.tag = schema, tag
        self._pending = PendingRows(held, schema)
        self._read: ViewRead | None = None
        self._ended = False

    @property
    def done(self) -> bool:
        """Return whether no more rows are read, and all rows were taken."""
        return self._ended and not self._pending.count

    def _end_read(self) -> None:
        """Release the lease, if there is one."""
        if self._read is not None:
            self._read.close()
            self._read = None

    def close(self) -> None:
        """Release the lease and the held rows."""
        self._end_read()
        self._ended = True
        self._pending.close()

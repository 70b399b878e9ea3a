"""The result of a query that is read in portions, as of one step."""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa

from dbsp.coordinator.query.process import Portions


class Tables(Protocol):
    """The rows of a query or a view, table by table; the caller closes them."""

    @property
    def step(self) -> int:
        """Return the step that follows the rows."""
        ...

    def next(self) -> pa.Table | None:
        """Return the next rows; None after the last ones."""
        ...

    def put_back(self, table: pa.Table) -> None:
        """Put back the rows that `next` returned last, so that it returns them again."""
        ...

    def close(self) -> None:
        """Release the unread rows; a second call does nothing."""
        ...


class OpenResult:
    """The result of a query; the columns are known from the beginning."""

    def __init__(self, step: int, schema: pa.Schema, portions: Portions | None, first: pa.Table | None = None) -> None:
        """Store the portions; without portions the result is the table `first`."""
        self.step, self.schema = step, schema
        self._portions, self._rest = portions, first

    def next(self) -> pa.Table | None:
        """Return the next rows; None after the last ones. **Errors** those of `Portions`."""
        rest, self._rest = self._rest, None
        if rest is not None:
            return rest
        return None if self._portions is None else self._portions.next()

    def put_back(self, table: pa.Table) -> None:
        """Let `next` return these rows."""
        self._rest = table

    def close(self) -> None:
        """End the query if it was not read to its end."""
        if self._portions is not None:
            self._portions.close()


def small(tables: Tables, bytes_max: int) -> pa.Table | None:
    """Return all rows if they are few; else put them back and return None. The tables stay open only for the latter."""
    parts: list[pa.Table] = []
    size = 0
    try:
        while size <= bytes_max:
            table = tables.next()
            if table is None:
                tables.close()
                return pa.concat_tables(parts)
            parts.append(table)
            size += table.nbytes
        tables.put_back(pa.concat_tables(parts))
    except BaseException:
        tables.close()
        raise
    return None

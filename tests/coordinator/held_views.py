"""Views as tables in memory, for runtimes that keep no databases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from dbsp.plan.plan import ViewSpec
from dbsp.runtime.leases import ALL, WEIGHT, Wanted, rows_among
from dbsp.runtime.ranges import in_all


class HeldViews:
    """Views that were read whole when the lease was taken."""

    def __init__(self, step: int, tables: Mapping[str, pa.Table]) -> None:
        """Hold these tables, whose last column is the weight."""
        self.step = step
        self._tables = tables

    def holds(self, views: Sequence[str]) -> bool:
        """Return whether these views were read."""
        return self._tables.keys() >= set(views)

    def read(self, view: str, wanted: Wanted = ALL) -> Iterator[pa.Table]:
        """Yield the wanted rows in one table."""
        table = self._tables[view]
        if wanted.equal is not None:
            columns = [table.column(name).combine_chunks() for name in wanted.equal.schema.names]
            table = table.filter(pa.array(rows_among(wanted.equal, columns, len(table))))
        if wanted.ranges:
            columns = [table.column(each.column).combine_chunks() for each in wanted.ranges]
            table = table.filter(pa.array(in_all(wanted.ranges, columns, len(table))))
        yield table if wanted.columns is None else table.select([*wanted.columns, WEIGHT])

    def spec(self, view: str) -> ViewSpec | None:
        """None: they are the plan's."""
        return None

    def size(self, view: str) -> int:
        """Return the bytes of the table."""
        return int(self._tables[view].nbytes)

    def end(self) -> None:
        """Do nothing: the tables are memory of this process."""

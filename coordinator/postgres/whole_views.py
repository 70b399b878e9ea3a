"""Run a plain `SELECT … FROM view`, and `COPY view TO STDOUT`, without DuckDB: send the view while it is read.

A small view is read at once, so that a cursor over it holds no lease. A large one is read piece by piece through a
lease, as of one step. So any size can be sent, within `lease_s` of [query], and no bound of [query] on results counts.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from dbsp.coordinator.postgres.follow import SharedReads
from dbsp.coordinator.postgres.statements import pieces_of, unquoted
from dbsp.coordinator.postgres.stopping import StopSignal
from dbsp.coordinator.postgres.view_rows import RowsOfView
from dbsp.coordinator.query.statement import repeat_by_weight
from dbsp.coordinator.serving.answers import ViewRows
from dbsp.coordinator.serving.pages import ViewRead
from dbsp.coordinator.serving.reads import KEPT_VIEW_BYTES_MAX
from dbsp.errors import UnavailableError
from dbsp.runtime.leases import WEIGHT, Wanted


@dataclass(frozen=True, slots=True)
class WholeView:
    """A plain SELECT: all rows of a view, with these columns in this order; None: all columns."""

    view: str
    columns: tuple[str, ...] | None = None


def whole_view_of(sql: str) -> WholeView | None:
    """Return the view and columns of a plain SELECT; None for any other statement.

    **Example**

    >>> whole_view_of('select "A", b from public.v'), whole_view_of("select a + 1 from v")
    (WholeView(view='v', columns=('A', 'b')), None)
    """
    match pieces_of(sql):
        case ["SELECT", *columns, "FROM", view] | ["SELECT", *columns, "FROM", "PUBLIC" | '"public"', ".", view]:
            if not _is_name(view):
                return None
            if columns == ["*"]:
                return WholeView(unquoted(view))
            commas, names = columns[1::2], columns[::2]
            if len(columns) % 2 and set(commas) <= {","} and all(map(_is_name, names)):
                return WholeView(unquoted(view), tuple(map(unquoted, names)))
    return None


def _is_name(piece: str) -> bool:
    return piece[0] == '"' or piece[0].isalpha() or piece[0] == "_"


class WholeViewRows(RowsOfView):
    """The rows of a view, each as often as its weight says; nothing is read before the first `take`."""

    def __init__(self, shared: SharedReads, asked: WholeView, schema: pa.Schema) -> None:
        """Send these columns."""
        super().__init__(shared.held, schema, "SELECT")
        self._shared, self._asked = shared, asked
        self._begun = False

    @staticmethod
    def of(shared: SharedReads, asked: WholeView | None) -> WholeViewRows | None:
        """Return the rows of a plain SELECT; None if it names an unknown view or column."""
        if asked is None:
            return None
        names = {name.lower(): name for name in shared.service.views()}
        view = names.get(asked.view.lower())
        if view is None:
            return None
        schema = shared.service.view_schema(view)
        names_asked = tuple(schema.names) if asked.columns is None else asked.columns
        if len(set(names_asked)) < len(names_asked) or not set(names_asked) <= set(schema.names):
            return None
        columns = None if names_asked == tuple(schema.names) else names_asked
        return WholeViewRows(shared, WholeView(view, columns), pa.schema([schema.field(name) for name in names_asked]))

    async def take(self, count: int, stop: StopSignal, wait_s: float | None = None) -> pa.Table:
        """Return the next rows, up to `count`.

        **Errors** `PostgresRefusal` when the statement is cancelled, `UnavailableError` when its time is over.
        """
        del wait_s  # the rows are already in memory
        while not self._pending.count and not self._ended:
            stop.refuse()
            self._pending.let_go()
            await self._more(stop)
        return self._pending.take(count)

    async def _more(self, stop: StopSignal) -> None:
        if not self._begun:
            opened, rows = await stop.during(self._shared.lane.run(self._open), _close)
            self._begun, self._read, self._ended = True, opened, opened is None
        else:
            assert self._read is not None  # noqa: S101 - else it has ended
            table = await stop.during(self._shared.lane.run(self._read.next))
            if table is None:
                self.close()
                return
            rows = self._shown(table)
        self._pending.hold(rows)

    def _open(self) -> tuple[ViewRead | None, pa.Table]:
        """Read the whole view if it is small, and keep it for further readers; else return its read, and the first rows."""
        service, asked = self._shared.service, self._asked
        kept = service.kept(asked.view)
        if kept is not None:
            names = [*self.schema.names, WEIGHT]
            return None, self._shown(kept.table.select([name for name in names if name in kept.table.column_names]))
        read = service.open_read(asked.view, Wanted(columns=asked.columns), timeout_s=service.config.query.timeout_s)
        parts: list[pa.Table] = []
        try:
            while sum(part.nbytes for part in parts) <= KEPT_VIEW_BYTES_MAX:
                table = read.next()
                if table is None:
                    read.close()
                    whole = pa.concat_tables(parts)
                    if asked.columns is None:
                        service.keep(ViewRows(view=asked.view, step=read.step, table=whole))
                    return None, self._shown(whole)
                parts.append(table)
            return read, pa.concat_tables([self.schema.empty_table(), *map(self._shown, parts)])
        except BaseException:
            read.close()
            raise

    def _shown(self, table: pa.Table) -> pa.Table:
        """Convert a Z-set to the rows to send: repeat each row by its weight.

        **Errors** `UnavailableError` where the view was edited since the statement was described.
        """
        if table.column_names[:-1] != self.schema.names:
            raise UnavailableError("the view was edited after the statement was described", "read it again")
        return repeat_by_weight(table).cast(self.schema)


def _close(opened: tuple[ViewRead | None, pa.Table]) -> None:
    """End the read of a statement that was cancelled."""
    if opened[0] is not None:
        opened[0].close()

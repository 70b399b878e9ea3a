"""Run the statements of Flight SQL, and return their columns and rows.

The result of a plain SELECT of a whole view is sent while the view is read through a lease, as of one step. The result
of any other statement is sent while its process makes it. So any size can be sent, within `lease_s` of [query]. A small
result is read at once, so that its process is free for the next query; all of these are bounded by `HeldBytes`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from dbsp.coordinator.flight.statements import SentStatement
from dbsp.coordinator.postgres.catalog import relations_of
from dbsp.coordinator.postgres.dialect_parts import dialect_parts, readable_relations, readable_views
from dbsp.coordinator.postgres.variables import Variables
from dbsp.coordinator.postgres.whole_views import WholeView, whole_view_of
from dbsp.coordinator.query import pg_types as t
from dbsp.coordinator.query.held import HELD_RESULTS, HeldBytes
from dbsp.coordinator.query.pg_types import OIDS
from dbsp.coordinator.query.process import Stop
from dbsp.coordinator.query.statement import PARAMETERS, repeat_by_weight
from dbsp.coordinator.service import Service
from dbsp.coordinator.serving.results import OpenResult, small
from dbsp.runtime.leases import Wanted

BATCH_ROWS = 1 << 16
SMALL_BYTES = 1 << 20
"""A result up to this size is read at once."""
_ARROW: Mapping[object, pa.DataType] = {
    t.BOOL.oid: pa.bool_(), t.INT2.oid: pa.int16(), t.INT4.oid: pa.int32(), t.INT8.oid: pa.int64(), t.FLOAT4.oid: pa.float32(),
    t.FLOAT8.oid: pa.float64(), t.DATE.oid: pa.date32(), t.TIME.oid: pa.time64("us"), t.TIMESTAMP.oid: pa.timestamp("us"),
    t.TIMESTAMPTZ.oid: pa.timestamp("us", "UTC"), t.BYTEA.oid: pa.binary(),
}  # fmt: skip
Batches = Iterator[pa.RecordBatch]


class FlightResults:
    """The results of a service's statements. Every method may run on any thread."""

    def __init__(self, service: Service) -> None:
        """Make the catalogs from the circuit."""
        self._service = service
        self.database = service.config.pipeline.name
        self.views = readable_views(service)
        self.relations = readable_relations(service)
        """The views, and the dead letters."""
        self._relations = relations_of(self.database, self.relations)
        self._variables = Variables({}).values
        self.held = HeldBytes(HELD_RESULTS * service.config.query.result_mb_max << 20)

    def columns(self, statement: SentStatement, stop: Stop) -> tuple[pa.Schema, pa.Schema]:
        """Return the columns of the result, and the inferred types of the parameters, without reading rows.

        **Errors** those of a query.
        """
        whole = self._whole_view(statement)
        if whole is not None:
            return self._whole_schema(whole), pa.schema([])
        parts = self._dialect(statement) | {"describe": True}
        found = self._service.query_in_dialect(statement.sql, parts, self._relations, stop=stop)
        names = json.loads((found.schema.metadata or {}).get(PARAMETERS, b"[]"))
        parameters = pa.schema([pa.field(f"${number}", _parameter(name)) for number, name in enumerate(names, 1)])
        return found.schema.remove_metadata(), parameters

    def rows(self, statement: SentStatement, stop: Stop) -> tuple[pa.Schema, Batches]:
        """Return the columns and the rows, all as of one step. **Errors** those of a query; some only with the rows."""
        whole = self._whole_view(statement)
        if whole is not None:
            schema = self._whole_schema(whole)
            return schema, self._whole_rows(whole, schema)
        opened = self._service.open_in_dialect(statement.sql, self._dialect(statement), self._relations, stop=stop)
        found = small(opened, SMALL_BYTES)
        if found is None:
            return opened.schema, _streamed(opened)
        return found.schema, self._held_rows(found)

    def _dialect(self, statement: SentStatement) -> dict[str, Any]:
        return dialect_parts(self.database, self._relations, {}, self._variables, statement.values)

    def _held_rows(self, table: pa.Table) -> Batches:
        self.held.take(table.nbytes)
        try:
            yield from table.to_batches(max_chunksize=BATCH_ROWS)
        finally:
            self.held.give(table.nbytes)

    def _whole_view(self, statement: SentStatement) -> WholeView | None:
        """Return the view and the columns that a plain SELECT reads; None for any other statement."""
        found = None if statement.values else whole_view_of(statement.sql)
        names = {name.lower(): name for name in self.views}
        if found is None or found.view.lower() not in names:
            return None
        view = names[found.view.lower()]
        columns = found.columns or tuple(self.views[view].names)
        if len(set(columns)) < len(columns) or not set(columns) <= set(self.views[view].names):
            return None
        return WholeView(view, columns)

    def _whole_schema(self, whole: WholeView) -> pa.Schema:
        schema = self.views[whole.view]
        return pa.schema([schema.field(name) for name in whole.columns or schema.names])

    def _whole_rows(self, whole: WholeView, schema: pa.Schema) -> Batches:
        kept = self._service.kept(whole.view)
        if kept is not None:
            yield from _shown(kept.table, schema)
            return
        columns = None if tuple(schema.names) == tuple(self.views[whole.view].names) else tuple(schema.names)
        timeout_s = self._service.config.query.timeout_s
        read = self._service.open_read(whole.view, Wanted(columns=columns), timeout_s=timeout_s)
        try:
            while (table := read.next()) is not None:
                yield from _shown(table, schema)
        finally:
            read.close()


def _streamed(opened: OpenResult) -> Batches:
    """Yield the rows as the query makes them; the query ends with them, or when the client leaves."""
    try:
        while (table := opened.next()) is not None:
            yield from table.to_batches(max_chunksize=BATCH_ROWS)
    finally:
        opened.close()


def _shown(table: pa.Table, schema: pa.Schema) -> list[pa.RecordBatch]:
    """Convert a Z-set to the rows to send: repeat each row by its weight."""
    return repeat_by_weight(table).select(schema.names).cast(schema).to_batches(max_chunksize=BATCH_ROWS)  # type: ignore[no-any-return] # pyarrow comes without types


def _parameter(name: str) -> pa.DataType:
    """Return the type of a parameter by PostgreSQL's name; text for what has no Arrow type of its own."""
    return _ARROW.get(OIDS.get(name.partition("(")[0].strip()), pa.string())

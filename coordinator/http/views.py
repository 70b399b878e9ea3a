"""Views out: whole, by key, page by page, and queries over them.

A view that does not fit `KEPT_VIEW_BYTES_MAX` is sent while it is read, piece by piece, so memory is bounded for any
view. If the client leaves, its read ends.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa
from fastapi import FastAPI, Query, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel, Field

from dbsp.coordinator.http.cell_texts import list_rows, number_texts, object_rows
from dbsp.coordinator.http.kinds import ARROW, CSV, JSON, JSON_LINES, chosen
from dbsp.coordinator.http.lanes import Lane, Lanes
from dbsp.coordinator.http.refusals import not_offered
from dbsp.coordinator.http.row_texts import (
    as_csv,
    as_json_lines,
    csv_of,
    json_list,
    json_object,
    view_json,
    weighted,
)
from dbsp.coordinator.service import Service
from dbsp.coordinator.serving.answers import ViewRows
from dbsp.coordinator.serving.pages import Page, ViewRead
from dbsp.coordinator.serving.reads import KEPT_VIEW_BYTES_MAX
from dbsp.coordinator.serving.results import OpenResult, Tables, small
from dbsp.errors import ConfigError
from dbsp.runtime.leases import ALL, Wanted
from dbsp.zset.arrow_stream import arrow_stream

STEP_HEADER, NEXT_HEADER = "Dbsp-Step", "Dbsp-Next"
OR_ARROW: dict[int | str, dict[str, Any]] = {200: {"content": {ARROW: {}, CSV: {}}}}
OR_STREAMED: dict[int | str, dict[str, Any]] = {200: {"content": {ARROW: {}, CSV: {}, JSON_LINES: {}}}}
ROWS_MAX = (1 << 63) - 1
KEY_CHARS_MAX, CURSOR_CHARS_MAX = 16_384, 64
PAGE_ROWS, PAGE_ROWS_MAX = 1_000, 100_000


class QueryBody(BaseModel):
    """The request of a query: one SELECT over the views."""

    model_config = {"extra": "forbid"}

    sql: str = Field(json_schema_extra={"minLength": 1})


def add_views(app: FastAPI, service: Service, lanes: Lanes) -> None:
    """Add the routes of views and queries."""

    @app.get("/v1/views", summary="The names of the views")
    async def views() -> Response:
        return JSONResponse({"views": list(service.views())})

    @app.get("/v1/views/{view}", summary="The rows of a view, as of one step", responses=OR_ARROW)
    async def view(
        view: str,
        request: Request,
        limit: int | None = Query(default=None, ge=0, le=ROWS_MAX),
        key: str | None = Query(default=None, max_length=KEY_CHARS_MAX),
        cursor: str | None = Query(default=None, max_length=CURSOR_CHARS_MAX),
    ) -> Response:
        """Return JSON, an Arrow IPC stream, or CSV, as `Accept` asks; `weight` is how often a row is in the view.

        `key` is a JSON object, such as `{"customer": "ann"}`: only rows with these values are read. With `cursor=` the
        response is a page of `limit` rows (1,000; 100,000 at most). Its `next` is the cursor of the next page of the
        same step; Arrow and CSV have the cursor in the header `Dbsp-Next`. 503 if the read has ended: begin again.
        """
        accept = request.headers.get("accept", "")
        kind = chosen(accept, tuple(ROWS))
        if kind is None:
            return not_offered(accept, tuple(ROWS))
        if cursor is not None:
            return await lanes.reads.run(_page, service, view, limit, key, cursor, kind)
        whole = await lanes.reads.run(_view, service, view, limit, key, kind)
        return whole if isinstance(whole, Response) else _streamed(lanes.reads, whole, limit, kind)

    @app.post(
        "/v1/query",
        summary="One read-only SELECT over the views and dead_letters, as of one step",
        responses=OR_STREAMED,
    )
    async def query(body: QueryBody, request: Request) -> Response:
        """Run a query, or return its plan for `EXPLAIN SELECT …`.

        JSON has all rows in one object, within `rows_max` and `result_mb_max` of [query]. An Arrow IPC stream, CSV
        (`text/csv`) and JSON lines (`application/x-ndjson`), as `Accept` asks, have any number of rows.
        429 if too many queries wait, 503 if this one has waited for `timeout_s` of [query].
        """
        accept = request.headers.get("accept", "")
        kind = chosen(accept, (JSON, *STREAMED))
        if kind is None:
            return not_offered(accept, (JSON, *STREAMED))
        run = lanes.queries.run_within
        if kind == JSON:
            return await run(service.config.query.timeout_s, _query, service, body.sql)
        found = await run(service.config.query.timeout_s, _opened, service, body.sql, kind)
        return found if isinstance(found, Response) else _result(lanes.queries, found, kind)


def _query(service: Service, sql: str) -> Response:
    step, table = service.query(sql)
    head = {"step": step, "columns": table.column_names}
    return Response(json_object(head, rows=json_list(list_rows(table))), media_type=JSON)


def _opened(service: Service, sql: str, kind: str) -> Response | OpenResult:
    """Return the response of a small result, or the begun result of a large one."""
    found = service.open_query(sql)
    table = small(found, KEPT_VIEW_BYTES_MAX)
    if table is None:
        return found
    whole = OpenResult(found.step, table.schema, None, table)
    return Response(b"".join(STREAMED[kind](whole)), media_type=kind, headers={STEP_HEADER: str(found.step)})


def _result(lane: Lane, found: OpenResult, kind: str) -> Response:
    """Send a large result while DuckDB makes it; an error cuts the connection."""
    pieces = STREAMED[kind](found)
    headers = {STEP_HEADER: str(found.step)}
    return StreamingResponse(_sent(lane, found, lambda: next(pieces, None)), media_type=kind, headers=headers)


def _wanted(service: Service, view: str, key: str | None) -> Wanted:
    """Return the part of a view that a request asks for."""
    return ALL if key is None else Wanted(equal=service.key_of(view, key))


def _page(service: Service, view: str, limit: int | None, key: str | None, cursor: str, kind: str) -> Response:
    """Return the response of a page: the first one for an empty cursor."""
    rows = PAGE_ROWS if limit is None else limit
    if not 1 <= rows <= PAGE_ROWS_MAX:
        raise ConfigError(f"not the size of a page: limit={rows}", f"give 1 to {PAGE_ROWS_MAX} rows")
    if cursor:
        page = service.pages.go_on(view, cursor, rows)
    else:
        page = service.pages.begin(lambda: service.open_read(view, _wanted(service, view, key)), rows)
    return _page_answer(page, kind)


def _page_answer(page: Page, kind: str) -> Response:
    if kind != JSON:
        more = {} if page.cursor is None else {NEXT_HEADER: page.cursor}
        return Response(_body(page.table, kind), media_type=kind, headers={STEP_HEADER: str(page.step), **more})
    following = json.dumps(page.cursor).encode()
    body = json_object({"view": page.view, "step": page.step}, **weighted(page.table), next=following)
    return Response(body, media_type=JSON)


def _view(service: Service, view: str, limit: int | None, key: str | None, kind: str) -> Response | ViewRead:
    """Return the response of a small view, or the begun read of a large one."""
    found = service.kept(view) if key is None else None
    if found is None:
        read = service.open_read(view, _wanted(service, view, key))
        table = small(read, KEPT_VIEW_BYTES_MAX)
        if table is None:
            return read
        found = ViewRows(view=view, step=read.step, table=table)
        if key is None:
            service.keep(found)
    table = found.table if limit is None else found.table.slice(0, limit)
    if kind != JSON:
        return Response(_body(table, kind), media_type=kind, headers={STEP_HEADER: str(found.step)})
    return Response(view_json(found, table), media_type=JSON)


def _streamed(lane: Lane, read: ViewRead, limit: int | None, kind: str) -> Response:
    """Send a large view while it is read; an error cuts the connection, so that no client takes a part for the whole."""
    pieces = ROWS[kind](read, limit)
    headers = {} if kind == JSON else {STEP_HEADER: str(read.step)}
    return StreamingResponse(_sent(lane, read, lambda: next(pieces, None)), media_type=kind, headers=headers)


def _body(table: pa.Table, kind: str) -> bytes:
    """Return rows with their weights as CSV, or as an Arrow stream."""
    return b"".join(csv_of([table])) if kind == CSV else arrow_stream(table)


async def _sent(lane: Lane, read: Tables, piece: Callable[[], bytes | None]) -> AsyncIterator[bytes]:
    """Yield the pieces, each made on a thread of the lane; close the read also if the client leaves."""
    try:
        while (data := await lane.run(piece)) is not None:
            yield data
    finally:
        read.close()


class _Sink:
    """A file that keeps written bytes until they are taken."""

    def __init__(self) -> None:
        """Begin empty."""
        self.closed = False
        self._parts: list[bytes] = []

    def write(self, data: Any) -> int:
        """Keep a copy of the bytes."""
        self._parts.append(bytes(data))
        return len(self._parts[-1])

    def flush(self) -> None:
        """Do nothing."""

    def writable(self) -> bool:
        """Return True, as Arrow requires."""
        return True

    def close(self) -> None:
        """Note the end, as Arrow requires."""
        self.closed = True

    def taken(self) -> bytes:
        """Return the bytes written since the last call."""
        parts, self._parts = self._parts, []
        return b"".join(parts)


def _limited(read: Tables, limit: int | None) -> Iterator[pa.Table]:
    """Yield the tables of a read up to `limit` rows."""
    left = limit
    while left != 0 and (table := read.next()) is not None:
        table = table if left is None else table.slice(0, left)
        left = None if left is None else left - len(table)
        yield table


def _as_arrow(read: Tables, limit: int | None = None) -> Iterator[bytes]:
    """Yield an Arrow stream in pieces."""
    first = read.next()
    assert first is not None  # noqa: S101 - the read was found to be large
    read.put_back(first)
    sink = _Sink()
    with pa.ipc.new_stream(pa.PythonFile(sink, mode="w"), first.schema) as writer:
        for table in _limited(read, limit):
            writer.write_table(table)
            yield sink.taken()
    yield sink.taken()


def _as_json(read: ViewRead, limit: int | None) -> Iterator[bytes]:
    """Yield the JSON object of `view_json` in pieces; the rows after `limit` are only counted."""
    yield f'{{"view":{json.dumps(read.view)},"step":{read.step},"rows":['.encode()
    weights: list[bytes] = []
    rows_total, comma = 0, b""
    while (table := read.next()) is not None:
        shown = table if limit is None else table.slice(0, max(0, limit - rows_total))
        weights += number_texts(shown.column(shown.num_columns - 1))
        for some in object_rows(shown.remove_column(shown.num_columns - 1)):
            yield comma + some
            comma = b","
        rows_total += len(table)
    yield b'],"weights":%s,"rows_total":%d}' % (json_list(weights), rows_total)


def _as_csv(read: ViewRead, limit: int | None) -> Iterator[bytes]:
    """Yield CSV with the weight as the last column."""
    return csv_of(_limited(read, limit))


ROWS: Mapping[str, Callable[[ViewRead, int | None], Iterator[bytes]]] = {JSON: _as_json, ARROW: _as_arrow, CSV: _as_csv}
"""The function that renders a view, by the kind of body."""
STREAMED: Mapping[str, Callable[[Tables], Iterator[bytes]]] = {ARROW: _as_arrow, CSV: as_csv, JSON_LINES: as_json_lines}
"""The function that renders the result of a query of any size, by the kind of body."""

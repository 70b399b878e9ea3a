"""The HTTP interface of a service: rows in, views out, decisions, figures. A thin coat on `service.Service`.

Every answer is JSON (`{"error": {"code", "message", "hint"}}` for a refusal) unless Arrow is asked for. On loopback without a
token only requests for a loopback host name and without a foreign `Origin` are answered, so that a web page cannot reach the
service through its visitor's browser. `/openapi.json` describes all of it, `/docs` shows it; `/` is a console that uses it.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import Depends, FastAPI, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from dbsp.coordinator.config import LOOPBACK
from dbsp.coordinator.http.admission import refuse_scarcity
from dbsp.coordinator.http.bell import Bell
from dbsp.coordinator.http.changes import add_changes
from dbsp.coordinator.http.docs_page import docs_page
from dbsp.coordinator.http.rendering import ARROW, ipc, plain, rows_of, view_json
from dbsp.coordinator.service import Service
from dbsp.errors import CapacityError, ConfigError, DataError, DbspError, UnavailableError
from dbsp.io import Position, Producer
from dbsp.io.formats import decode_arrow, decode_json, tables_in
from dbsp.version import VERSION

HOME = "/"
CONSOLE = Path(__file__).with_name("console.html")
ONLY_ITSELF = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; base-uri 'none'"
)
"""The console loads nothing and talks to nobody but its service."""
OTHER_KINDS = ("text/csv", "multipart/", "application/vnd.", "application/avro", "application/gzip", "application/zip")
"""Bodies that are surely no JSON: read as that, each line would be a bad row."""
STEP_HEADER = "Dbsp-Step"
PRODUCER_HEADER, SEQUENCE_HEADER = "Dbsp-Producer", "Dbsp-Sequence"
STATUS = {
    "circuit": 400, "config": 400, "data": 422, "rows": 422, "position": 416, "unavailable": 503, "overloaded": 429,
    "capacity": 413, "fenced": 409, "engine": 409,
}  # fmt: skip
RETRY_AFTER_S, TRY_AGAIN = 1, (429, 503)
NOTHING_MOVED = {"shards_moved": 0, "share": 0.0, "bytes_moved": 0, "bytes_total": 0}
BAD_ROWS_SHOWN_MAX = 20
ROWS_MAX = (1 << 63) - 1
Patience = Annotated[float, Query(ge=0, le=86_400, allow_inf_nan=False)]
"""For how many seconds an answer may be waited for."""
NUMBER = re.compile("[0-9]{1,19}")
PUSH_BODY = {
    "required": True,
    "content": {
        "application/json": {"schema": {}, "example": '{"insert": {"id": 1}}'},
        ARROW: {"schema": {"type": "string", "format": "binary"}},
    },
}
TRANSACTION_BODY = {
    "required": True,
    "content": {
        "application/json": {"schema": {}, "example": '{"orders": [{"id": 1}], "names": [{"delete": {"id": 2}}]}'}
    },
}
PUSH_HEADERS = [
    {"name": name, "in": "header", "required": False, "schema": {"type": kind}}
    for name, kind in ((PRODUCER_HEADER, "string"), (SEQUENCE_HEADER, "integer"))
]


class RescaleBody(BaseModel):
    """How many workers to go on with; `dry_run` only says what would move. `strategy` as in the settings' [layout]."""

    model_config = {"extra": "forbid"}

    workers: int = Field(ge=1)
    dry_run: bool = False
    strategy: Literal["cold", "warmup", "icadd", "redistribute"] | None = None


class QueryBody(BaseModel):
    """One SELECT over the views."""

    model_config = {"extra": "forbid"}

    sql: str


class SkipBody(BaseModel):
    """`step`: the one that is meant; an earlier decision about it is answered again."""

    model_config = {"extra": "forbid"}

    step: int | None = Field(default=None, ge=0)


class BackupBody(BaseModel):
    """The folder, on the service's host, in which the backup gets a folder of its own."""

    model_config = {"extra": "forbid"}

    folder: str


class StopBody(BaseModel):
    """`now`: without a last checkpoint."""

    model_config = {"extra": "forbid"}

    now: bool = False


def make_app(service: Service) -> FastAPI:
    """The application that answers for a service."""
    app = FastAPI(title="dbsp", version=VERSION, docs_url=None, redoc_url=None, dependencies=[Depends(_refuse_unknown)])
    app.add_exception_handler(DbspError, _on_error)
    app.add_exception_handler(RequestValidationError, _on_wrong_request)
    app.add_exception_handler(HTTPException, _on_no_address)
    app.middleware("http")(_guard(service))
    _add_pages(app)
    _add_figures(app, service)
    bell = Bell(service.board)
    app.state.bell = bell
    _add_rows(app, service, bell)
    _add_views(app, service)
    add_changes(app, service, bell)
    _add_decisions(app, service)
    return app


# --- who may ask ----------------------------------------------------------------------------------------------------


def _guard(service: Service) -> Callable[[Request, Callable[[Request], Awaitable[Response]]], Awaitable[Response]]:
    token = service.config.http.token

    async def guard(request: Request, following: Callable[[Request], Awaitable[Response]]) -> Response:
        refusal = _refusal(request, token)
        if refusal is not None:
            return refusal
        try:
            return await following(request)
        except ClientDisconnect:  # nobody hears the answer; of a body that broke off nothing is taken
            return _refuse(400, "data", "the request broke off", "send it again")
        except Exception as error:  # noqa: BLE001 - a bug of ours is answered as one, and the service goes on
            service.note_bug(f"{request.method} {request.url.path}", error)
            message = f"a bug: {type(error).__name__}: {error}"
            return _refuse(500, "internal", message, "report it; the log of the service has its story")

    return guard


def _refusal(request: Request, token: str | None) -> Response | None:
    if token is not None:
        if (request.method, request.url.path) == ("GET", HOME):
            return None  # the page holds nothing of the pipeline; it asks for the token and sends it with every request
        given = request.headers.get("authorization", "")
        if not hmac.compare_digest(given.encode(), f"Bearer {token}".encode()):
            return _refuse(401, "unauthorized", "a bearer token is needed", "send `Authorization: Bearer <token>`")
        return None
    host = (request.url.hostname or "").strip("[]")
    if host not in LOOPBACK:
        return _refuse(403, "forbidden", f"not a loopback host name: host={host}", "set a token to use other names")
    origin = request.headers.get("origin")
    if origin is not None and origin.partition("://")[2] != request.headers.get("host"):
        return _refuse(403, "forbidden", f"a page of another site may not ask: origin={origin}", "set a token")
    return None


def _refuse(status: int, code: str, message: str, hint: str | None) -> JSONResponse:
    headers = {"Retry-After": str(RETRY_AFTER_S)} if status in TRY_AGAIN else None
    return JSONResponse(
        {"error": {"code": code, "message": message, "hint": hint}}, status_code=status, headers=headers
    )


async def _refuse_unknown(request: Request) -> None:
    """What nobody reads is refused: a producer's number under a wrong name would let its rows in twice."""
    known = sorted(field.alias for field in request.scope["route"].dependant.query_params)
    for name in request.query_params:
        if name not in known:
            story = f"known: {', '.join(known)}" if known else "this address takes none"
            raise ConfigError(f"no parameter of {request.url.path}: {name[:40]}", f"{story}; see /docs")
    for name in request.headers:
        if name.startswith("dbsp-") and name.title() not in (PRODUCER_HEADER, SEQUENCE_HEADER):
            raise ConfigError(
                f"not a header of dbsp: {name.title()[:40]}", f"known: {PRODUCER_HEADER}, {SEQUENCE_HEADER}"
            )


async def _on_error(_request: Request, error: Exception) -> Response:
    found = error if isinstance(error, DbspError) else DbspError(str(error))
    status = 404 if found.message.startswith("no such") else STATUS.get(found.code, 500)
    return _refuse(status, found.code, found.message, found.hint)


async def _on_wrong_request(_request: Request, error: Exception) -> Response:
    """A body or a parameter that does not fit: which, and why."""
    assert isinstance(error, RequestValidationError)  # noqa: S101 - it is registered for nothing else
    found = error.errors()[0]
    place = ".".join(str(part) for part in found["loc"] if part not in ("body", "query", "path"))
    where = f": {place}" if place and found["type"] != "json_invalid" else ""
    reason = str(found["msg"]).lower() if found["type"] != "json_invalid" else "not JSON"
    return _refuse(422, "config", f"the request is wrong{where}: {reason}", "see /docs")


async def _on_no_address(request: Request, error: Exception) -> Response:
    """Nothing is there, or not by this method."""
    assert isinstance(error, HTTPException)  # noqa: S101 - it is registered for nothing else
    what = "no such address" if error.status_code == 404 else str(error.detail).lower()  # noqa: PLR2004 - HTTP's own
    return _refuse(error.status_code, "config", f"{what}: {request.method} {request.url.path}", "see /docs")


def _add_pages(app: FastAPI) -> None:
    page = CONSOLE.read_text(encoding="utf-8")

    @app.get(HOME, include_in_schema=False)
    def console() -> Response:
        return HTMLResponse(page, headers={"Content-Security-Policy": ONLY_ITSELF, "X-Frame-Options": "DENY"})

    @app.get("/docs", include_in_schema=False)
    def docs(request: Request) -> Response:
        return HTMLResponse(docs_page(app.openapi(), str(request.base_url).rstrip("/")))


# --- figures --------------------------------------------------------------------------------------------------------


def _add_figures(app: FastAPI, service: Service) -> None:
    @app.get("/v1/status", summary="State, step, version, lag")
    def status() -> JSONResponse:
        return JSONResponse(plain(service.status()))

    @app.get("/v1/explain", summary="The plan, and what every node did: rows, time, state, busiest worker")
    def explain() -> JSONResponse:
        return JSONResponse({"plan": service.explain()})

    @app.get("/v1/layout", summary="Shards, workers, hosts")
    def layout() -> JSONResponse:
        return JSONResponse(plain(service.layout_status()))

    @app.get("/v1/completion", summary="How far one row has come: durable, processed, delivered")
    def completion(table: str, partition: int = 0, offset: int = Query(ge=0)) -> JSONResponse:
        return JSONResponse(asdict(service.completion(table, partition, offset)))

    @app.get("/metrics", summary="Prometheus metrics")
    def metrics() -> Response:
        now = replace(service.snapshot, lag_rows=service.lag_rows())
        return Response(
            service.metrics.text(now, service.delta.shown, service.copies.shown), media_type="text/plain; version=0.0.4"
        )


# --- rows in --------------------------------------------------------------------------------------------------------


def _add_rows(app: FastAPI, service: Service, bell: Bell) -> None:
    @app.post(
        "/v1/tables/{table}/rows",
        summary="Push rows (JSON or Arrow IPC); answered when they are durable",
        openapi_extra={"requestBody": PUSH_BODY, "parameters": PUSH_HEADERS},
    )
    async def push(
        table: str, request: Request, partition: int = 0, wait: bool = False, timeout_s: Patience = 60.0
    ) -> JSONResponse:
        """JSON lines or an array of rows, `{"insert": {...}}` and `{"delete": {...}}` allowed; or an Arrow IPC stream.

        429 with `Retry-After`: too much waits already, nothing was taken; send the same again later.
        `Dbsp-Producer` and `Dbsp-Sequence` make a repeat harmless. Use a table's next number when the one before was answered:
        one that was never taken is refused when a greater one was. Who counts 0, 1, 2, … is always answered; of one who counts
        in jumps numbers far below the newest are refused as not known any more.

        `wait=true` answers 200 when the rows are processed; else, after `timeout_s` or when no step can take them, 202 with
        `"processed": false` and the reason as `waiting`: they are durable all the same, and are not to be sent again.

        `first` and `last` are offsets, `last` the one behind the last row. A repeat gets those of the first time, or two equal
        ones when they are forgotten. Arrow columns have the table's types, an int8 `__op` says 0 for an insert, 1 for a
        delete; a stream that does not fit is one bad row.
        """
        kind = _kind(request)
        body = await _body(request, service.config.http.max_body_bytes)
        producer = _producer(request)
        position, answer = await run_in_threadpool(_push, service, table, body, kind, producer, partition)
        return await _answer(service, bell, answer, [position], timeout_s if wait else None)

    @app.post(
        "/v1/transactions",
        summary="Push rows of several tables, all or none, which one step takes together",
        openapi_extra={"requestBody": TRANSACTION_BODY, "parameters": PUSH_HEADERS},
    )
    async def push_together(
        request: Request, partition: int = 0, wait: bool = False, timeout_s: Patience = 60.0
    ) -> JSONResponse:
        """One JSON object of tables and arrays of their rows. A row that cannot be read refuses all.

        All else is as for one table's rows. A producer's number counts for each of the tables: give a transaction one that its
        producer used for none of them.
        """
        body = await _body(request, service.config.http.max_body_bytes)
        producer = _producer(request)
        _kind(request)
        positions = await run_in_threadpool(_push_together, service, body, producer, partition)
        answer = {"tables": [_position(position) for position in positions]}
        return await _answer(service, bell, answer, positions, timeout_s if wait else None)


def _kind(request: Request) -> str:
    """How the body says it is written; `DataError` for what is not read here, before any of it is taken."""
    packed = request.headers.get("content-encoding", "identity")
    if packed.lower() != "identity":
        raise DataError(f"packed bodies are not read: Content-Encoding={packed}", "send the rows as they are")
    kind = request.headers.get("content-type", "application/json").lower()
    if kind.startswith(OTHER_KINDS) and not kind.startswith(ARROW):
        raise DataError(f"bodies of this kind are not read: Content-Type={kind}", f"send JSON, or {ARROW}")
    return kind


async def _body(request: Request, bytes_max: int) -> bytes:
    parts, size, checked = [], 0, 0
    async for part in request.stream():
        size += len(part)
        if size > bytes_max:
            raise CapacityError(f"the body is too large: max_body_bytes={bytes_max}", "send several smaller pushes")
        parts.append(part)
        if size >= checked:  # before it grows much further, and before anything of it is decoded
            refuse_scarcity(size)
            checked = 2 * size
    return b"".join(parts)


def _producer(request: Request) -> Producer | None:
    name, sequence = request.headers.get(PRODUCER_HEADER), request.headers.get(SEQUENCE_HEADER)
    if name is None and sequence is None:
        return None
    if name is None or sequence is None or not NUMBER.fullmatch(sequence):
        raise ConfigError(
            f"a producer needs an id and a number: {PRODUCER_HEADER}={name} {SEQUENCE_HEADER}={sequence}",
            f"send both headers, `{SEQUENCE_HEADER}` growing by one with every push",
        )
    return Producer(id=name, sequence=int(sequence))


def _push(
    service: Service,
    table: str,
    body: bytes,
    kind: str,
    producer: Producer | None,
    partition: int,
) -> tuple[Position, dict[str, Any]]:
    found = service.table(table)
    push = decode_arrow(body, found) if kind.startswith(ARROW) else decode_json(body, found)
    position = service.push(table, push, partition=partition, producer=producer)
    bad = [{"row": row.index, "reason": row.reason} for row in push.bad[:BAD_ROWS_SHOWN_MAX]]
    return position, {**_position(position), "bad_rows": len(push.bad), "bad": bad}


def _push_together(service: Service, body: bytes, producer: Producer | None, partition: int) -> list[Position]:
    pushes = {name: decode_json(rows, service.table(name)) for name, rows in tables_in(body).items()}
    return service.push_together(pushes, partition=partition, producer=producer)


async def _answer(
    service: Service, bell: Bell, answer: dict[str, Any], positions: Sequence[Position], timeout_s: float | None
) -> JSONResponse:
    """The answer to a push that is durable; with a time it waits until the rows are processed, and says whether they are.

    Who waits holds no thread, so that any number may.
    """
    if timeout_s is None:
        return JSONResponse(answer)
    await bell.wait_for(lambda now: now.halt is not None or all(map(now.has_processed, positions)), timeout_s)
    try:
        for position in positions:
            service.refuse_unprocessed(position, timeout_s)
    except UnavailableError as error:  # an error's status would ask the client to send the rows again
        return JSONResponse({**answer, "processed": False, "waiting": str(error)}, status_code=202)
    return JSONResponse({**answer, "processed": True})


def _position(position: Position) -> dict[str, Any]:
    return {
        "table": position.table, "partition": position.partition, "first": position.first, "last": position.last,
        "repeated": position.repeated,
    }  # fmt: skip


# --- views out ------------------------------------------------------------------------------------------------------


def _add_views(app: FastAPI, service: Service) -> None:
    @app.get("/v1/views", summary="The names of the views")
    def views() -> JSONResponse:
        return JSONResponse({"views": list(service.views())})

    @app.get("/v1/views/{view}", summary="All rows of a view, as of one step")
    def view(view: str, request: Request, limit: int | None = Query(default=None, ge=0, le=ROWS_MAX)) -> Response:
        """JSON, or an Arrow IPC stream if `Accept` asks for it; `weight` says how often a row is there."""
        found = service.read_view(view)
        table = found.table if limit is None else found.table.slice(0, limit)
        if ARROW in request.headers.get("accept", ""):
            return Response(ipc(table), media_type=ARROW, headers={STEP_HEADER: str(found.step)})
        return JSONResponse(view_json(found, table))

    @app.post("/v1/query", summary="One read-only SELECT over the views, as of one step")
    def query(body: QueryBody, request: Request) -> Response:
        step, table = service.query(body.sql)
        if ARROW in request.headers.get("accept", ""):
            return Response(ipc(table), media_type=ARROW, headers={STEP_HEADER: str(step)})
        return JSONResponse({"step": step, "columns": table.column_names, "rows": plain(rows_of(table))})


# --- decisions ------------------------------------------------------------------------------------------------------


def _add_decisions(app: FastAPI, service: Service) -> None:
    @app.post("/v1/checkpoint", summary="Commit the state; answered when it is published")
    def checkpoint() -> JSONResponse:
        version = service.checkpoint()
        return JSONResponse({"version": version, "step": service.snapshot.checkpoint_step})

    @app.post("/v1/backup", summary="Copy all that is needed to go on from now; answered when it is whole")
    def backup(body: BackupBody) -> JSONResponse:
        """`/v1/status` has its progress in `backup`, and the last one in `last_backup`."""
        return JSONResponse(service.back_up(Path(body.folder)))

    @app.post("/v1/pause", summary="Take no further step")
    def pause() -> JSONResponse:
        return JSONResponse({"state": "Paused", "step": service.pause()})

    @app.post("/v1/resume", summary="Take steps again")
    def resume() -> JSONResponse:
        return JSONResponse({"state": "Running", "step": service.resume()})

    @app.post("/v1/rescale", summary="Go on with another number of workers; answered when it is done")
    def rescale(body: RescaleBody) -> JSONResponse:
        planned = service.plan_rescale(body.workers)
        shown = {**asdict(planned), "share": planned.share, "done": False}
        if not body.dry_run:
            moved = service.rescale(body.workers, strategy=body.strategy)
            shown |= {"done": True, "layout_version": service.layout().version, "pause_seconds": None}
            shown |= NOTHING_MOVED if moved is None else {**asdict(moved), "share": moved.share}
        return JSONResponse(shown)

    @app.delete("/v1/rescale", summary="Take back a rescale; answered when nothing of it is left")
    def cancel() -> JSONResponse:
        service.cancel_rescale()
        return JSONResponse({"cancelled": True, "workers": len(service.layout().workers)})

    @app.post("/v1/accept-output", summary="Go on with the output that a step gives now, and put out the difference")
    def accept_output(body: SkipBody | None = None) -> JSONResponse:
        return JSONResponse(asdict(service.accept_output(body.step if body is not None else None)))

    @app.post("/v1/skip", summary="Go on without the rows that halt the pipeline: they become dead letters")
    def skip(body: SkipBody | None = None) -> JSONResponse:
        return JSONResponse(asdict(service.skip(body.step if body is not None else None)))

    @app.post(
        "/v1/upgrade", summary="Go on as the version of dbsp that is installed now; answered when it is about to start"
    )
    def upgrade() -> JSONResponse:
        return JSONResponse(asdict(service.upgrade()))

    @app.post("/v1/stop", summary="Checkpoint and end")
    def stop(body: StopBody | None = None) -> JSONResponse:
        service.ask_to_stop(now=body is not None and body.now)
        return JSONResponse({"stopping": True})

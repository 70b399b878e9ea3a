"""Pushes over HTTP: the body, within its bounds, becomes rows that are durable when the response arrives."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request
from fastapi.responses import JSONResponse

from dbsp.coordinator.client.unpacking import ENCODINGS, unpacked_body
from dbsp.coordinator.http.doors import whole_body
from dbsp.coordinator.http.kinds import ARROW, CSV, TSV
from dbsp.coordinator.http.lanes import Lanes
from dbsp.coordinator.http.waiting import Waiters
from dbsp.coordinator.running.status import Snapshot
from dbsp.coordinator.serving.ingest import Ingest
from dbsp.errors import ConfigError, DataError, UnavailableError
from dbsp.io.formats import decode_arrow, decode_json, tables_in
from dbsp.io.pushed import Position, Producer, PushBounds
from dbsp.io.texts import decode_csv

OTHER_KINDS = ("multipart/", "application/vnd.", "application/avro", "application/gzip", "application/zip")
"""Content types that are refused, because each line of such a body would become a bad row of JSON."""
CSV_KINDS = {CSV: ",", TSV: "\t"}
"""The delimiter of each kind of text with a header."""
PRODUCER_HEADER, SEQUENCE_HEADER = "Dbsp-Producer", "Dbsp-Sequence"
BAD_ROWS_SHOWN_MAX = 20
Patience = Annotated[float, Query(ge=0, le=86_400, allow_inf_nan=False)]
"""Seconds that a request may wait for its response."""
NUMBER = re.compile("[0-9]{1,19}")
PUSH_BODY = {
    "required": True,
    "content": {
        "application/json": {"schema": {}, "example": '{"insert": {"id": 1}}'},
        ARROW: {"schema": {"type": "string", "format": "binary"}},
        **{kind: {"schema": {"type": "string"}} for kind in CSV_KINDS},
    },
}
ROWS_OF_TABLES = {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "object"}}}
TRANSACTION_BODY = {
    "required": True,
    "content": {
        "application/json": {
            "schema": ROWS_OF_TABLES,
            "example": '{"orders": [{"id": 1}], "names": [{"delete": {"id": 2}}]}',
        }
    },
}
PUSH_HEADERS = [
    {"name": name, "in": "header", "required": False, "schema": schema}
    for name, schema in (
        (PRODUCER_HEADER, {"type": "string"}),
        (SEQUENCE_HEADER, {"type": "integer", "minimum": 0}),
    )
]
PUSHED: dict[int | str, dict[str, Any]] = {
    202: {
        "description": "With `wait`: the rows are durable, and not processed yet",
        "content": {"application/json": {}},
    }
}


def add_pushes(app: FastAPI, service: Ingest, lanes: Lanes, waiters: Waiters) -> None:
    """Add the routes of pushes."""

    @app.post(
        "/v1/tables/{table}/rows",
        summary="Push rows (JSON, CSV or Arrow IPC); answered when they are durable",
        responses=PUSHED,
        openapi_extra={"requestBody": PUSH_BODY, "parameters": PUSH_HEADERS},
    )
    async def push(
        table: str, request: Request, partition: int = 0, wait: bool = False, timeout_s: Patience = 60.0
    ) -> JSONResponse:
        """Push JSON lines, an array of rows, CSV with a header, or an Arrow IPC stream.

        JSON may have `{"insert": {...}}` and `{"delete": {...}}` instead of plain rows. `Content-Encoding` may be gzip or zstd.

        429 with `Retry-After`: too much waits already, nothing was taken; send the same again later.

        `Dbsp-Producer` and `Dbsp-Sequence` make a repeat harmless. Send a table's next number after the response to
        the one before: a number that was never taken is refused after a greater one was. A producer that counts 0, 1,
        2, … always gets a response. If a producer counts in jumps, numbers far below the newest are refused as not
        known any more.

        `wait=true` returns 200 when the rows are processed. After `timeout_s`, or when no step can take the rows, it
        returns 202 with `"processed": false` and the reason as `waiting`. The rows are durable all the same: do not
        send them again.

        `first` and `last` are offsets, `last` the one after the last row. A repeat gets those of the first time, or
        two equal ones when they are forgotten. Arrow columns have the table's types, and an int8 `__op` says 0 for an
        insert, 1 for a delete. A stream that does not fit is one bad row. The header of CSV names all columns of the table, and
        may name `__op`; another header is refused.
        """
        kind, encoding, producer = _kind(request), _encoding(request), _producer(request)
        if wait:
            waiters.followers.admit(request)
        async with whole_body(request) as body:
            position, answer = await lanes.pushes.run(_push, service, table, body, kind, encoding, producer, partition)
        return await answered(service, waiters, request, answer, [position], timeout_s if wait else None)

    @app.post(
        "/v1/transactions",
        summary="Push rows of several tables, all or none, which one step takes together",
        responses=PUSHED,
        openapi_extra={"requestBody": TRANSACTION_BODY, "parameters": PUSH_HEADERS},
    )
    async def push_together(
        request: Request, partition: int = 0, wait: bool = False, timeout_s: Patience = 60.0
    ) -> JSONResponse:
        """Push one JSON object of tables and arrays of their rows. A row that cannot be read refuses all.

        All else is as for one table's rows. A producer's number counts for each of the tables: give a transaction a
        number that its producer used for none of them.
        """
        encoding, producer = _encoding(request), _producer(request)
        _kind(request, of_one_table=False)
        if wait:
            waiters.followers.admit(request)
        async with whole_body(request) as body:
            positions = await lanes.pushes.run(_push_together, service, body, encoding, producer, partition)
        answer = {"tables": [position_json(position) for position in positions]}
        return await answered(service, waiters, request, answer, positions, timeout_s if wait else None)


def _kind(request: Request, *, of_one_table: bool = True) -> str:
    """Return the content type of the body; `DataError` for kinds that are not read here, before any byte is taken."""
    kind = request.headers.get("content-type", "application/json").lower()
    is_csv = kind.startswith(tuple(CSV_KINDS))
    if (kind.startswith(OTHER_KINDS) and not kind.startswith(ARROW)) or (is_csv and not of_one_table):
        known = ["JSON", ARROW, *(CSV_KINDS if of_one_table else ())]
        raise DataError(f"bodies of this type are not supported: Content-Type={kind}", f"send {', or '.join(known)}")
    return kind


def _encoding(request: Request) -> str | None:
    """Return how the body is packed, None if it is not; `DataError` for what is not read here, before any byte is taken."""
    found = request.headers.get("content-encoding", "identity").strip().lower()
    if found == "identity":
        return None
    if found not in ENCODINGS:
        raise DataError(
            f"bodies in this encoding are not supported: Content-Encoding={found}",
            f"send {' or '.join(ENCODINGS)}, or the rows without compression",
        )
    return found


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
    service: Ingest,
    table: str,
    body: bytes,
    kind: str,
    encoding: str | None,
    producer: Producer | None,
    partition: int,
) -> tuple[Position, dict[str, Any]]:
    found, body = service.table(table), _unpacked(service, body, encoding)
    bounds = _bounds(service)
    extras = service.config.input.ignores_unknown
    delimiter = CSV_KINDS.get(kind.partition(";")[0].strip())
    if delimiter is not None:
        push = decode_csv(body, found, bounds, delimiter)
    elif kind.startswith(ARROW):
        push = decode_arrow(body, found, bounds)
    else:
        push = decode_json(body, found, extras=extras, bounds=bounds)
    bounds.refuse_bad(push.bad, push.rows)
    position = service.push(table, push, partition=partition, producer=producer)
    bad = [{"row": row.index, "reason": row.reason} for row in push.bad[:BAD_ROWS_SHOWN_MAX]]
    return position, {**position_json(position), "bad_rows": len(push.bad), "bad": bad}


def _bounds(service: Ingest) -> PushBounds:
    section = service.config.http
    return PushBounds(
        max_push_rows=section.max_push_rows, max_decoded_bytes=section.max_decoded_bytes,
        bad_rows_max=section.bad_rows_max,
    )  # fmt: skip


def _unpacked(service: Ingest, body: bytes, encoding: str | None) -> bytes:
    return body if encoding is None else unpacked_body(body, encoding, service.config.http.max_body_bytes)


def _push_together(
    service: Ingest, body: bytes, encoding: str | None, producer: Producer | None, partition: int
) -> list[Position]:
    bounds, body = _bounds(service), _unpacked(service, body, encoding)
    extras = service.config.input.ignores_unknown
    pushes = {
        name: decode_json(rows, service.table(name), extras=extras, bounds=bounds)
        for name, rows in tables_in(body).items()
    }
    bounds.refuse_size(sum(push.rows for push in pushes.values()), sum(push.batch.nbytes for push in pushes.values()))
    return service.push_together(pushes, partition=partition, producer=producer)


async def answered(
    service: Ingest, waiters: Waiters, request: Request, answer: dict[str, Any], positions: Sequence[Position],
    timeout_s: float | None, steps: Sequence[int] = (),
) -> JSONResponse:  # fmt: skip
    """Return the response to a durable push, or to `steps` that are logged.

    With a time, wait until the rows are processed, and say whether they are.
    """
    if timeout_s is None:
        return JSONResponse(answer)

    def is_over(now: Snapshot) -> bool:
        return now.halt is not None or (all(map(now.has_processed, positions)) and now.has_finished(steps))

    await waiters.wait_for(request, is_over, timeout_s)
    try:
        for position in positions:
            service.refuse_unprocessed(position, timeout_s)
        service.refuse_unfinished(steps, timeout_s)
    except UnavailableError as error:  # an error's status would ask the client to send the rows again
        return JSONResponse({**answer, "processed": False, "waiting": str(error)}, status_code=202)
    return JSONResponse({**answer, "processed": True})


def position_json(position: Position) -> dict[str, Any]:
    """Return the place of pushed rows as JSON values."""
    return {
        "table": position.table, "partition": position.partition, "first": position.first, "last": position.last,
        "repeated": position.repeated,
    }  # fmt: skip

"""`/v1/views/{view}/changes`: the changes of a view, page by page or as a stream of events.

In JSON or Arrow, a response is a page: `next` says where the next one begins, and `wait_s` lets an empty one wait for
a step. As `text/event-stream`, which a browser's `EventSource` asks for, the response goes on. It has one event per
step that changed the view, with the step as its id. So a client that connects again with `Last-Event-ID` goes on after
the last event it saw. While nothing changes, an id without data is sent now and then. It keeps the connection, and the
client's position, alive.

A client from before a view began anew is refused (416, code `anew`). With `anew=true` the client promises to forget the
view's rows when it is notified. The notice is `anew` in a JSON page, the header `Dbsp-Anew-Step`, or the event `anew`.
Then the changes go on with the whole content of the view.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial

from fastapi import FastAPI, Query, Request, Response
from fastapi.responses import StreamingResponse

from dbsp.coordinator.http.event_pages import EventPage, event_pages
from dbsp.coordinator.http.kinds import ARROW, CSV, EVENTS, JSON, chosen
from dbsp.coordinator.http.lanes import Lane, Lanes
from dbsp.coordinator.http.notifier import Notifier
from dbsp.coordinator.http.refusals import not_offered
from dbsp.coordinator.http.row_texts import csv_of, json_list, json_object, step_json
from dbsp.coordinator.http.waiting import Waiters
from dbsp.coordinator.serving.answers import ViewChanges
from dbsp.coordinator.serving.reads import Reads
from dbsp.errors import ConfigError, DbspError
from dbsp.zset.arrow_stream import arrow_stream

FIRST_HEADER, NEXT_HEADER, ANEW_HEADER = "Dbsp-First-Step", "Dbsp-Next-Step", "Dbsp-Anew-Step"
LAST_EVENT_HEADER = "Last-Event-ID"
KINDS = (JSON, ARROW, CSV, EVENTS)
ROWS_MAX = 10_000
WAIT_S_MAX = 600.0
BEAT_S = 15.0


def add_changes(app: FastAPI, service: Reads, lanes: Lanes, waiters: Waiters) -> None:
    """Add the route of a view's changes."""

    pages = event_pages(service, lanes.reads)

    @app.get(
        "/v1/views/{view}/changes",
        summary="What the steps from `first` on changed in a view, each step once",
        responses={200: {"content": {ARROW: {}, CSV: {}, EVENTS: {}}}},
        openapi_extra={"parameters": [_LAST_EVENT]},
    )
    async def changes(
        view: str,
        request: Request,
        first: int = Query(default=0, ge=0),
        rows_max: int = Query(default=ROWS_MAX, ge=1),
        wait_s: float = Query(default=0.0, ge=0, le=WAIT_S_MAX),
        anew: bool = Query(default=False),
    ) -> Response:
        """Return JSON, an Arrow IPC stream, CSV, or `text/event-stream`, as `Accept` says.

        Begin at 0 or at the `step` of the view's rows. `dead_letters` can be followed like a view. A page has whole
        steps, some `rows_max` rows; with `wait_s` an empty one waits so long for a change. 416: the steps were
        dropped, or never taken, or the view began anew; read the view again and go on from its step. With `anew`
        the changes go on over such a beginning, and say when to forget the rows so far.
        """
        accept, resumed = request.headers.get("accept", ""), _resumed(request, first)
        kind = chosen(accept, KINDS)
        if kind is None:
            return not_offered(accept, KINDS)
        if kind == EVENTS or wait_s or not service.snapshot.settled:
            waiters.followers.admit(request)
        if not service.snapshot.settled:  # the newest step is unknown until the service has recovered
            await waiters.wait_for(request, lambda now: now.settled)
        if kind == EVENTS:
            read_events = partial(pages.read, view, rows_max=rows_max, anew=anew)
            begun = await read_events(resumed)
            headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
            return StreamingResponse(_follow(read_events, waiters.notifier, begun), media_type=EVENTS, headers=headers)
        read = _Reader(service, lanes.reads, view, rows_max, anew)
        page = await _page(request, read, waiters, first, wait_s)
        return await lanes.reads.run(_json, page) if kind == JSON else await lanes.reads.run(_rows, page, kind)


@dataclass(frozen=True, slots=True)
class _Reader:
    """A reader of one view's pages, on the threads of readers."""

    service: Reads
    lane: Lane
    view: str
    rows_max: int
    anew: bool

    async def page(self, first: int) -> ViewChanges:
        """Read the next page."""
        return await self.lane.run(self._read, first)

    def _read(self, first: int) -> ViewChanges:
        return self.service.changes(self.view, first, rows_max=self.rows_max, anew=self.anew)


_LAST_EVENT = {
    "name": LAST_EVENT_HEADER, "in": "header", "required": False, "schema": {"type": "integer", "minimum": 0},
    "description": "the step of the last event: the stream continues after it",
}  # fmt: skip


def _resumed(request: Request, first: int) -> int:
    """Return the step at which a stream begins: after the last event that its reader saw, else `first`."""
    last = request.headers.get(LAST_EVENT_HEADER.lower())
    if last is None:
        return first
    if not (last.isascii() and last.isdigit()) or len(last) > len(str(1 << 63)):
        raise ConfigError(f"not the id of an event: {LAST_EVENT_HEADER}={last[:40]!r}", "send the id of the last event")
    return int(last) + 1


async def _page(request: Request, read: _Reader, waiters: Waiters, first: int, wait_s: float) -> ViewChanges:
    """Return the next page; it is empty only if no step changed the view in time."""
    loop = asyncio.get_running_loop()
    until = loop.time() + wait_s
    found = await read.page(first)
    while not found.steps and found.anew is None and (left := until - loop.time()) > 0:
        at = found.next
        await waiters.wait_for(request, lambda now, at=at: now.step > at, left)  # type: ignore[misc]
        found = await read.page(at)
    return replace(found, first=first)


def _json(page: ViewChanges) -> Response:
    anew = {} if page.anew is None else {"anew": page.anew}
    head = {"view": page.view, "first": page.first, "next": page.next, **anew}
    return Response(json_object(head, changes=json_list(map(step_json, page.steps))), media_type=JSON)


def _rows(page: ViewChanges, kind: str) -> Response:
    """Return the changes of all steps as one table, with the weight and the step as its last columns."""
    headers = {FIRST_HEADER: str(page.first), NEXT_HEADER: str(page.next)}
    if page.anew is not None:
        headers[ANEW_HEADER] = str(page.anew)
    table = page.with_steps()
    body = b"".join(csv_of([table])) if kind == CSV else arrow_stream(table)
    return Response(body, media_type=kind, headers=headers)


async def _follow(
    read: Callable[[int], Awaitable[EventPage]], notifier: Notifier, events: EventPage
) -> AsyncIterator[str]:
    """Yield the events of all further steps, until the service ends or the client disconnects."""
    while True:
        for text in events.texts:
            yield text
        at = events.next
        while not await notifier.wait_for(lambda now, at=at: now.step > at, BEAT_S):  # type: ignore[misc]
            if notifier.ended:
                return
            yield f"id: {at - 1}\n\n" if at else ":\n\n"
        try:
            events = await read(at)
        except DbspError as error:
            refusal = {"error": {"code": error.code, "message": error.message, "hint": error.hint}}
            yield f"event: refused\ndata: {json.dumps(refusal)}\n\n"
            return

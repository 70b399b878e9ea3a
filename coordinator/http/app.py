"""The HTTP interface of a service: rows in, views out, decisions, figures. A thin layer over `service.Service`.

Every response is JSON (`{"error": {"code", "message", "hint"}}` for a refusal) unless the client asks for Arrow. On
loopback without a token, only requests for a loopback host name and without a foreign `Origin` pass. So a web page
cannot reach the service through its visitor's browser. `/openapi.json` describes the whole interface, `/docs` shows
it, and `/` is a console that uses it.
"""

from __future__ import annotations

import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

from fastapi import Depends, FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field, StrictBool
from starlette.exceptions import HTTPException
from starlette.routing import Match

from dbsp.coordinator.http.access_log import AccessLog
from dbsp.coordinator.http.changes import add_changes
from dbsp.coordinator.http.connections import requests_max
from dbsp.coordinator.http.doors import Doors
from dbsp.coordinator.http.lanes import Lane, Lanes
from dbsp.coordinator.http.letters import add_letters
from dbsp.coordinator.http.notifier import Notifier
from dbsp.coordinator.http.observing import add_observing
from dbsp.coordinator.http.pages import add_pages
from dbsp.coordinator.http.pushes import PRODUCER_HEADER, SEQUENCE_HEADER, add_pushes
from dbsp.coordinator.http.refusals import described, refusal_of, refuse
from dbsp.coordinator.http.rendering import plain
from dbsp.coordinator.http.tokens import tokens_of
from dbsp.coordinator.http.views import add_views
from dbsp.coordinator.http.waiting import Followers, Waiters
from dbsp.coordinator.layouts import partitions_between
from dbsp.coordinator.service import Service
from dbsp.errors import ConfigError, DbspError
from dbsp.version import VERSION

NOTHING_MOVED = {"shards_moved": 0, "share": 0.0, "bytes_moved": 0, "bytes_total": 0}


class RescaleBody(BaseModel):
    """The request of a rescale: the new number of workers.

    `dry_run` only says what would move. `strategy` is as in the settings' [layout]. `hosts` maps the hosts of the workers
    to their weights; without it the hosts on offer stay.
    """

    model_config = {"extra": "forbid"}

    workers: int = Field(ge=1)
    dry_run: StrictBool = False
    strategy: Literal["cold", "warmup", "icadd", "redistribute"] | None = None
    hosts: dict[str, float] | None = None


class SkipBody(BaseModel):
    """The request of a decision about a step; a step that was decided before gets the earlier decision again."""

    model_config = {"extra": "forbid"}

    step: int | None = Field(default=None, ge=0)


class BackupBody(BaseModel):
    """The folder, on the service's host, in which the backup gets a folder of its own."""

    model_config = {"extra": "forbid"}

    folder: str = Field(json_schema_extra={"minLength": 1})


class UpgradeBody(BaseModel):
    """The request of an upgrade: the Python interpreter of the other version; None for the version that is installed now.

    With `accepts_pause` steps may wait for the whole start, if a cluster has no room for a second Spark application.
    """

    model_config = {"extra": "forbid"}

    python: str | None = Field(default=None, json_schema_extra={"minLength": 1})
    accepts_pause: bool = False


class StopBody(BaseModel):
    """The request to stop; `now` stops without a last checkpoint."""

    model_config = {"extra": "forbid"}

    now: StrictBool = False


def make_app(service: Service, log: AccessLog | None = None) -> FastAPI:
    """Return the application of a service; `log` gets a line for every request."""
    app = FastAPI(
        title="dbsp",
        version=VERSION,
        docs_url=None,
        redoc_url=None,
        responses=described(),
        dependencies=[Depends(_refuse_unknown)],
    )
    app.add_exception_handler(DbspError, _on_error)
    app.add_exception_handler(RequestValidationError, _on_wrong_request)
    app.add_exception_handler(HTTPException, _on_no_address)
    config = service.config
    most = requests_max(config.http)
    tokens = tokens_of(config.http, config.folder)
    service.watch.reload(tokens)
    app.add_middleware(
        Doors, section=config.http, tokens=lambda: tokens.value, requests_max=most,
        noted_bug=service.note_bug, log=log,
    )  # fmt: skip
    followers_max = min(config.http.followers_max, most // 2)
    lanes = Lanes(queries_max=config.query.at_once_max, followers_max=followers_max)
    notifier = Notifier(service.live_status)
    app.state.notifier = notifier
    waiters = Waiters(notifier=notifier, followers=Followers(followers_max))
    add_pages(app)
    _add_figures(app, service, lanes)
    add_observing(app, service, lanes)
    add_pushes(app, service, lanes, waiters)
    add_views(app, service, lanes)
    add_changes(app, service, lanes, waiters)
    add_letters(app, service, lanes, waiters)
    _add_decisions(app, service, lanes)
    return app


# --- checks of every request ---------------------------------------------------------------------------------------


async def _refuse_unknown(request: Request) -> None:
    """Refuse unknown parameters and headers: a producer's number under a wrong name would let its rows in twice."""
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
    return refusal_of(error if isinstance(error, DbspError) else DbspError(str(error)))


async def _on_wrong_request(request: Request, error: Exception) -> Response:
    """Return the refusal of a body or parameter that does not fit: its name, and the reason."""
    assert isinstance(error, RequestValidationError)  # noqa: S101 - it is registered for nothing else
    found = error.errors()[0]
    if found["loc"] == ("body",) and found["type"] != "json_invalid" and isinstance(found.get("input"), bytes | str):
        said = f"the body is not marked as JSON: Content-Type={request.headers.get('content-type', 'none')}"
        return refuse(422, "config", said, "send Content-Type: application/json")
    place = ".".join(str(part) for part in found["loc"] if part not in ("body", "query", "path"))
    where = f": {place}" if place and found["type"] != "json_invalid" else ""
    reason = str(found["msg"]).lower() if found["type"] != "json_invalid" else "not JSON"
    return refuse(422, "config", f"the request is wrong{where}: {reason}", "see /docs")


async def _on_no_address(request: Request, error: Exception) -> Response:
    """Return the refusal of an unknown address, or of a method that the address does not have."""
    assert isinstance(error, HTTPException)  # noqa: S101 - it is registered for nothing else
    what = "no such address" if error.status_code == 404 else str(error.detail).lower()  # noqa: PLR2004 - HTTP's own
    answer = refuse(error.status_code, "config", f"{what}: {request.method} {request.url.path}", "see /docs")
    answer.headers.update(error.headers or {})
    if error.status_code == 405:  # noqa: PLR2004 - the framework names the methods of the first of several routes alone
        answer.headers["Allow"] = ", ".join(_methods(request))
    return answer


def _methods(request: Request) -> list[str]:
    """Return the methods of all routes of the request's address."""
    routes = [route for route in request.app.routes if route.matches(request.scope)[0] is not Match.NONE]
    return sorted({method for route in routes for method in route.methods})


# --- figures --------------------------------------------------------------------------------------------------------


def _add_figures(app: FastAPI, service: Service, lanes: Lanes) -> None:
    lane = lanes.figures

    @app.get("/healthz", summary="Whether this process answers at all; needs no token")
    async def healthz() -> Response:
        return JSONResponse({"alive": True})

    @app.get("/v1/status", summary="State, step, version, lag")
    async def status() -> Response:
        return await lane.run(lambda: JSONResponse(plain(service.status())))

    @app.get("/v1/explain", summary="The plan, and what every node did: rows, time, state, busiest worker")
    async def explain() -> Response:
        return await lane.run(lambda: JSONResponse({"plan": service.explain()}))

    @app.get("/v1/layout", summary="Shards, workers, hosts")
    async def layout() -> Response:
        return await lane.run(lambda: JSONResponse(plain(service.layout_status())))

    @app.get("/v1/completion", summary="The progress of one row: durable, processed, delivered")
    async def completion(table: str, partition: int = 0, offset: int = Query(ge=0)) -> Response:
        return await lane.run(lambda: JSONResponse(asdict(service.completion(table, partition, offset))))

    @app.get(
        "/metrics",
        summary="Prometheus metrics",
        responses={200: {"content": {"text/plain": {}}}},
        response_class=Response,
    )
    async def metrics() -> Response:
        return await lane.run(lambda: Response(metrics_of(service), media_type="text/plain; version=0.0.4"))

    @app.get("/readyz", summary="Whether steps are taken and answers given; 503 with the alarms while not")
    async def readyz() -> Response:
        ready, shown = service.readiness()
        return JSONResponse(shown, status_code=200 if ready else 503)


def metrics_of(service: Service) -> bytes:
    """Return the metrics of a service in Prometheus' format."""
    now = replace(service.snapshot, lag_rows=service.lag_rows())
    standings = service.built.parts.waterlines.standings
    beside = (service.delta.status, service.copies.status, service.watch.health, standings)
    return service.metrics.text(now, *beside, service.copies_lag(), service.standbys)


# --- decisions ------------------------------------------------------------------------------------------------------


def _add_decisions(app: FastAPI, service: Service, lanes: Lanes) -> None:
    """Add the routes of long decisions, and of those that end or undo one, which have threads of their own."""
    lane = lanes.decisions

    @app.post("/v1/checkpoint", summary="Commit the state; answered when it is published")
    async def checkpoint() -> Response:
        version = await lane.run(service.checkpoint)
        return JSONResponse({"version": version, "step": service.snapshot.checkpoint_step})

    @app.post("/v1/backup", summary="Copy all that is needed to go on from now; answered when it is whole")
    async def backup(body: BackupBody) -> Response:
        """Read the progress as `backup` in `/v1/status`, and the last backup as `last_backup`."""
        return JSONResponse(await lane.run(service.back_up, _path(body.folder)))

    @app.post("/v1/keep", summary="Keep the state among the copies of checkpoints; answered when it is published")
    async def keep() -> Response:
        """Delete a kept version with `coordinator backups PLACE --delete VERSION`."""
        return JSONResponse(await lane.run(service.keep_version))

    @app.post("/v1/rescale", summary="Change the number of workers; answered when the rescale is done")
    async def rescale(body: RescaleBody) -> Response:
        return JSONResponse(await lane.run(_rescale, service, body))

    @app.post(
        "/v1/upgrade", summary="Replace the service by another version of dbsp; answered just before the replacement"
    )
    async def upgrade(body: UpgradeBody | None = None) -> Response:
        python = None if body is None or body.python is None else str(_path(body.python))
        accepts_pause = body is not None and body.accepts_pause
        return JSONResponse(asdict(await lane.run(service.upgrade, None, python, accepts_pause=accepts_pause)))

    _add_turns(app, service, lanes.turns)


def _path(text: str) -> Path:
    """Return the path of a folder; refuse texts that JSON allows and no file can have as its name."""
    try:
        if "\0" not in text and os.fsencode(text):
            return Path(text)
    except UnicodeEncodeError:
        pass
    raise ConfigError(f"not a path: folder={ascii(text)[:200]}", "name a folder on the service's host")


def _add_turns(app: FastAPI, service: Service, lane: Lane) -> None:
    @app.post("/v1/pause", summary="Take no further step")
    async def pause() -> Response:
        return JSONResponse({"state": "Paused", "step": await lane.run(service.pause)})

    @app.post("/v1/resume", summary="Take steps again")
    async def resume() -> Response:
        return JSONResponse({"state": "Running", "step": await lane.run(service.resume)})

    @app.delete("/v1/rescale", summary="Take back a rescale; answered when nothing of it is left")
    async def cancel() -> Response:
        await lane.run(service.cancel_rescale)
        return JSONResponse({"cancelled": True, "workers": len(service.layout().workers)})

    @app.post("/v1/accept-output", summary="Go on with the output that a step gives now, and put out the difference")
    async def accept_output(body: SkipBody | None = None) -> Response:
        return JSONResponse(asdict(await lane.run(service.accept_output, body.step if body is not None else None)))

    @app.post("/v1/skip", summary="Go on without the rows that halt the pipeline: they become dead letters")
    async def skip(body: SkipBody | None = None) -> Response:
        return JSONResponse(asdict(await lane.run(service.skip, body.step if body is not None else None)))

    @app.post("/v1/stop", summary="Checkpoint and end")
    async def stop(body: StopBody | None = None) -> Response:
        now = body is not None and body.now
        await lane.run(lambda: service.ask_to_stop(now=now))
        return JSONResponse({"stopping": True})


def _rescale(service: Service, body: RescaleBody) -> dict[str, Any]:
    hosts = None if body.hosts is None else tuple(body.hosts.items())
    planned, before = service.plan_rescale(body.workers, hosts), service.layout()
    shown = {**asdict(planned), "share": planned.share, "done": False}
    if not body.dry_run:
        moved = service.rescale(body.workers, strategy=body.strategy, hosts=hosts, plan=planned)
        shown |= {"done": True, "layout_version": service.layout().version, "pause_seconds": None}
        shown["partitions_moved"] = [asdict(each) for each in partitions_between(before, service.layout())]
        shown |= NOTHING_MOVED if moved is None else {**asdict(moved), "share": moved.share}
    return shown

"""The routes that observe a service beside its status: history, dataflow, settings in force, the last lines of the log."""

from __future__ import annotations

from fastapi import FastAPI, Query, Response
from fastapi.responses import JSONResponse

from dbsp.coordinator.http.lanes import Lanes
from dbsp.coordinator.http.rendering import plain
from dbsp.coordinator.running.log_tail import last_events
from dbsp.coordinator.service import Service
from dbsp.coordinator.settings.settings_shown import settings_as_json

LINES_MAX = 5_000
NUMBER_MAX = (1 << 53) - 1


def add_observing(app: FastAPI, service: Service, lanes: Lanes) -> None:
    """Add the routes that observe a service."""
    lane = lanes.figures

    @app.get(
        "/v1/history", summary="Figures of the last hour in points of five seconds; the last checkpoints and events"
    )
    async def history(first: int = Query(default=0, ge=0, le=NUMBER_MAX)) -> Response:
        """Return the points from number `first` on, column by column; `next` is the number to go on with.

        Counts of a point are sums over its five seconds; `lag_rows`, `state_bytes` and `state` are as of its end.
        `latency_seconds` is the mean time from the arrival of rows until their results are in the outputs. A restart of
        the service begins a new history.
        """
        return await lane.run(lambda: JSONResponse(service.history.as_json(first)))

    @app.get("/v1/dataflow", summary="The plan as a graph: nodes with their figures by worker, edges, tables, views")
    async def dataflow() -> Response:
        """Return the graph; figures are sums since this process started, state is as of the last step.

        An edge with `by` is an exchange between workers. `source` is the line of the user's program that made a node.
        """
        return await lane.run(lambda: JSONResponse(plain(service.dataflow())))

    @app.get("/v1/settings", summary="The settings in force, with defaults and where each was set; secrets are hidden")
    async def settings() -> Response:
        """Return the settings of the service's start; needs the scope `admin`. `origin` is a file, a variable or `--set`."""
        return await lane.run(lambda: JSONResponse(plain(settings_as_json(service.config))))

    @app.get("/v1/logs", summary="The last events of the service's log, the newest first")
    async def logs(
        lines: int = Query(default=200, ge=1, le=LINES_MAX), contains: str = Query(default="", max_length=200)
    ) -> Response:
        """Return at most so many events whose line contains a text, whatever its case; needs the scope `admin`."""
        config = service.config
        found = await lanes.reads.run(last_events, config.log_file, config.log.files_kept, lines, contains)
        return JSONResponse({"file": str(config.log_file), "events": found})

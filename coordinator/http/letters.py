"""`/v1/dead-letters`: the rows that could not be used, and their replay.

Clients follow them at `/v1/views/dead_letters/changes`, as a view, and query them as the relation `dead_letters`.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from fastapi import FastAPI, Query, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field, StrictBool

from dbsp.coordinator.http.lanes import Lanes
from dbsp.coordinator.http.pushes import PUSHED, Patience, answered, position_json
from dbsp.coordinator.http.waiting import Waiters
from dbsp.coordinator.running.letters import Letter
from dbsp.coordinator.serving.answers import LetterPage, LetterReplay, ReplayedIn
from dbsp.coordinator.serving.letter_codes import COLUMNS, Code
from dbsp.coordinator.serving.letters import DeadLetters, LetterFilter
from dbsp.io.pushed import Position

LIMIT_MAX = 10_000
POSITION = r"^[0-9]{1,18}(-[0-9]{1,9})?$"


class ReplayBody(BaseModel):
    """The letters to replay: those that match all fields.

    `first` and `last` are steps ("7") or letters ("7-2"), both included.
    """

    model_config = {"extra": "forbid"}

    table: str | None = None
    code: Code | None = None
    reason: str | None = None
    first: str | None = Field(default=None, pattern=POSITION)
    last: str | None = Field(default=None, pattern=POSITION)
    dry_run: StrictBool = False


def add_letters(app: FastAPI, service: DeadLetters, lanes: Lanes, waiters: Waiters) -> None:
    """Add the routes of dead letters."""

    @app.get("/v1/dead-letters", summary="Rows that could not be used: table, partition, offset, reason, text")
    async def dead_letters(  # noqa: PLR0913 - each is a parameter of the request
        *,
        table: str | None = None,
        code: Code | None = None,
        reason: str | None = None,
        first: str | None = Query(default=None, pattern=POSITION),
        last: str | None = Query(default=None, pattern=POSITION),
        limit: int = Query(default=100, ge=0, le=LIMIT_MAX),
        cursor: str | None = Query(default=None, pattern=POSITION),
        newest: bool = False,
        replayed: bool | None = None,
    ) -> JSONResponse:
        """Return the letters of finished steps in the order of `position`, or the `newest` first.

        Pass `next` as `cursor` to go on. `code` says what kind of letter it is. A letter without an offset says why in
        `unplaced`. `replayed` is where its row was pushed again, or the step that took it. `replayed=false` leaves such
        letters out, and `replayed=true` the others; `hidden` counts what was left out. `reason` is a part of the letter's
        reason. Follow letters at `/v1/views/dead_letters/changes`.
        """
        wanted = LetterFilter(table=table, code=code, reason=reason, first=first, last=last)
        page = await lanes.reads.run(
            service.dead_letters, wanted, limit=limit, cursor=cursor, newest=newest, replayed=replayed
        )
        return JSONResponse(_page(page))

    @app.post(
        "/v1/dead-letters/replay",
        summary="Use the rows of dead letters as new input, each letter at most once",
        responses=PUSHED,
    )
    async def replay(
        request: Request, body: ReplayBody | None = None, wait: bool = False, timeout_s: Patience = 60.0
    ) -> JSONResponse:
        """Read the row of each letter as the table's rows are read now, and use it as new input.

        Rows that were pushed are pushed again, at `positions`. Those of topics and files are taken by steps of their own,
        `steps`. `failed_again` rows still cannot be read. They are not used, and their letters stay; `again` has the reasons.
        `not_replayable` counts the others by the reason. A letter that was replayed before adds nothing, so the request
        can be repeated. `wait` as for pushes.
        """
        if wait:
            waiters.followers.admit(request)
        asked = (body or ReplayBody()).model_dump()
        dry_run = asked.pop("dry_run")
        found = await lanes.decisions.run(service.replay_letters, LetterFilter(**asked), dry_run=dry_run)
        patience = timeout_s if wait and not dry_run else None
        return await answered(service, waiters, request, _replay(found), found.positions, patience, found.steps)


def _page(page: LetterPage) -> dict[str, Any]:
    return {
        "step": page.step, "total": page.total, "hidden": page.hidden, "next": page.next,
        "kept_from": page.kept_from, "left_out": page.left_out,
        "letters": [_letter(letter, position) for letter, position in page.letters],
    }  # fmt: skip


def _letter(letter: Letter, replayed: Position | ReplayedIn | None) -> dict[str, Any]:
    found = {**letter.values(), "replayed": None if replayed is None else _place(replayed)}
    return {name: found[name] for name in COLUMNS}


def _place(position: Position | ReplayedIn) -> dict[str, int]:
    if isinstance(position, ReplayedIn):
        return {"step": position.step}
    return {"partition": position.partition, "offset": position.first}


def _replay(found: LetterReplay) -> dict[str, Any]:
    return {**asdict(found), "positions": [position_json(position) for position in found.positions]}

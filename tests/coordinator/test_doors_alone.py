"""The layer that every request passes, before an application that reads, answers or fails as it is told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.types import Message, Receive, Scope, Send

from dbsp.coordinator.http.doors import SMALL_BODY_BYTES_MAX, Doors
from dbsp.coordinator.http.section import HttpSection
from dbsp.coordinator.http.tokens import Tokens

BOUND = 100
PUSH = "/v1/tables/t/rows"


class World:
    """Doors before an application, and what both have seen."""

    def __init__(self, ending: str = "answers", *, most: int = BOUND) -> None:
        self.ending, self.read, self.bugs = ending, list[bytes](), list[str]()
        section = HttpSection(max_body_bytes=most, body_timeout_s=0.1)
        self.doors = Doors(
            self.app, section=section, tokens=Tokens, requests_max=2, noted_bug=lambda where, _: self.bugs.append(where)
        )  # fmt: skip

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.ending == "reads nothing":
            await JSONResponse({})(scope, receive, send)
            return
        try:
            self.read.append(await Request(scope, receive).body())
        except ClientDisconnect:
            if self.ending == "swallows":  # as FastAPI answers whatever went wrong with a body
                await JSONResponse({"detail": "there was an error"}, status_code=400)(scope, receive, send)
                return
            raise
        if self.ending == "fails":
            raise KeyError("nothing")
        await JSONResponse({})(scope, receive, send)

    async def ask(self, pieces: Sequence[int], path: str = PUSH, then: str = "ends") -> tuple[int, dict[str, Any]]:
        """Send a body in pieces of these lengths, which then ends, breaks off, or is left waiting."""
        left = [{"type": "http.request", "body": b"x" * size, "more_body": True} for size in pieces]
        left += {
            "ends": [{"type": "http.request", "body": b""}],
            "breaks off": [{"type": "http.disconnect"}],
            "waits": [],
        }[then]
        sent: list[Message] = []

        async def receive() -> Message:
            if not left:
                await asyncio.sleep(3600)
            return left.pop(0)

        async def send(message: Message) -> None:
            sent.append(message)

        scope = {
            "type": "http", "method": "POST", "path": path, "scheme": "http", "headers": [(b"host", b"localhost")],
            "client": ("127.0.0.1", 1), "query_string": b"", "http_version": "1.1",
        }  # fmt: skip
        await self.doors(scope, receive, send)
        return sent[0]["status"], json.loads(b"".join(message.get("body", b"") for message in sent))


endings = st.sampled_from(["answers", "swallows", "fails", "reads nothing"])
bodies = st.lists(st.integers(0, 2 * BOUND), max_size=6)


REQUESTS = (bodies, endings, st.sampled_from(["ends", "breaks off"]), st.sampled_from([PUSH, "/v1/transactions"]))
TOGETHER = st.lists(st.integers(0, SMALL_BODY_BYTES_MAX), min_size=1, max_size=8)


@given(*REQUESTS)
def test_a_body_within_the_bound_is_read_and_no_other_is(pieces: list[int], ending: str, then: str, path: str) -> None:
    """Law: what the application gets of a body is all of it, within the bound; whatever happens, nothing stays counted."""
    world = World(ending)
    status, answer = asyncio.run(world.ask(pieces, path, then))
    fits = sum(pieces) <= BOUND
    if ending == "reads nothing":
        assert status == 200
    elif not fits:
        assert status == 413
        assert answer["error"]["code"] == "capacity"
    elif then == "ends":
        assert status == (500 if ending == "fails" else 200)
    assert world.read == ([b"x" * sum(pieces)] if fits and then == "ends" and ending != "reads nothing" else [])
    assert (world.doors.body_bytes, world.doors.requests) == (0, 0)
    assert world.bugs == ([f"POST {path}"] if ending == "fails" and world.read else [])


@given(TOGETHER)
def test_all_bodies_together_have_a_bound(sizes: list[int]) -> None:
    """Requests that were begun one after the other and whose bodies wait."""

    async def run() -> list[int]:
        world = World(most=SMALL_BODY_BYTES_MAX)
        world.doors.requests_max = len(sizes)
        begun = [asyncio.ensure_future(world.ask([size], then="waits")) for size in sizes]
        answers = await asyncio.gather(*begun)
        assert (world.doors.body_bytes, world.doors.requests) == (0, 0)
        return [status for status, _ in answers]

    held, expected = 0, []
    for size in sizes:
        refused = held + size > 2 * SMALL_BODY_BYTES_MAX
        held += 0 if refused else size
        expected.append(429 if refused else 408)
    assert asyncio.run(run()) == expected


def test_bodies_without_rows_have_a_bound_of_their_own() -> None:
    for path in ("/v1/query", "/v1/stop", "/v1/anything"):
        status, answer = asyncio.run(World().ask([SMALL_BODY_BYTES_MAX, 1], path))
        assert (status, answer["error"]["message"]) == (413, f"the body is too large: bytes_max={SMALL_BODY_BYTES_MAX}")


def test_only_so_many_requests_are_under_way_and_figures_beside_them() -> None:
    async def run() -> list[int]:
        world = World()
        begun = [asyncio.ensure_future(world.ask([1], then="waits")) for _ in range(3)]
        figures = [
            asyncio.ensure_future(world.ask([], path)) for path in ("/v1/status", "/metrics", "/healthz", "/readyz")
        ]
        return [status for status, _ in await asyncio.gather(*begun, *figures)]

    assert asyncio.run(run()) == [408, 408, 429, 200, 200, 200, 200]

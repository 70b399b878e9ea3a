"""Checks that every request passes before its route runs: access, rate, number at once, and size of the body.

A pure ASGI layer around the application. Invariants
1. The bytes of a body are counted as they arrive, on every route, and the request ends at the bound: 413 names the
   setting.
2. All bodies together take at most `BODIES_AT_ONCE` times the bound of one.
3. A body that makes no progress for `body_timeout_s` is refused (408).
4. At most `requests_max` requests are in progress. Those for `FIGURES` do not count, so that they always find a place.
5. A request's resources are released when it ends, however it ends.
6. At most `BEGUN_AT_ONCE` requests begin in one turn of the event loop. Those for `FIGURES` begin at once, so they wait for
   a few others and not for all that arrived together.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

from fastapi.responses import JSONResponse
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dbsp.coordinator.client.unpacking import too_large
from dbsp.coordinator.http.access import refusal
from dbsp.coordinator.http.access_log import AccessLog
from dbsp.coordinator.http.rates import RateLimiter
from dbsp.coordinator.http.refusals import refusal_of, refuse
from dbsp.coordinator.http.section import HttpSection
from dbsp.coordinator.http.tokens import PUSH, Tokens
from dbsp.coordinator.serving.admission import refuse_scarcity
from dbsp.errors import CapacityError, DbspError, OverloadedError

FIGURES = frozenset({"/v1/status", "/metrics", "/healthz", "/readyz"})
UNLIMITED = frozenset({"/healthz", "/readyz"})
SMALL_BODY_BYTES_MAX = 2 << 20
"""The bound of a body that is no push."""
BODIES_AT_ONCE = 2
BEGUN_AT_ONCE = 4
"""The most requests that begin in one turn of the event loop. Each takes about a millisecond before it first waits."""
PASSAGE = "dbsp.passage"
AGAIN = "send it again later"
KEPT_SAFE = ((b"x-content-type-options", b"nosniff"), (b"cross-origin-resource-policy", b"same-origin"))


class Doors:
    """The layer of checks around the application.

    `tokens` returns the present tokens; `noted_bug(where, error)` records errors that no rule covers.
    """

    def __init__(
        self, app: ASGIApp, *, section: HttpSection, tokens: Callable[[], Tokens], requests_max: int,
        noted_bug: Callable[[str, BaseException], None], log: AccessLog | None = None,
    ) -> None:  # fmt: skip
        """Create the layer with no request in progress."""
        self.app, self.section, self.noted_bug = app, section, noted_bug
        self._tokens, self._log, self._rates = tokens, log, RateLimiter(section.requests_per_s_max)
        self.requests_max, self.requests, self.body_bytes, self._turns = requests_max, 0, 0, Turns()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        if scope["path"] not in FIGURES:
            await self._turns.wait()
        passage = Passage(self, scope, receive, send)
        begun_s = time.monotonic()
        scope[PASSAGE] = passage
        try:
            await passage.answer()
        finally:
            passage.close()
            if self._log is not None:
                milliseconds = (time.monotonic() - begun_s) * 1000
                self._log.write(
                    client=_address(scope), method=scope["method"], path=scope["path"], status=passage.status,
                    milliseconds=milliseconds,
                )  # fmt: skip

    def refusal(self, scope: Scope) -> JSONResponse | None:
        """Return why a request is refused before any of its body is read; None lets it pass."""
        path, method = scope["path"], scope["method"]
        if path not in UNLIMITED and not self._rates.allows(_address(scope), time.monotonic()):
            return refusal_of(OverloadedError(f"too many requests: requests_per_s_max={self._rates.per_s}", AGAIN))
        refused = refusal(self._tokens(), method, path, scope["scheme"], scope["headers"])
        if refused is not None:
            return refused
        if self.requests >= self.requests_max and path not in FIGURES:
            return refusal_of(OverloadedError(f"too many requests at once: requests={self.requests}", AGAIN))
        return None


class Turns:
    """The queue of requests that wait for a turn of the event loop in which they may begin."""

    def __init__(self) -> None:
        """Begin with nobody in the queue."""
        self._waiting = deque[asyncio.Future[None]]()

    async def wait(self) -> None:
        """Wait until the requests that arrived earlier have begun, and a turn has room."""
        loop = asyncio.get_running_loop()
        mine = loop.create_future()
        if not self._waiting:
            loop.call_soon(self._begin, loop)
        self._waiting.append(mine)
        await mine

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        for _ in range(min(BEGUN_AT_ONCE, len(self._waiting))):
            first = self._waiting.popleft()
            if not first.done():  # its client may have gone
                first.set_result(None)
        if self._waiting:
            loop.call_soon(self._begin, loop)


class Passage:
    """The passage of one request through the checks: its counted bytes, its status, its actions at the end."""

    def __init__(self, doors: Doors, scope: Scope, receive: Receive, send: Send) -> None:
        """Begin without any counted byte."""
        self._doors, self._scope, self._receive, self._send = doors, scope, receive, send
        self._bytes_max = doors.section.max_body_bytes if PUSH.fullmatch(scope["path"]) else SMALL_BODY_BYTES_MAX
        self._taken, self._whole = 0, False
        self._refused: JSONResponse | None = None
        self.at_end: list[Callable[[], None]] = []
        self.status = 0

    async def answer(self) -> None:
        """Let the application respond, or refuse the request."""
        refused = self._doors.refusal(self._scope) or self._announced_too_much()
        if refused is None:
            with self._counted():
                refused = await self._answered()
        if refused is not None and not self.status:
            await refused(self._scope, self._receive, self._sent)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        counts = self._scope["path"] not in FIGURES
        self._doors.requests += counts
        try:
            yield
        finally:
            self._doors.requests -= counts

    async def _answered(self) -> JSONResponse | None:
        where = f"{self._scope['method']} {self._scope['path']}"
        try:
            await self._doors.app(self._scope, self._received, self._from_app)
        except ClientDisconnect:  # no client reads the response; no row of a partial body is taken
            return self._refused or refuse(400, "data", "the request ended before its body", "send it again")
        except DbspError as error:
            return self._refused or refusal_of(error)
        except Exception as error:  # noqa: BLE001 - a bug of ours is answered as one, and the service goes on
            if self._refused is None:
                self._doors.noted_bug(where, error)
                message = f"a bug: {type(error).__name__}: {error}"
                return refuse(500, "internal", message, "report it; the log of the service has its story")
        return self._refused

    def _announced_too_much(self) -> JSONResponse | None:
        for name, value in self._scope["headers"]:
            if name == b"content-length" and int(value) > self._bytes_max:
                return self._too_large()
        return None

    def _too_large(self) -> JSONResponse:
        if self._bytes_max == SMALL_BODY_BYTES_MAX:
            return refusal_of(CapacityError(f"the body is too large: bytes_max={self._bytes_max}", "send less"))
        return refusal_of(too_large("body", self._bytes_max))

    async def _received(self) -> Message:
        """Receive the next piece of the body, within its bounds; after the body, wait for the client to leave."""
        if self._whole:
            return await self._receive()
        try:
            async with asyncio.timeout(self._doors.section.body_timeout_s):
                message = await self._receive()
        except TimeoutError:
            seconds = self._doors.section.body_timeout_s
            story = f"the rest of the body did not arrive in time: body_timeout_s={seconds}"
            raise self._stopped(refuse(408, "unavailable", story, AGAIN)) from None
        self._whole = message["type"] != "http.request" or not message.get("more_body", False)
        self._take(len(message.get("body", b"")))
        return message

    def _take(self, size: int) -> None:
        self._taken += size
        self._doors.body_bytes += size
        if self._taken > self._bytes_max:
            raise self._stopped(self._too_large())
        most = BODIES_AT_ONCE * max(self._doors.section.max_body_bytes, SMALL_BODY_BYTES_MAX)
        if self._doors.body_bytes > most:
            story = f"too many bodies at once: bytes={self._doors.body_bytes} bytes_max={most}"
            raise self._stopped(refusal_of(OverloadedError(story, AGAIN)))

    def _stopped(self, refused: JSONResponse) -> ClientDisconnect:
        """Remember the refusal, which is sent whatever the application makes of the error."""
        self._refused = refused
        return ClientDisconnect()

    async def _from_app(self, message: Message) -> None:
        if self._refused is None or self.status:
            await self._sent(message)

    async def _sent(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [*message.get("headers", ()), *KEPT_SAFE]
        await self._send(message)

    def release_body(self) -> None:
        """Release the bytes of the body, which is not used any more."""
        self._doors.body_bytes -= self._taken
        self._taken = 0

    def close(self) -> None:
        """Release the request's resources."""
        self.release_body()
        for action in self.at_end:
            action()


@asynccontextmanager
async def whole_body(request: Request) -> AsyncIterator[bytes]:
    """Read the body of a request, and release its bytes afterwards, however long the response takes."""
    try:
        parts, size, checked = [], 0, 0
        async for part in request.stream():
            parts.append(part)
            size += len(part)
            if size >= checked:  # before it grows much further, and before anything of it is decoded
                refuse_scarcity(size)
                checked = 2 * size
        yield b"".join(parts)
    finally:
        request.scope[PASSAGE].release_body()


def _address(scope: Scope) -> str:
    client = scope.get("client")
    return str(client[0]) if client else ""

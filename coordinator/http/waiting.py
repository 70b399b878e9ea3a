"""Requests that wait for steps: their bounded number, and their end when the client leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request

from dbsp.coordinator.http.doors import PASSAGE
from dbsp.coordinator.http.notifier import Notifier
from dbsp.coordinator.running.status import Snapshot
from dbsp.errors import OverloadedError

T = TypeVar("T")


class Followers:
    """A counter of waiting requests: those that follow a view, and pushes that wait for the results of their rows."""

    def __init__(self, most: int) -> None:
        """Create the counter, without any waiting request."""
        self._most, self._now = most, 0

    def admit(self, request: Request) -> None:
        """Count a request until its response is over; `OverloadedError` if too many wait already."""
        if self._now >= self._most:
            raise OverloadedError(
                f"too many requests wait for steps: waiting={self._now} most={self._most}",
                "ask again later, or raise `followers_max` (and `connections_max`) in [http]",
            )
        self._now += 1
        request.scope[PASSAGE].at_end.append(self._leave)

    def _leave(self) -> None:
        self._now -= 1


class Waiters:
    """A wait for steps on behalf of requests, none of which holds a thread."""

    def __init__(self, *, notifier: Notifier, followers: Followers) -> None:
        """Create it from the notifier and the counter of waiting requests."""
        self.notifier, self.followers = notifier, followers

    async def wait_for(
        self, request: Request, condition: Callable[[Snapshot], bool], timeout_s: float | None = None
    ) -> None:
        """Wait until the condition holds, the service has ended, or time is up; `ClientDisconnect` if the client leaves."""
        await while_there(request, self.notifier.wait_for(condition, timeout_s))


async def while_there(request: Request, waiting: Coroutine[Any, Any, T]) -> T:
    """Wait for a result while the client is connected; `ClientDisconnect` if it leaves. The body has been read before."""
    result, gone = asyncio.ensure_future(waiting), asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait({result, gone}, return_when=asyncio.FIRST_COMPLETED)
        if result.done():
            return result.result()
        raise ClientDisconnect
    finally:
        for task in (result, gone):
            task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await task


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass

"""Requests that wait for steps: how many may, and that they end when their client goes."""

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
    """How many requests may wait: those that follow a view, and pushes that wait for the results of their rows."""

    def __init__(self, most: int) -> None:
        """Have no follower."""
        self._most, self._now = most, 0

    def admit(self, request: Request) -> None:
        """Count a request until its answer is over; `OverloadedError` where too many wait already."""
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
    """Waiting for steps on behalf of requests, none of which holds a thread."""

    def __init__(self, *, notifier: Notifier, followers: Followers) -> None:
        """Have nobody wait."""
        self.notifier, self.followers = notifier, followers

    async def wait_for(
        self, request: Request, condition: Callable[[Snapshot], bool], timeout_s: float | None = None
    ) -> None:
        """Wait until the condition holds, the service has ended, or time is up; `ClientDisconnect` when the client goes."""
        await while_there(request, self.notifier.wait_for(condition, timeout_s))


async def while_there(request: Request, waiting: Coroutine[Any, Any, T]) -> T:
    """Wait for a result as long as the client is there; `ClientDisconnect` when it goes. The body has been read."""
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

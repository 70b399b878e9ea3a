"""Threads for requests, a bounded number for each kind, so that no kind of request waits for another.

A request that waits for a thread holds none. If too many wait, the next one is refused (429). Status, health and
metrics have a lane of their own, so that other requests never delay them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import ParamSpec, TypeVar

import anyio
import anyio.to_thread

from dbsp.errors import OverloadedError, UnavailableError

P = ParamSpec("P")
T = TypeVar("T")

AGAIN = "ask again later"


class Lane:
    """A bounded number of threads, and of requests that wait for one of them."""

    def __init__(self, what: str, *, threads: int, waiting_max: int, hint: str = AGAIN) -> None:
        """Start no thread."""
        self._what, self._hint = what, hint
        self._free = asyncio.Semaphore(threads)
        self._limiter = anyio.CapacityLimiter(threads)
        self._waiting, self._waiting_max = 0, waiting_max

    async def run(self, action: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
        """Run an action on a thread of the lane, as soon as one is free.

        **Errors** `OverloadedError` if too many wait.
        """
        return await self.run_within(None, action, *args, **named)

    async def run_within(self, patience_s: float | None, action: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
        """Run an action; wait for a thread no longer than `patience_s`, then raise `UnavailableError`."""
        await self._take(patience_s)
        try:
            return await anyio.to_thread.run_sync(partial(action, *args, **named), limiter=self._limiter)
        finally:
            self._free.release()

    async def _take(self, patience_s: float | None) -> None:
        if self._free.locked() and self._waiting >= self._waiting_max:
            raise OverloadedError(f"too many {self._what} at once: waiting={self._waiting}", self._hint)
        self._waiting += 1
        try:
            async with asyncio.timeout(patience_s):
                await self._free.acquire()
        except TimeoutError:
            raise UnavailableError(f"too many {self._what} run at once", self._hint) from None
        finally:
            self._waiting -= 1


class Lanes:
    """The lanes of a service, one for each kind of request."""

    def __init__(self, *, queries_max: int, followers_max: int) -> None:
        """Start no thread; all admitted followers may begin to read at once."""
        self.figures = Lane("requests for figures", threads=4, waiting_max=256)
        self.pushes = Lane("pushes", threads=6, waiting_max=1024, hint="send it again later")
        self.reads = Lane("readers", threads=4, waiting_max=max(512, followers_max))
        self.queries = Lane(
            "queries", threads=queries_max, waiting_max=16 * queries_max,
            hint="ask again, or raise `at_once_max` in [query]",
        )  # fmt: skip
        self.decisions = Lane("decisions", threads=16, waiting_max=0, hint="wait for those that are under way")
        self.turns = Lane("decisions", threads=8, waiting_max=64)
        """The lane of decisions that end or undo another decision, and so must never wait for it."""

"""Waiting for the service's next step without a thread for each waiting request."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress

from dbsp.coordinator.running.status import LiveStatus, Snapshot


class Notifier:
    """A waker of coroutines when a step is done, or the service has settled, halted or ended.

    Another thread posts to the live status.
    """

    def __init__(self, live_status: LiveStatus) -> None:
        """Begin to listen to the live status."""
        self._live_status, self._heard = live_status, live_status.now
        self._lock = threading.Lock()
        self._waiting: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}
        live_status.listen(self._ring)

    @property
    def waiting(self) -> int:
        """Return the number of waiting coroutines."""
        return len(self._waiting)

    @property
    def ended(self) -> bool:
        """Return whether the service has ended."""
        return self._live_status.now.ended

    async def wait_for(self, condition: Callable[[Snapshot], bool], timeout_s: float | None = None) -> bool:
        """Wait until the condition holds, the service has ended, or time is up; return whether the condition holds."""
        news = asyncio.Event()
        with self._lock:
            self._waiting[news] = asyncio.get_running_loop()
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    while not (condition(self._live_status.now) or self._live_status.now.ended):
                        await news.wait()
                        news.clear()
        finally:
            with self._lock:
                del self._waiting[news]
        return condition(self._live_status.now)

    def _ring(self, now: Snapshot) -> None:
        """Wake the waiting coroutines, on the thread that posts; most posts change nothing that they wait for."""
        before, self._heard = self._heard, now
        if _awaited(now) == _awaited(before):
            return
        with self._lock:
            for news, loop in self._waiting.items():
                with suppress(RuntimeError):  # the server's loop has closed
                    loop.call_soon_threadsafe(news.set)


def _awaited(now: Snapshot) -> tuple[object, ...]:
    """Return the facts of a status that a coroutine may wait for."""
    return now.step, now.settled, now.halt, now.ended

"""Cancel a waiting statement at once: by request, after its time, when its client disconnects, or when the service stops."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from dbsp.coordinator.postgres.refusals import CANCELLED, PostgresRefusal

T = TypeVar("T")


class StopSignal:
    """A signal that cancels the running statement of one session; only the thread of the sessions may use it."""

    def __init__(self, timeout_s: float | None = None) -> None:
        """Start the timeout of the statement: `timeout_s` seconds from now; None means no limit."""
        loop = asyncio.get_running_loop()
        self._set = asyncio.Event()
        self._ends_s = None if timeout_s is None else loop.time() + timeout_s
        self._timeout_s = timeout_s

    def stop(self) -> None:
        """Cancel the statement."""
        self._set.set()

    def refuse(self) -> None:
        """Raise `PostgresRefusal` if the statement is cancelled, or its time is over."""
        if self._set.is_set():
            raise PostgresRefusal(CANCELLED, "canceling statement due to user request")
        if self._ends_s is not None and asyncio.get_running_loop().time() >= self._ends_s:
            raise PostgresRefusal(
                CANCELLED, f"canceling statement due to statement timeout: timeout_s={self._timeout_s}",
                "set a longer statement_timeout, or 0",
            )  # fmt: skip

    async def during(self, work: Coroutine[Any, Any, T], unwanted: Callable[[T], None] | None = None) -> T:
        """Return the result of the work, or raise `PostgresRefusal` as soon as the statement is cancelled.

        Work that has begun in a thread continues, and `unwanted` gets its result. Without `unwanted` the work is
        cancelled.
        """
        task, broken = asyncio.ensure_future(work), asyncio.ensure_future(self._set.wait())
        left_s = None if self._ends_s is None else max(0.0, self._ends_s - asyncio.get_running_loop().time())
        try:
            await asyncio.wait({task, broken}, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            self.refuse()
            raise PostgresRefusal(CANCELLED, "canceling statement due to statement timeout")
        finally:
            broken.cancel()
            if not task.done():
                _leave(task, unwanted)


def _leave(task: asyncio.Future[T], unwanted: Callable[[T], None] | None) -> None:
    """Ignore the result of a task."""

    def ended(done: asyncio.Future[T]) -> None:
        if not done.cancelled() and done.exception() is None and unwanted is not None:
            unwanted(done.result())

    task.add_done_callback(ended)
    if unwanted is None:
        task.cancel()

"""Leases of the views, granted between two steps and shared by all readers of that step.

The event loop only grants the lease, which copies no rows. The reading runs on the reader's thread while steps
run. A lease ends `LINGER_S` after its last reader, at once if a step has finished since, after `lease_s`, or with the
service. It holds back the deletion of chunks and nothing else, so both its time and the number of leases are bounded.

While the backfill step of a changed circuit runs, perhaps for minutes, the event loop grants no lease. So a lease is
granted before the step, and all readers share it: they see the views as of the step before. It ends with the step. An
edited view is read from the rows that it had (`dbsp.plan.stored_views`). Reads of other views that are not filled yet
wait.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from dbsp.coordinator.decisions import fills, states
from dbsp.coordinator.running.event_loop import EventLoop
from dbsp.errors import OverloadedError, UnavailableError
from dbsp.plan.plan import Plan, ViewSpec
from dbsp.runtime.leases import Leased
from dbsp.runtime.runtime import Runtime

LINGER_S = 1.0
"""Seconds that a lease without readers is kept for the next reader of its step: a new lease costs more than a look-up."""

Wait = Callable[[Callable[[], Future[Any]], float | None], Any]
"""A function that runs an action of the event loop and waits for its future, at most so many seconds."""


@dataclass(slots=True)
class SharedLease:
    """A lease, the epoch that granted it, the number of its readers, and when it ends at the latest.

    The views `unfilled` cannot be read: they have no rows yet.
    """

    leased: Leased
    epoch: int
    ends_s: float
    unfilled: frozenset[str] = frozenset()
    users: int = 1
    over: bool = False
    idle_since_s: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class _Reader:
    """A reader that waits for a lease on these views."""

    views: Sequence[str]
    answer: Future[SharedLease] = field(default_factory=Future)


class ViewLeases:
    """The leases of a service."""

    def __init__(self, loop: EventLoop, plan: Plan, wait: Wait, *, lease_s: float, leases_max: int) -> None:
        """Create the store without a lease."""
        self._loop, self._plan, self._wait = loop, plan, wait
        self._lease_s, self._leases_max = lease_s, leases_max
        self._lock = threading.Lock()
        self._leases: list[SharedLease] = []
        self._closed = False
        self._beside: SharedLease | None = None
        self._waiting: list[_Reader] = []
        loop.backfill_begins, loop.backfill_ends = self._hold, self._release
        self._sweeper: threading.Thread | None = None
        self._granted, self._closing = threading.Event(), threading.Event()

    @contextmanager
    def taken(self, views: Sequence[str], timeout_s: float | None = None) -> Iterator[Leased]:
        """Yield a lease on these views as of the last finished step; it may end after the block."""
        shared = self.take(views, timeout_s)
        try:
            yield shared.leased
        finally:
            self.give_back(shared)

    def take(self, views: Sequence[str], timeout_s: float | None = None) -> SharedLease:
        """Return a lease on these views; the caller gives it back.

        **Errors** `OverloadedError` if too many steps are leased; `UnavailableError` if no answer comes in time.
        """
        now = self._loop.live_status.now
        granted = now.settled or self._beside is not None
        found = self._join(views, now.step, now.epoch) if granted and not now.ended else None
        if found is not None:
            return found
        waiting = _Reader(views)
        with self._lock:
            self._waiting.append(waiting)

        def hand_in() -> Future[SharedLease]:
            asked = self._loop.ask(lambda runtime, facts: self._grant(runtime, facts, views))
            asked.add_done_callback(lambda done: self._answered(waiting, done))
            self._serve_beside()  # the lease may have been granted after the look above
            return waiting.answer

        try:
            shared: SharedLease = self._wait(hand_in, timeout_s)
        except BaseException:
            if not self._ends_wait(waiting) and waiting.answer.exception() is None:
                self.give_back(waiting.answer.result())  # the lease was granted after its reader had left
            raise
        return shared

    def old_view(self, view: str) -> ViewSpec | None:
        """Return how an edited view is read from its old rows during a backfill; None for other views."""
        return fills.old_views(self._loop.fill, self._loop.live_status.now.step).get(view)

    def _answered(self, waiting: _Reader, asked: Future[SharedLease]) -> None:
        """Pass the result of the event loop to the reader; if the reader no longer waits, give the lease back."""
        error = asked.exception()
        if self._ends_wait(waiting):
            if error is None:
                waiting.answer.set_result(asked.result())
            else:
                waiting.answer.set_exception(error)
        elif error is None:
            self.give_back(asked.result())

    def _serve_beside(self) -> None:
        """Give the waiting readers the lease that is held while a backfill step runs, if it contains their views."""
        beside = self._beside
        if beside is None:
            return
        with self._lock:
            waiting = list(self._waiting)
        for reader in waiting:
            shared = self._join(reader.views, beside.leased.step, beside.epoch)
            if shared is not None:
                if self._ends_wait(reader):
                    reader.answer.set_result(shared)
                else:
                    self.give_back(shared)

    def _ends_wait(self, waiting: _Reader) -> bool:
        """End the wait of a reader; return whether it still waited. Only this caller may answer it then."""
        with self._lock:
            if waiting not in self._waiting:
                return False
            self._waiting.remove(waiting)
            return True

    def _join(self, views: Sequence[str], step: int, epoch: int) -> SharedLease | None:
        """Add a reader to an existing lease of this step and these views; None if there is none."""
        with self._lock:
            fresh_s = time.monotonic() + self._lease_s / 2
            for shared in self._leases:
                same = (shared.leased.step, shared.epoch) == (step, epoch) and shared.leased.holds(views)
                free = not shared.over and not shared.unfilled.intersection(views)
                if same and free and shared.ends_s >= fresh_s:
                    shared.users += 1
                    return shared
        return None

    def _grant(self, runtime: Runtime, facts: states.Facts, views: Sequence[str]) -> SharedLease:
        """Grant a lease; runs on the event loop's thread, between two steps.

        **Errors** `UnavailableError` for a view that a halted backfill step has yet to make: its rows would look like none.
        """
        old = fills.old_views(facts.fill, facts.next_step)
        unfilled = fills.unfilled(facts.fill, facts.next_step, self._plan) - old.keys()
        if empty := sorted(unfilled.intersection(views)):
            raise UnavailableError(
                f"the view is not filled yet: view={empty[0]} step={facts.next_step}",
                "`coordinator status` shows why the step waits; read the view after it",
            )
        found = self._join(views, facts.next_step, facts.epoch)
        if found is not None:
            return found
        self._end_idle()
        with self._lock:
            if self._closed or len(self._leases) >= self._leases_max:
                raise OverloadedError(
                    f"too many steps are read at once: leases_max={self._leases_max}",
                    "read again when others have ended, or raise `leases_max` in [query]",
                )
        leased = runtime.lease_views(views, facts.next_step, facts.layout, old)
        shared = SharedLease(leased, facts.epoch, time.monotonic() + self._lease_s, unfilled)
        with self._lock:
            self._leases.append(shared)
            if self._sweeper is None:
                self._sweeper = threading.Thread(target=self._sweep, name="dbsp-leases", daemon=True)
                self._sweeper.start()
        self._granted.set()
        return shared

    def _hold(self, runtime: Runtime, facts: states.Facts) -> None:
        """Grant a lease before a backfill step, so that views can be read while it runs; runs on the event loop's thread."""
        shared = self._grant(runtime, facts, ())
        shared.ends_s = math.inf
        self._beside = shared
        self._serve_beside()

    def _release(self) -> None:
        """End the lease that was held during a backfill step; its last readers have `lease_s` to finish."""
        shared, self._beside = self._beside, None
        if shared is not None:
            shared.ends_s = time.monotonic() + self._lease_s
            self.give_back(shared)

    def give_back(self, shared: SharedLease) -> None:
        """Remove a reader from a lease; end the lease after its last reader, unless it is of the newest step."""
        with self._lock:
            shared.users -= 1
            shared.idle_since_s = time.monotonic()
            if shared.users or (shared.leased.step == self._loop.live_status.now.step and not self._closed):
                return
        self._end(shared, unless_used=True)

    def leave(self, shared: SharedLease) -> None:
        """Leave a lease without waiting: the thread of the leases ends it."""
        with self._lock:
            shared.users -= 1
            shared.idle_since_s = -LINGER_S

    def _end_idle(self) -> None:
        """End the leases without readers."""
        with self._lock:
            idle = [shared for shared in self._leases if not shared.users]
        for shared in idle:
            self._end(shared, unless_used=True)

    def _sweep(self) -> None:
        """End leases after their time; runs in a thread, which waits while there are none."""
        while not self._closed:
            self._granted.wait()
            with self._lock:
                now_s, held = time.monotonic(), list(self._leases)
                if not held:
                    self._granted.clear()
            for shared in held:
                if now_s >= shared.ends_s or (not shared.users and now_s >= shared.idle_since_s + LINGER_S):
                    self._end(shared, unless_used=now_s < shared.ends_s)
            self._closing.wait(min(LINGER_S, self._lease_s) / 4)

    def _end(self, shared: SharedLease, *, unless_used: bool = False) -> None:
        """End a lease, once; reads through it are refused from now on. With `unless_used`, a reader keeps it."""
        with self._lock:
            if shared.over or (unless_used and shared.users):
                return
            shared.over = True
        try:
            shared.leased.end()
        finally:
            with self._lock:
                self._leases.remove(shared)

    def close(self) -> None:
        """End all leases, and grant no more."""
        with self._lock:
            self._closed, left = True, list(self._leases)
        for shared in left:
            self._end(shared)
        self._closing.set()
        self._granted.set()
        if self._sweeper is not None:
            self._sweeper.join()

    @property
    def count(self) -> int:
        """Return the number of leases that are held, also without a reader."""
        return len(self._leases)

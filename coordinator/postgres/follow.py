"""Follow a view for one session: its rows as of one step, then the changes of every further step, each once.

**Law** The rows whose step is below n, added up by their weights, are the view as of step n. This holds for every n from the
first row of progress on. A follower that stores n with its results, and goes on `AS OF n`, has every change once.

The rows of the view are read through a lease, so no step waits for them. Rows of the view as of step n count as those
of step n - 1, the last one that they have. Changes are read from the embedded outputs, and each read is shared by all
sessions at that step.

**Memory** a page of changes, or a piece of the view. The next one is read when the client has read the one before. A
client that is slower than `retention_steps` of [output] gets an error, and a client that reads nothing for a minute is
disconnected.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

from dbsp.coordinator.http.change_pages import ChangePages
from dbsp.coordinator.http.lanes import Lane
from dbsp.coordinator.http.notifier import Notifier
from dbsp.coordinator.postgres.refusals import NOT_SUPPORTED, PostgresRefusal
from dbsp.coordinator.postgres.stopping import StopSignal
from dbsp.coordinator.postgres.subscribing import SUBSCRIBE, Subscription, followed_schema, progress_row, with_heads
from dbsp.coordinator.postgres.view_rows import RowsOfView
from dbsp.coordinator.query.held import HeldBytes
from dbsp.coordinator.serving.answers import StepChanges, ViewChanges
from dbsp.coordinator.serving.pages import ViewRead
from dbsp.coordinator.serving.reads import Reads
from dbsp.errors import PositionError

PAGE_ROWS = 10_000
KEPT_BYTES_MAX = 16 << 20
"""The most bytes of pages that are cached for further followers, for all views together."""
ENDED, OUT_OF_REACH = "57P01", "55000"
Condition: TypeAlias = Callable[[], bool]


@dataclass(frozen=True, slots=True)
class FollowedPage:
    """The changes of a view in the steps before `next`."""

    next: int
    steps: tuple[StepChanges, ...]

    @property
    def size(self) -> int:
        """Return the number of bytes."""
        return sum(each.table.nbytes for each in self.steps)


class SharedReads:
    """The resources that all sessions share: pages of changes, reading threads, notices of new steps."""

    def __init__(self, service: Reads, held: HeldBytes) -> None:
        """Begin to receive the service's notices of steps."""
        self.service, self.held = service, held
        self.lane = Lane("readers", threads=2, waiting_max=1 << 16)
        self.notifier = Notifier(service.live_status)
        self.pages: ChangePages[FollowedPage] = ChangePages(service, self.lane, _page, KEPT_BYTES_MAX)

    def schema(self, view: str) -> tuple[str, pa.Schema]:
        """Return the name and the columns of a view. **Errors** `ConfigError` if its changes cannot be read."""
        return self.service.followed(view)


def _page(found: ViewChanges) -> FollowedPage:
    return FollowedPage(found.next, found.steps)


class Follow(RowsOfView):
    """The rows of a SUBSCRIBE; nothing is read before the first `take`."""

    def __init__(self, shared: SharedReads, asked: Subscription) -> None:
        """Find the view. **Errors** `ConfigError`; `PostgresRefusal` for a snapshot of a view that is not materialized."""
        self._shared, self._asked = shared, asked
        self._view, columns = shared.schema(asked.view)
        super().__init__(shared.held, followed_schema(columns, progress=asked.progress), SUBSCRIBE)
        if asked.snapshot and asked.as_of is None and self._view not in shared.service.views():
            raise PostgresRefusal(
                NOT_SUPPORTED, f"the view is not materialized, so there is no snapshot of its rows: view={self._view}",
                "write WITH (SNAPSHOT = false) for the changes from now on, or AS OF 0 for all changes that are kept",
            )  # fmt: skip
        self._at: int | None = None
        self._fresh = True

    async def take(self, count: int, stop: StopSignal, wait_s: float | None = None) -> pa.Table:
        """Return the next rows, up to `count`; wait for the first of them, at most `wait_s`.

        **Errors** `PostgresRefusal` when the statement is cancelled, the service ends, or the next changes were
        dropped.
        """
        if not self._pending.count:
            self._pending.let_go()
        loop = asyncio.get_running_loop()
        until_s = None if wait_s is None else loop.time() + wait_s
        while not self._pending.count and not self._ended:
            stop.refuse()
            if not await self._more(stop, None if until_s is None else max(0.0, until_s - loop.time())):
                break
        return self._pending.take(count)

    async def _more(self, stop: StopSignal, wait_s: float | None) -> bool:
        """Read the next rows; return False when the time is over."""
        if self._at is None:
            await self._begin(stop)
            if self._read is None:
                self._say_progress()
        elif self._read is not None:
            await self._read_view(stop, self._read)
        elif self._asked.up_to is not None and self._at >= self._asked.up_to:
            self._ended = True
        else:
            return await self._read_changes(stop, wait_s)
        return True

    async def _begin(self, stop: StopSignal) -> None:
        """Find the first step, and take a lease if the statement wants a snapshot of the view."""
        service, asked = self._shared.service, self._asked
        await self._wait(stop, lambda: service.snapshot.settled, None)
        if asked.as_of is not None:
            self._at = asked.as_of
        elif asked.snapshot:
            timeout_s = service.config.query.timeout_s
            opening = self._shared.lane.run(service.open_read, self._view, timeout_s=timeout_s)
            self._read = await stop.during(opening, ViewRead.close)
            self._at = self._read.step
        else:
            self._at = service.snapshot.step
        if asked.up_to is not None and asked.up_to < self._at:
            raise PostgresRefusal(
                "22023", f"UP TO is a step of the past: up_to={asked.up_to} step={self._at}",
                "give a later step, or follow from an earlier one by AS OF",
            )  # fmt: skip

    async def _read_view(self, stop: StopSignal, read: ViewRead) -> None:
        """Read the next rows of the snapshot; after the last ones add a row of progress."""
        table = await stop.during(self._shared.lane.run(read.next))
        if table is None:
            self._end_read()
            self._say_progress()
        elif len(table):
            self._pending.hold(with_heads(self.schema, read.step - 1, table))

    async def _read_changes(self, stop: StopSignal, wait_s: float | None) -> bool:
        at = self._at
        assert at is not None  # noqa: S101 - it has begun
        service = self._shared.service
        # The first read is done at once, because it refuses a step that was dropped or never taken.
        if not self._fresh and not await self._wait(stop, lambda: service.snapshot.step > at, wait_s):
            return False
        try:
            page = await stop.during(self._shared.pages.read(self._view, at, rows_max=PAGE_ROWS))
        except PositionError as error:
            hint = "forget the rows, and subscribe again with a snapshot; or raise `retention_steps` in [output]"
            raise PostgresRefusal(OUT_OF_REACH, error.message, hint) from None
        self._fresh = False
        if page.next > at:
            self._take_page(page, at)
        return True

    def _take_page(self, page: FollowedPage, at: int) -> None:
        last = page.next if self._asked.up_to is None else min(page.next, self._asked.up_to)
        parts = []
        for each in page.steps:
            if at <= each.step < last:
                parts.append(with_heads(self.schema, each.step, each.table))
                if self._asked.progress and each.step + 1 < last:
                    parts.append(progress_row(self.schema, each.step + 1))
        if self._asked.progress:
            parts.append(progress_row(self.schema, last))
        self._at = last
        if parts:
            self._pending.hold(pa.concat_tables(parts))

    def _say_progress(self) -> None:
        if self._asked.progress and self._at is not None:
            self._pending.hold(progress_row(self.schema, self._at))

    async def _wait(self, stop: StopSignal, condition: Condition, wait_s: float | None) -> bool:
        """Wait until a condition on the service's steps holds, or time is up; return whether it holds."""
        notifier = self._shared.notifier
        if condition():
            return True
        if wait_s == 0:
            return False
        holds = await stop.during(notifier.wait_for(lambda _now: condition(), wait_s))
        if not holds and notifier.ended:
            raise PostgresRefusal(ENDED, "the service has ended", "go on with AS OF the last step when it runs again")
        return holds

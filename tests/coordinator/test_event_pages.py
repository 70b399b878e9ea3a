"""Followers at one step share one read and one rendering of a view's changes."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace

import pyarrow as pa
import pytest

from dbsp.coordinator.http.change_pages import ChangePages
from dbsp.coordinator.http.event_pages import EventPage, event_pages
from dbsp.coordinator.http.lanes import Lane
from dbsp.coordinator.serving.answers import StepChanges, ViewChanges
from dbsp.errors import UnavailableError


class Changes:
    """The reads of a service that has finished `steps` steps, each of which changed one row."""

    def __init__(self, steps: int) -> None:
        self.snapshot = SimpleNamespace(epoch=1)
        self.steps, self.reads, self.may_go, self.refuses = steps, list[int](), threading.Event(), False
        self.may_go.set()

    def changes(self, view: str, first: int, *, rows_max: int, anew: bool) -> ViewChanges:
        self.reads.append(first)
        assert self.may_go.wait(60)
        if self.refuses:
            raise UnavailableError("the service ends", "ask again later")
        table = pa.table({"id": [1], "__weight": pa.array([1], pa.int64())})
        steps = tuple(StepChanges(step=step, table=table) for step in range(first, min(self.steps, first + rows_max)))
        return ViewChanges(view=view, first=first, next=first + len(steps), schema=table.schema, steps=steps)


def pages_of(service: Changes) -> ChangePages[EventPage]:
    return event_pages(service, Lane("readers", threads=2, waiting_max=8))  # type: ignore[arg-type]


def test_followers_of_one_step_share_a_read() -> None:
    async def run() -> None:
        service = Changes(3)
        pages = pages_of(service)
        found = await asyncio.gather(*(pages.read("large", 0, rows_max=2, anew=False) for _ in range(100)))
        assert {(page.next, len(page.texts)) for page in found} == {(2, 2)}
        assert await pages.read("large", 0, rows_max=2, anew=False) is found[0]
        assert service.reads == [0]
        assert (await pages.read("large", 2, rows_max=2, anew=False)).next == 3
        assert service.reads == [0, 2]

    asyncio.run(run())


def test_a_page_without_a_finished_step_is_read_again() -> None:
    async def run() -> None:
        service = Changes(1)
        pages = pages_of(service)
        assert (await pages.read("large", 1, rows_max=5, anew=False)).texts == ()
        service.steps = 2
        assert (await pages.read("large", 1, rows_max=5, anew=False)).next == 2

    asyncio.run(run())


def test_a_page_of_another_epoch_or_view_is_another_page() -> None:
    async def run() -> None:
        service = Changes(1)
        pages = pages_of(service)
        await pages.read("large", 0, rows_max=5, anew=False)
        service.snapshot.epoch = 2
        await pages.read("large", 0, rows_max=5, anew=False)
        await pages.read("small", 0, rows_max=5, anew=False)
        assert service.reads == [0, 0, 0]

    asyncio.run(run())


def test_a_follower_that_leaves_does_not_end_the_read_of_the_others() -> None:
    async def run() -> None:
        service = Changes(1)
        service.may_go.clear()
        pages = pages_of(service)
        first, second = (asyncio.create_task(pages.read("large", 0, rows_max=5, anew=False)) for _ in range(2))
        while not service.reads:
            await asyncio.sleep(0)
        first.cancel()
        await asyncio.sleep(0)
        service.may_go.set()
        assert (await second).next == 1
        assert first.cancelled()

    asyncio.run(run())


def test_all_followers_are_told_why_a_read_failed_and_the_next_one_reads_again() -> None:
    async def run() -> None:
        service = Changes(1)
        service.refuses = True
        pages = pages_of(service)
        found = await asyncio.gather(
            *(pages.read("large", 0, rows_max=5, anew=False) for _ in range(3)), return_exceptions=True
        )
        assert [type(each) for each in found] == [UnavailableError] * 3
        service.refuses = False
        assert (await pages.read("large", 0, rows_max=5, anew=False)).next == 1

    asyncio.run(run())


def test_kept_pages_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        service = Changes(10)
        pages = pages_of(service)
        size = (await pages.read("large", 0, rows_max=1, anew=False)).size
        monkeypatch.setattr("dbsp.coordinator.http.event_pages.KEPT_CHARS_MAX", 3 * size)
        pages = pages_of(service)
        for first in range(10):
            await pages.read("large", first, rows_max=1, anew=False)
        service.reads.clear()
        for first in (7, 8, 9, 6):
            await pages.read("large", first, rows_max=1, anew=False)
        assert service.reads == [6]

    asyncio.run(run())

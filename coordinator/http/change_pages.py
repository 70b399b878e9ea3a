"""Pages of changes, read and rendered once for all followers of a view.

Followers of one view mostly wait at the same step. Without sharing, each of them would read and render the same page,
and the cost of a step would grow with their number.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Generic, Protocol, TypeVar

from dbsp.coordinator.http.lanes import Lane
from dbsp.coordinator.serving.answers import ViewChanges
from dbsp.coordinator.serving.reads import Reads

Key = tuple[int, str, int, int, bool]
"""Epoch, view, first step, bound of rows, and whether the reader accepts that the view began anew."""


class ChangePage(Protocol):
    """The changes of a view in the steps before `next`, and their size."""

    @property
    def next(self) -> int:
        """Return the first step that is not in the page."""

    @property
    def size(self) -> int:
        """Return the size, in the units of the bound."""


P = TypeVar("P", bound=ChangePage)


class ChangePages(Generic[P]):
    """The pages that followers read at present, and the newest of those that they have read, up to `size_max` together.

    A page is shared while it is read. A page of finished steps is kept after that, since these steps never change in
    an epoch. All methods run on the server's event loop; the reading runs on the threads of `lane`.
    """

    def __init__(self, service: Reads, lane: Lane, render: Callable[[ViewChanges], P], size_max: int) -> None:
        """Create the cache without any page."""
        self._service, self._lane, self._render, self._size_max = service, lane, render, size_max
        self._reading: dict[Key, asyncio.Task[P]] = {}
        self._kept: OrderedDict[Key, P] = OrderedDict()
        self._size = 0

    async def read(self, view: str, first: int, *, rows_max: int, anew: bool = False) -> P:
        """Return the page of a view that begins at step `first`; a follower that leaves does not end the read."""
        key = (self._service.snapshot.epoch, view, first, rows_max, anew)
        if (kept := self._kept.get(key)) is not None:
            self._kept.move_to_end(key)
            return kept
        reading = self._reading.get(key)
        if reading is None:
            reading = self._reading[key] = asyncio.ensure_future(self._read(key))
            reading.add_done_callback(partial(self._done, key))
        return await asyncio.shield(reading)

    async def _read(self, key: Key) -> P:
        _, view, first, rows_max, anew = key
        return await self._lane.run(
            lambda: self._render(self._service.changes(view, first, rows_max=rows_max, anew=anew))
        )

    def _done(self, key: Key, reading: asyncio.Task[P]) -> None:
        del self._reading[key]
        if reading.cancelled() or reading.exception() is not None:
            return
        page = reading.result()
        if page.next <= key[2] or page.size > self._size_max:  # no finished step: the next read may find one
            return
        self._kept[key] = page
        self._size += page.size
        while self._size > self._size_max:
            self._size -= self._kept.popitem(last=False)[1].size

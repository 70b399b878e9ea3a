"""Pages of changes as the text of their events, read and rendered once for all followers of a view.

Followers of one view mostly wait at the same step. Without sharing, each of them would read and render the same page,
and the cost of a step would grow with their number.
"""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from dataclasses import dataclass
from functools import partial

from dbsp.coordinator.answers import ViewChanges
from dbsp.coordinator.http.lanes import Lane
from dbsp.coordinator.http.rendering import step_json
from dbsp.coordinator.serving.reads import Reads

KEPT_CHARS_MAX = 16 << 20
"""The bound of the kept texts, all views together."""

Key = tuple[int, str, int, int, bool]
"""Epoch, view, first step, the bound of rows, and whether the reader goes on where a view began anew."""


@dataclass(frozen=True, slots=True)
class EventPage:
    """The events of the steps up to `next`: one for each step that changed the view, and one where the view began anew."""

    next: int
    texts: tuple[str, ...]

    @property
    def size(self) -> int:
        """Return the number of characters."""
        return sum(map(len, self.texts))


class EventPages:
    """The pages that followers read at present, and the newest of those that they have read.

    A page is shared while it is read. A page of finished steps is kept after that, since these steps never change in
    an epoch. All methods run on the server's event loop; the reading runs on the threads of `lane`.
    """

    def __init__(self, service: Reads, lane: Lane) -> None:
        """Keep no page yet."""
        self._service, self._lane = service, lane
        self._reading: dict[Key, asyncio.Task[EventPage]] = {}
        self._kept: OrderedDict[Key, EventPage] = OrderedDict()
        self._chars = 0

    async def read(self, view: str, first: int, *, rows_max: int, anew: bool) -> EventPage:
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

    async def _read(self, key: Key) -> EventPage:
        _, view, first, rows_max, anew = key
        return await self._lane.run(lambda: _rendered(self._service.changes(view, first, rows_max=rows_max, anew=anew)))

    def _done(self, key: Key, reading: asyncio.Task[EventPage]) -> None:
        del self._reading[key]
        if reading.cancelled() or reading.exception() is not None:
            return
        page = reading.result()
        if page.next <= key[2] or page.size > KEPT_CHARS_MAX:  # without a finished step, the next read may find one
            return
        self._kept[key] = page
        self._chars += page.size
        while self._chars > KEPT_CHARS_MAX:
            self._chars -= self._kept.popitem(last=False)[1].size


def _rendered(page: ViewChanges) -> EventPage:
    began = [] if page.anew is None else [f"event: anew\ndata: {json.dumps({'step': page.anew})}\n\n"]
    steps = (f"id: {each.step}\ndata: {json.dumps(step_json(each))}\n\n" for each in page.steps)
    return EventPage(page.next, (*began, *steps))

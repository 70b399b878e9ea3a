"""Pages of changes as the text of their events, which all followers of a view share."""

from __future__ import annotations

import json
from dataclasses import dataclass

from dbsp.coordinator.http.change_pages import ChangePages
from dbsp.coordinator.http.lanes import Lane
from dbsp.coordinator.http.row_texts import step_json
from dbsp.coordinator.serving.answers import ViewChanges
from dbsp.coordinator.serving.reads import Reads

KEPT_CHARS_MAX = 16 << 20
"""The most characters of cached pages, for all views together."""


@dataclass(frozen=True, slots=True)
class EventPage:
    """The events of the steps up to `next`: one for each step that changed the view, and one where the view began anew."""

    next: int
    texts: tuple[str, ...]

    @property
    def size(self) -> int:
        """Return the number of characters."""
        return sum(map(len, self.texts))


def event_pages(service: Reads, lane: Lane) -> ChangePages[EventPage]:
    """Return the pages of a service, none of them kept yet."""
    return ChangePages(service, lane, _rendered, KEPT_CHARS_MAX)


def _rendered(page: ViewChanges) -> EventPage:
    began = [] if page.anew is None else [f"event: anew\ndata: {json.dumps({'step': page.anew})}\n\n"]
    steps = (f"id: {each.step}\ndata: {step_json(each).decode()}\n\n" for each in page.steps)
    return EventPage(page.next, (*began, *steps))

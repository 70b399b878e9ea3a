"""Several who want to hear what happened, as one."""

from __future__ import annotations

from typing import Any

from dbsp.coordinator.hands import Observer
from dbsp.logs import StepRecord
from dbsp.runtime.runtime import StepReport


class Observers:
    """Tells metrics, the event log, who knows rates, and whoever else asked to be told."""

    def __init__(self, *observers: Observer) -> None:
        """These, in this order."""
        self._all = observers

    def add(self, observer: Observer) -> None:
        """One more."""
        self._all = (*self._all, observer)

    def stepped(self, record: StepRecord, report: StepReport, *, replay: bool, lag_rows: int) -> None:
        """A step is done."""
        for observer in self._all:
            observer.stepped(record, report, replay=replay, lag_rows=lag_rows)

    def noted(self, kind: str, fields: dict[str, Any]) -> None:
        """Something else happened."""
        for observer in self._all:
            observer.noted(kind, fields)

"""Combine several observers into one: metrics, the event log, request rates, waiting upgrades, and others added later."""

from __future__ import annotations

from dbsp.coordinator.running.notices import Notice, Observer
from dbsp.logs import StepRecord
from dbsp.runtime.runtime import StepReport


class Observers:
    """A list of observers that acts as one observer; each gets every report, in order."""

    def __init__(self, *observers: Observer) -> None:
        """Begin with these observers."""
        self._all = observers

    def add(self, observer: Observer) -> None:
        """Add an observer."""
        self._all = (*self._all, observer)

    def stepped(self, record: StepRecord, report: StepReport, *, replay: bool, lag_rows: int) -> None:
        """Pass on the report of a finished step."""
        for observer in self._all:
            observer.stepped(record, report, replay=replay, lag_rows=lag_rows)

    def noted(self, notice: Notice) -> None:
        """Pass on a notice."""
        for observer in self._all:
            observer.noted(notice)

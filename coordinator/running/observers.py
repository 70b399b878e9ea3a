"""Several observers as one: metrics, the event log, who knows rates, who waits for an upgrade, and whoever asks to be told."""

from __future__ import annotations

from dbsp.coordinator.running.notices import Notice, Observer
from dbsp.logs import StepRecord
from dbsp.runtime.runtime import StepReport


class Observers:
    """Tells each what it is told, in order."""

    def __init__(self, *observers: Observer) -> None:
        """Of these, to begin with."""
        self._all = observers

    def add(self, observer: Observer) -> None:
        """Tell one more."""
        self._all = (*self._all, observer)

    def stepped(self, record: StepRecord, report: StepReport, *, replay: bool, lag_rows: int) -> None:
        """A step is done."""
        for observer in self._all:
            observer.stepped(record, report, replay=replay, lag_rows=lag_rows)

    def noted(self, notice: Notice) -> None:
        """Something else happened."""
        for observer in self._all:
            observer.noted(notice)

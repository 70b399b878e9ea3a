"""The event log: one JSON object per line, appended to a file, for programs.

Every line has `at` (UTC), `event`, and the event's own fields. Secrets never appear, because only reports of the
machine and the command runner are written. A large file is renamed to `<name>.1`, and the oldest of the kept files is
deleted. A line for every step is written only if the settings ask for it; the metrics have the same figures.
"""

from __future__ import annotations

import json
import logging
import threading
from contextlib import suppress
from datetime import UTC, datetime
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import cast

from dbsp.coordinator.running.clock import Clock
from dbsp.coordinator.running.notices import Notice, StepFinished
from dbsp.coordinator.settings.config import LogSection
from dbsp.disk import PRIVATE_FOLDER, private
from dbsp.logs import StepRecord
from dbsp.runtime.runtime import StepReport


class _Lines(RotatingFileHandler):
    """The log file; after a line that could not be written, the next line opens the file again."""

    def _open(self) -> TextIOWrapper:
        """Open the file, readable for its owner alone."""
        opened = open(self.baseFilename, self.mode, encoding=self.encoding, opener=private)  # noqa: SIM115 - the handler closes it
        return cast(TextIOWrapper, opened)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: ARG002, N802 - the name is the library's
        """Drop a line that cannot be written: the pipeline must not end because the log's disk is full.

        The buffered text is dropped too, so that it cannot fail later.
        """
        stream, self.stream = self.stream, None  # the base class opens the file again at the next line
        with suppress(OSError):
            if stream is not None:
                stream.close()


class EventsLog:
    """The event log of a service; safe to call from any thread."""

    def __init__(self, path: Path, clock: Clock, settings: LogSection | None = None) -> None:
        """Open the file for appending."""
        self._settings = settings or LogSection()
        path.parent.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
        self._lines = _Lines(
            path, encoding="utf-8", maxBytes=self._settings.file_bytes_max, backupCount=self._settings.files_kept
        )
        self._clock, self._lock, self._closed = clock, threading.Lock(), False

    def stepped(self, record: StepRecord, report: StepReport, *, replay: bool, lag_rows: int) -> None:
        """Write a line for a step, where the settings ask for it."""
        if not self._settings.steps:
            return
        finished = StepFinished(
            step=record.step, seconds=round(report.seconds, 6), rows_in=report.rows_in, replay=replay,
            lag_rows=lag_rows, dead=sum(worker.dead for worker in report.workers),
        )  # fmt: skip
        self.noted(finished)

    def noted(self, notice: Notice) -> None:
        """Write a line for a notice, unless notices of its kind have none."""
        if not notice.IS_LOGGED:
            return
        at = datetime.fromtimestamp(self._clock.wall_us() / 1e6, UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"at": at, "event": notice.EVENT, **notice.fields()}, default=str)
        with self._lock:
            if not self._closed:
                self._lines.emit(logging.makeLogRecord({"msg": line}))

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._closed = True
            with suppress(OSError):
                self._lines.close()

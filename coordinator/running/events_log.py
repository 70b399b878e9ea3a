"""Structured logs: one JSON object per line, appended to a file, for machines; errors also go to standard error for people.

Every line has `at` (UTC), `event`,
and the event's own fields. Secrets never get here: only what the machine and the command runner
report is written. The file is renamed to `<name>.1` when it is large, and the oldest of the files kept is deleted. A line for
every step is written only where the settings ask for it: metrics have the same figures.
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

from dbsp.coordinator.config import LogSection
from dbsp.coordinator.running.clock import Clock
from dbsp.coordinator.running.notices import Notice, StepFinished
from dbsp.disk import PRIVATE_FOLDER, private
from dbsp.logs import StepRecord
from dbsp.runtime.runtime import StepReport


class _Lines(RotatingFileHandler):
    """The file: opened anew at the next line where a line could not be written."""

    def _open(self) -> TextIOWrapper:
        """Open the file for its owner alone."""
        opened = open(self.baseFilename, self.mode, encoding=self.encoding, opener=private)  # noqa: SIM115 - the handler closes it
        return cast(TextIOWrapper, opened)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: ARG002, N802 - the name is the library's
        """Drop the line: on a full disk the log is not worth a pipeline. What is buffered must not fail later."""
        stream, self.stream = self.stream, None  # the library opens the file at the next line
        with suppress(OSError):
            if stream is not None:
                stream.close()


class EventsLog:
    """Appends events to a file; safe to call from any thread."""

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
        """Write a line for a notice."""
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

"""Structured logs: one JSON object per line, appended to a file, for machines; errors also go to standard error for people.

Every line has `at` (UTC), `event`, and the event's own fields. Secrets never get here: only what the machine and the hands
report is written.
"""

from __future__ import annotations

import json
import threading
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dbsp.coordinator.running.clock import Clock
from dbsp.logs import StepRecord
from dbsp.runtime.runtime import StepReport


class EventsLog:
    """Appends events to a file; safe to call from any thread."""

    def __init__(self, path: Path, clock: Clock) -> None:
        """Open the file for appending."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._file = path.open("a", encoding="utf-8", buffering=1)
        self._clock, self._lock = clock, threading.Lock()

    def stepped(self, record: StepRecord, report: StepReport, *, replay: bool, lag_rows: int) -> None:
        """One line per step."""
        fields = {
            "step": record.step, "seconds": round(report.seconds, 6), "rows_in": report.rows_in, "replay": replay,
            "lag_rows": lag_rows, "dead": sum(worker.dead for worker in report.workers),
        }  # fmt: skip
        self.noted("step", fields)

    def noted(self, kind: str, fields: dict[str, Any]) -> None:
        """One line per event."""
        at = datetime.fromtimestamp(self._clock.wall_us() / 1e6, UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"at": at, "event": kind, **fields}, default=str)
        with self._lock:
            if self._file.closed:
                return
            try:
                self._file.write(line + "\n")
            except OSError:  # a full disk: the log is not worth a pipeline
                self._renew()

    def _renew(self) -> None:
        """Forget what could not be written, so that the next line is tried by itself."""
        with suppress(OSError):
            self._file.close()
        with suppress(OSError):
            self._file = self._path.open("a", encoding="utf-8", buffering=1)

    def close(self) -> None:
        """Close the file."""
        with self._lock, suppress(OSError):
            self._file.close()

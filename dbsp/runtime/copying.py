"""Copy while steps run: a pinned checkpoint, or slices for new owners, piece by piece, in threads that can be
stopped.

A copy whose target does not answer (`AwayError`) waits and tries again; `Copier.trouble` returns the reason.

The runtime defines a piece: a call in this process, or a small Spark job. A piece is bounded, so that neither a step
nor a rollback waits long for one to end. Stopping a copy only saves time: a copy of an older epoch that goes on is
refused at its next piece (invariant 6).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from dbsp.errors import AwayError, InternalError, UnavailableError
from dbsp.runtime.runtime import WarmProgress
from dbsp.trace.redistribute import WarmReport

Report = TypeVar("Report")

AWAY_RETRY_S = 1.0
"""Seconds that a copy waits before it tries a target again that did not answer."""

Piece = Callable[[tuple[int, ...]], Mapping[int, Report | None]]
"""A function that copies one piece for each of the given workers. It returns a report per worker; None: more to copy."""


@dataclass(slots=True)
class Copier:
    """A runner of copies; at most one copy runs at a time."""

    _copy: _Copy[Any] | None = None
    _threads: list[threading.Thread] = field(default_factory=list)

    def start(
        self, workers: tuple[int, ...], piece: Piece[Report], at_once: int | None = None, threads: int = 1
    ) -> Future[Mapping[int, Report]]:
        """Copy until all workers are done; return a future with their reports, or the first error.

        The workers are divided among `threads` threads. A piece covers `at_once` workers of a thread's share (None:
        all of them). The threads are daemons, which end with the process, even within a piece: a piece may wait for a
        process that is stopped.
        """
        if self._copy is not None and not self._copy.future.done():
            raise InternalError("a copy is begun while another one is copied")
        for thread in self._threads:
            thread.join()  # the last copy's future may be done a moment before its threads have ended
        shares = [workers[first::threads] for first in range(max(1, min(threads, len(workers))))]
        copy = self._copy = _Copy(piece=piece, at_once=at_once, going=len(shares))
        self._threads = [
            threading.Thread(target=copy.run, args=(share,), name="dbsp-copier", daemon=True) for share in shares
        ]
        for thread in self._threads:
            thread.start()
        return copy.future

    @property
    def trouble(self) -> str | None:
        """Return why the running copy waits; None if it does not wait."""
        copy = self._copy
        return None if copy is None or copy.future.done() else copy.trouble

    def end(self, interrupt: Callable[[], None] = lambda: None, wait_s: float | None = None) -> None:
        """Begin no further piece, and wait for running pieces, at most `wait_s`; `interrupt` may make them end sooner."""
        if self._copy is not None:
            self._copy.ended.set()
        interrupt()
        until = None if wait_s is None else time.monotonic() + wait_s
        for thread in self._threads:
            thread.join(None if until is None else max(0.0, until - time.monotonic()))
        self._threads = [thread for thread in self._threads if thread.is_alive()]


@dataclass(slots=True, kw_only=True)
class _Copy(Generic[Report]):
    """The state that the threads of one copy share; `going` counts the threads that have not finished."""

    piece: Piece[Report]
    at_once: int | None
    going: int
    future: Future[Mapping[int, Report]] = field(default_factory=Future)
    ended: threading.Event = field(default_factory=threading.Event)
    trouble: str | None = None
    _reports: dict[int, Report] = field(default_factory=dict)
    _failed: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, workers: tuple[int, ...]) -> None:
        """Copy pieces until all of these workers are done; run in a thread.

        The first error ends the other threads too.
        """
        reports: dict[int, Report] = {}
        try:
            while waiting := tuple(worker for worker in workers if worker not in reports):
                if self.ended.is_set():
                    raise UnavailableError("the copying was stopped")
                try:
                    found = self.piece(waiting[: self.at_once])
                except AwayError as error:
                    self.trouble = str(error)
                    self.ended.wait(AWAY_RETRY_S)
                    continue
                self.trouble = None
                reports |= {worker: report for worker, report in found.items() if report is not None}
        except BaseException as error:  # noqa: BLE001 - whoever waits for the copy gets it
            with self._lock:
                first = not self._failed
                self._failed = True
            self.ended.set()
            if first:
                self.future.set_exception(error)
        else:
            self._copied(reports)

    def _copied(self, reports: Mapping[int, Report]) -> None:
        """Add a finished thread's reports; set the result after the last thread."""
        with self._lock:
            self._reports |= reports
            self.going -= 1
            whole = not self.going
        if whole:
            self.future.set_result(self._reports)


class WarmRound:
    """The sum of the reports of a warm-up round's pieces; a worker's part ends when nothing of it is missing."""

    def __init__(self, report: Callable[[WarmProgress], None]) -> None:
        """Start with nothing copied; call `report` with the progress after every piece."""
        self._report = report
        self._copied: dict[int, int] = {}
        self._latest: dict[int, WarmReport] = {}

    def take(self, found: Mapping[int, WarmReport]) -> dict[int, WarmProgress | None]:
        """Add the reports of a piece; return each worker's progress in the round, or None if bytes are still missing."""
        for worker, report in found.items():
            self._copied[worker] = self._copied.get(worker, 0) + report.copied_bytes
            self._latest[worker] = report
        self._report(self.progress)
        return {worker: None if report.missing_bytes else self._of(worker) for worker, report in found.items()}

    @property
    def progress(self) -> WarmProgress:
        """Return the progress of all workers that have begun."""
        return whole_round([self._of(worker) for worker in self._latest])

    def _of(self, worker: int) -> WarmProgress:
        latest = self._latest[worker]
        return WarmProgress(
            copied_bytes=self._copied[worker], missing_bytes=latest.missing_bytes, slices_bytes=latest.slices_bytes
        )


def whole_round(parts: Iterable[WarmProgress]) -> WarmProgress:
    """Return the sum of the workers' progress."""
    parts = list(parts)
    return WarmProgress(
        copied_bytes=sum(part.copied_bytes for part in parts),
        missing_bytes=sum(part.missing_bytes for part in parts),
        slices_bytes=sum(part.slices_bytes for part in parts),
    )


class MissingBytes:
    """The bytes that a lagging copy of a checkpoint still lacks: the sum over all workers that have begun."""

    def __init__(self, report: Callable[[int], None]) -> None:
        """Begin with no worker; call `report` with the sum after every piece."""
        self._report = report
        self._missing: dict[int, int] = {}
        self._lock = threading.Lock()

    def take(self, found: Mapping[int, int]) -> dict[int, int | None]:
        """Add the reports of a piece; return 0 for each worker that is done, None for the others."""
        with self._lock:
            self._missing |= found
            total = sum(self._missing.values())
        self._report(total)
        return {worker: 0 if missing == 0 else None for worker, missing in found.items()}

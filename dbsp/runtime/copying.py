"""Copying beside the steps, a pinned checkpoint or slices for new owners: in threads, piece by piece, that can be told to end.

What a piece is, the runtime says: a call in this process, or a small Spark job. A piece is bounded, so that a step never
waits long behind one and a rollback never waits long for one to end. Ending is a matter of time alone: a copy of an older
epoch that went on would be refused at its next piece (invariant 6).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from dbsp.errors import InternalError, UnavailableError
from dbsp.runtime.runtime import WarmProgress
from dbsp.trace.redistribute import WarmReport

Report = TypeVar("Report")

Piece = Callable[[tuple[int, ...]], Mapping[int, Report | None]]
"""Copies a bit on each of some workers; the reports of those that are done."""


@dataclass(slots=True)
class Copier:
    """At most one copy at a time."""

    _copy: _Copy[Any] | None = None
    _threads: list[threading.Thread] = field(default_factory=list)

    def start(
        self, workers: tuple[int, ...], piece: Piece[Report], at_once: int | None = None, threads: int = 1
    ) -> Future[Mapping[int, Report]]:
        """Copy until all workers are done; the future has their reports, or the first error.

        A piece is of `at_once` workers (None: of all) of a thread's share; of so many `threads` each has an equal share. They end
        with the process, also in the midst of a piece: one may wait for a process that is stopped.
        """
        if self._copy is not None and not self._copy.future.done():
            raise InternalError("a copy is begun while another one is copied")
        for thread in self._threads:
            thread.join()  # it is copied, but who waits for the copy may be told before the threads have ended
        shares = [workers[first::threads] for first in range(max(1, min(threads, len(workers))))]
        copy = self._copy = _Copy(piece=piece, at_once=at_once, going=len(shares))
        self._threads = [
            threading.Thread(target=copy.run, args=(share,), name="dbsp-copier", daemon=True) for share in shares
        ]
        for thread in self._threads:
            thread.start()
        return copy.future

    def end(self, interrupt: Callable[[], None] = lambda: None, wait_s: float | None = None) -> None:
        """Begin no further piece, and wait for those under way, which `interrupt` may shorten, but no longer than `wait_s`."""
        if self._copy is not None:
            self._copy.ended.set()
        interrupt()
        until = None if wait_s is None else time.monotonic() + wait_s
        for thread in self._threads:
            thread.join(None if until is None else max(0.0, until - time.monotonic()))
        self._threads = [thread for thread in self._threads if thread.is_alive()]


@dataclass(slots=True, kw_only=True)
class _Copy(Generic[Report]):
    """What the threads of one copy share; `going` of them have not reported yet."""

    piece: Piece[Report]
    at_once: int | None
    going: int
    future: Future[Mapping[int, Report]] = field(default_factory=Future)
    ended: threading.Event = field(default_factory=threading.Event)
    _reports: dict[int, Report] = field(default_factory=dict)
    _failed: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, workers: tuple[int, ...]) -> None:
        """A thread: pieces on all of these workers that are not done yet. The error of one ends the others."""
        reports: dict[int, Report] = {}
        try:
            while waiting := tuple(worker for worker in workers if worker not in reports):
                if self.ended.is_set():
                    raise UnavailableError("the copying was ended")
                found = self.piece(waiting[: self.at_once])
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
        """A thread has done its share."""
        with self._lock:
            self._reports |= reports
            self.going -= 1
            whole = not self.going
        if whole:
            self.future.set_result(self._reports)


class WarmRound:
    """Adds up what the pieces of a warm-up's round say, and ends a worker's part when nothing of it is missing."""

    def __init__(self, told: Callable[[WarmProgress], None]) -> None:
        """Nothing was copied; `told` hears of every piece."""
        self._told = told
        self._copied: dict[int, int] = {}
        self._latest: dict[int, WarmReport] = {}

    def take(self, found: Mapping[int, WarmReport]) -> dict[int, WarmProgress | None]:
        """What these workers have done; the round's progress for those that are done."""
        for worker, report in found.items():
            self._copied[worker] = self._copied.get(worker, 0) + report.copied_bytes
            self._latest[worker] = report
        self._told(self.progress)
        return {worker: None if report.missing_bytes else self._of(worker) for worker, report in found.items()}

    @property
    def progress(self) -> WarmProgress:
        """Of all workers that have begun."""
        return whole_round([self._of(worker) for worker in self._latest])

    def _of(self, worker: int) -> WarmProgress:
        latest = self._latest[worker]
        return WarmProgress(
            copied_bytes=self._copied[worker], missing_bytes=latest.missing_bytes, slices_bytes=latest.slices_bytes
        )


def whole_round(parts: Iterable[WarmProgress]) -> WarmProgress:
    """The sum over workers."""
    parts = list(parts)
    return WarmProgress(
        copied_bytes=sum(part.copied_bytes for part in parts),
        missing_bytes=sum(part.missing_bytes for part in parts),
        slices_bytes=sum(part.slices_bytes for part in parts),
    )

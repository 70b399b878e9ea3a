"""Copying beside the steps, a pinned checkpoint or slices for new owners: one thread, piece by piece, that can be told to end.

What a piece is, the runtime says: a call in this process, or a small Spark job. A piece is bounded, so that a step never
waits long behind one and a rollback never waits long for one to end. Ending is a matter of time alone: a copy of an older
epoch that went on would be refused at its next piece (invariant 6).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

from dbsp.errors import InternalError, UnavailableError
from dbsp.runtime.runtime import WarmProgress
from dbsp.trace.redistribute import WarmReport

Report = TypeVar("Report")


@dataclass(slots=True)
class Copier:
    """At most one copy at a time."""

    _thread: threading.Thread | None = None
    _future: Future[Any] | None = None
    _ended: threading.Event = field(default_factory=threading.Event)

    def start(
        self,
        workers: tuple[int, ...],
        piece: Callable[[tuple[int, ...]], Mapping[int, Report | None]],
        at_once: int | None = None,
    ) -> Future[Mapping[int, Report]]:
        """Copy until all workers are done; the future has their reports, or the first error.

        `piece` copies a bit on each of some workers, `at_once` of them (None: all), and gives the report of those that are done.
        """
        if self._future is not None and not self._future.done():
            raise InternalError("a copy is begun while another one is copied")
        if self._thread is not None:
            self._thread.join()  # it is copied, but who waits for the copy may be told before the thread has ended
        future: Future[Mapping[int, Report]] = Future()
        self._future, self._ended = future, threading.Event()
        arguments = (workers, piece, at_once, future, self._ended)
        self._thread = threading.Thread(target=_copy, args=arguments, name="dbsp-copier", daemon=True)
        self._thread.start()
        return future

    def end(self, interrupt: Callable[[], None] = lambda: None, wait_s: float | None = None) -> None:
        """Begin no further piece, and wait for the one under way, which `interrupt` may shorten, but no longer than `wait_s`."""
        self._ended.set()
        interrupt()
        if self._thread is not None:
            self._thread.join(wait_s)
            if not self._thread.is_alive():
                self._thread = None


def _copy(
    workers: tuple[int, ...],
    piece: Callable[[tuple[int, ...]], Mapping[int, Report | None]],
    at_once: int | None,
    future: Future[Mapping[int, Report]],
    ended: threading.Event,
) -> None:
    """The thread: pieces on all workers that are not done yet."""
    reports: dict[int, Report] = {}
    try:
        while waiting := tuple(worker for worker in workers if worker not in reports):
            if ended.is_set():
                raise UnavailableError("the copying was ended")
            found = piece(waiting[:at_once])
            reports |= {worker: report for worker, report in found.items() if report is not None}
    except BaseException as error:  # noqa: BLE001 - whoever waits for the copy gets it
        future.set_exception(error)
    else:
        future.set_result(reports)


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

"""Copying a pinned checkpoint beside the steps: one thread, piece by piece, that can be told to end.

What a piece is, the runtime says: a call in this process, or a small Spark job. A piece is bounded, so that a step never
waits long behind one and a rollback never waits long for one to end. Ending is a matter of time alone: a copy of an older
epoch that went on would be refused at its next piece (invariant 6).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field

from dbsp.errors import InternalError, UnavailableError
from dbsp.store import CommitReport

PIECE_BYTES = 16 << 20

Reports = Mapping[int, CommitReport]
Piece = Callable[[tuple[int, ...]], Mapping[int, CommitReport | None]]
"""Copies a piece on each of these workers; the report of those that hold the version now."""


@dataclass(slots=True)
class Copier:
    """At most one copy at a time."""

    _thread: threading.Thread | None = None
    _ended: threading.Event = field(default_factory=threading.Event)

    def start(self, workers: tuple[int, ...], piece: Piece) -> Future[Reports]:
        """Copy until all workers hold the version; the future has their reports, or the first error."""
        if self._thread is not None and self._thread.is_alive():
            raise InternalError("a checkpoint is begun while another one is copied")
        future: Future[Reports] = Future()
        self._ended = threading.Event()
        arguments = (workers, piece, future, self._ended)
        self._thread = threading.Thread(target=_copy, args=arguments, name="dbsp-copier", daemon=True)
        self._thread.start()
        return future

    def end(self, interrupt: Callable[[], None] = lambda: None) -> None:
        """Begin no further piece, and wait for the one under way, which `interrupt` may shorten."""
        self._ended.set()
        interrupt()
        if self._thread is not None:
            self._thread.join()
            self._thread = None


def _copy(workers: tuple[int, ...], piece: Piece, future: Future[Reports], ended: threading.Event) -> None:
    """The thread: pieces on all workers that are not done yet."""
    reports: dict[int, CommitReport] = {}
    try:
        while waiting := tuple(worker for worker in workers if worker not in reports):
            if ended.is_set():
                raise UnavailableError("the copy of a checkpoint was ended")
            found = piece(waiting)
            reports |= {worker: report for worker, report in found.items() if report is not None}
    except BaseException as error:  # noqa: BLE001 - whoever waits for the copy gets it
        future.set_exception(error)
    else:
        future.set_result(reports)

"""Copy published versions while steps and checkpoints go on: copies that may lag (`copies_required = 0`).

One thread in an epoch copies the newest published version. When it is whole, the thread puts its checkpoint object, and goes on
with the version that is the newest then. The event loop keeps logs from the newest whole version on (`lagging`).

A place that does not answer, or that loses objects, delays the copies alone. Any other failure is tried again with the newest
version. A newer owner of the place ends this one: the next checkpoint fails with its error.

Source: docs/design/0055-copies-that-lag.md.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from dbsp.coordinator.running import lagging
from dbsp.coordinator.running.clock import Clock
from dbsp.coordinator.running.control import Ledger
from dbsp.coordinator.running.lagging import CopiedVersion
from dbsp.coordinator.running.published_copies import PublishedCopies, nothing_saved
from dbsp.errors import AwayError, DbspError, FencedError, InternalError, UnavailableError
from dbsp.runtime.copying import AWAY_RETRY_S
from dbsp.runtime.runtime import BehindOrder, CopiesBehind, Runtime, TellsCopyTrouble

CLOSE_S = 60.0
"""The most seconds that a close waits for a place that does not respond: longer than the time limit of a request."""

Change = Callable[[Callable[[Ledger], Ledger]], Ledger]


class CopyingBehind:
    """The copies that lag of one pipeline; where copies do not lag, nothing is done. Any thread may read the status."""

    def __init__(self, objects: PublishedCopies, clock: Clock) -> None:
        """Store the parts; send no request yet."""
        self.objects, self._clock = objects, clock
        self._whole: CopiedVersion | None = None
        self._newest: CopiedVersion | None = None
        self._runtime: Runtime | None = None
        self._missing_bytes = 0
        self._ended = threading.Event()
        self._news = threading.Event()
        self._thread: threading.Thread | None = None
        self._refused: FencedError | None = None
        self._using = threading.Lock()
        self.trouble: str | None = None
        """Why the copies make no progress; any thread may read it."""

    @property
    def lags(self) -> bool:
        """Return whether copies may lag."""
        return self.objects.lags

    # ---- on the thread of the event loop

    def begin(self, runtime: Runtime, ledger: Ledger, epoch: int, change: Change) -> Ledger:
        """Copy from now on; the ledger is that of the opened version.

        A version of another layout or circuit than that of the newest copy is copied first, before any step runs.

        **Errors** `AwayError` if such a copy has to wait for the place.
        """
        self.end()
        if not self.lags:
            return ledger if ledger.copied is None else change(lambda found: replace(found, copied=None))
        if not isinstance(runtime, CopiesBehind):
            raise InternalError(f"this runtime has no copies that lag: runtime={type(runtime).__name__}")
        before, self._thread = self._thread, None
        ended, self._refused = threading.Event(), None
        self._ended, self._runtime = ended, runtime
        self._whole = lagging.copied_in(ledger)
        self._newest = _newest(ledger)
        saved = ledger.saved.get(ledger.published)
        if not lagging.can_return(ledger, nothing_saved(ledger) if saved is None else saved.checkpoint):
            if before is not None:
                before.join()
            self._whole = None
            whole = self._copied(runtime, ledger, epoch, ended, waits=False)
            self._whole = whole
            ledger = change(lambda found: lagging.note_copied(found, whole))
        self._thread = self._started(runtime, epoch, ended, before)
        return ledger

    def noted(self, ledger: Ledger) -> Ledger:
        """Return the ledger with the newest version that is whole by now.

        **Errors** `FencedError` if a newer owner has the place.
        """
        if self._refused is not None:
            raise self._refused
        return ledger if self._whole is None else lagging.note_copied(ledger, self._whole)

    def published(self, ledger: Ledger) -> None:
        """Queue the published version; the thread copies it after the present one."""
        self._newest = _newest(ledger)
        self._news.set()

    def end(self) -> None:
        """Ask the thread to end; the caller ends the runtime's copies."""
        self._ended.set()
        self._news.set()
        self.trouble = None

    def close(self) -> None:
        """Wait until the thread does not use the logs any more: the caller closes them."""
        self.end()
        if self._using.acquire(timeout=CLOSE_S):
            self._using.release()

    # ---- the status

    def status(self) -> dict[str, Any] | None:
        """Return as JSON values how far the copies are behind; None where they do not lag."""
        whole, newest = self._whole, self._newest
        if not self.lags or newest is None:
            return None
        is_behind = whole is None or whole.version < newest.version
        since_us = 0 if whole is None else whole.wall_us
        age_s = max(0.0, (self._clock.wall_us() - since_us) / 1e6) if is_behind and since_us else 0.0
        return {
            "place": self.objects.where, "version": None if whole is None else whole.version,
            "step": None if whole is None else whole.step, "published": newest.version,
            "lag_versions": newest.version - (0 if whole is None else whole.version),
            "lag_bytes": self._missing_bytes if is_behind else 0, "age_s": round(age_s, 3),
            "error": self.trouble or _trouble(self._runtime),
        }  # fmt: skip

    # ---- the thread

    def _started(
        self, runtime: Runtime, epoch: int, ended: threading.Event, before: threading.Thread | None
    ) -> threading.Thread | None:
        """Start the thread of an epoch; return None in the simulator, which runs the copying in pieces."""
        thread = threading.Thread(
            target=self._run, args=(runtime, epoch, ended, before), name="dbsp-copies-behind", daemon=True
        )
        thread.start()
        return thread

    def _run(self, runtime: Runtime, epoch: int, ended: threading.Event, before: threading.Thread | None) -> None:
        if before is not None:
            before.join()  # its requests to the place have ended, too
        while not ended.is_set():
            self._news.clear()
            try:
                with self._logs(ended):
                    ledger = self.objects.ledger()
                if self._whole is None or self._whole.version < ledger.published:
                    self._whole = self._copied(runtime, ledger, epoch, ended)
                    continue
                with self._logs(ended):
                    self.objects.collect(epoch)
                self.trouble = None
            except FencedError as error:
                if not ended.is_set():
                    self._refused, self.trouble = error, str(error)
                return
            except DbspError as error:
                self._note(ended, error)
                ended.wait(AWAY_RETRY_S)
                continue
            if not ended.is_set():
                self._news.wait()

    @contextmanager
    def _logs(self, ended: threading.Event) -> Iterator[None]:
        """Yield the ledger and the logs, which stay open within the block."""
        with self._using:
            if ended.is_set():
                raise UnavailableError("the copying was stopped")
            yield

    def _note(self, ended: threading.Event, error: DbspError) -> None:
        """Store why the copies make no progress; an interruption by a rescale does not count."""
        if not ended.is_set() and (isinstance(error, AwayError) or not isinstance(error, UnavailableError)):
            self.trouble = str(error)

    def _copied(
        self, runtime: Runtime, ledger: Ledger, epoch: int, ended: threading.Event, *, waits: bool = True
    ) -> CopiedVersion:
        """Copy the published version of a ledger, and put its checkpoint object; return the version.

        **Errors** `AwayError` if the place does not answer and the caller does not wait.
        """
        if not isinstance(runtime, CopiesBehind):
            raise InternalError(f"this runtime has no copies that lag: runtime={type(runtime).__name__}")
        order = self._order(ledger, epoch)

        def report(missing_bytes: int) -> None:
            self._missing_bytes = missing_bytes

        copied = runtime.copy_behind(order, ledger.layouts[order.checkpoint.layout_version], report)
        _await(copied, runtime, waits=waits)
        while True:
            try:
                return self._named(ledger, epoch, ended)
            except AwayError as error:
                if not waits:
                    raise
                self._note(ended, error)
                if ended.wait(AWAY_RETRY_S):
                    raise UnavailableError("the copying was stopped") from error

    def _order(self, ledger: Ledger, epoch: int) -> BehindOrder:
        """Return the order to copy the published version of a ledger of this epoch."""
        if ledger.epoch != epoch:
            raise UnavailableError(f"another epoch has begun: epoch={epoch} newest={ledger.epoch}")
        saved = ledger.saved.get(ledger.published)
        return BehindOrder(
            epoch=epoch, version=ledger.published,
            checkpoint=nothing_saved(ledger) if saved is None else saved.checkpoint,
            needed_from=0 if self._whole is None else self._whole.step,
        )  # fmt: skip

    def _named(self, ledger: Ledger, epoch: int, ended: threading.Event) -> CopiedVersion:
        """Put the checkpoint object of the ledger's published version, which is whole; return the version."""
        with self._logs(ended):
            self.objects.put_behind(ledger, epoch)
        self.trouble = None
        saved = ledger.saved.get(ledger.published)
        return CopiedVersion(
            version=ledger.published, saved=saved, wall_us=self._clock.wall_us() if saved is None else saved.wall_us
        )


def _await(copied: Future[Mapping[int, int]], runtime: Runtime, *, waits: bool) -> None:
    """Wait for the end of a copy; raise `AwayError` at the first trouble if the caller does not wait."""
    while not waits and not wait([copied], AWAY_RETRY_S).done:
        if (trouble := _trouble(runtime)) is not None:
            raise AwayError(f"the first copy of a layout or a circuit waits: {trouble}")
    copied.result()


def _trouble(runtime: Runtime | None) -> str | None:
    """Return why the runtime's copies make no progress."""
    return runtime.copy_trouble() if isinstance(runtime, TellsCopyTrouble) else None


def _newest(ledger: Ledger) -> CopiedVersion:
    """Return the published version."""
    saved = ledger.saved.get(ledger.published)
    return CopiedVersion(version=ledger.published, saved=saved, wall_us=0 if saved is None else saved.wall_us)

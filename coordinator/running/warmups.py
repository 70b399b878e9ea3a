"""The progress of a warm-up: the round under way, how it ended, and the totals over all rounds.

The copying thread reports the progress; any thread may read it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import replace

from dbsp.coordinator.decisions import commands, events
from dbsp.coordinator.running.clock import Clock
from dbsp.coordinator.running.notices import WarmupRound
from dbsp.coordinator.running.progress import RescaleProgress
from dbsp.errors import DbspError
from dbsp.runtime.runtime import WarmProgress


class WarmUps:
    """The round under way, and the totals of the rounds before it."""

    def __init__(self, clock: Clock) -> None:
        """Begin with no warm-up."""
        self._clock = clock
        self._future: Future[Mapping[int, WarmProgress]] | None = None
        self._progress: RescaleProgress | None = None
        self._round = 0
        self._before = 0
        self._since_s = self._round_since_s = 0.0

    @property
    def progress(self) -> RescaleProgress | None:
        """Return the progress of the warm-up; None if there is none."""
        return self._progress

    @property
    def copied_bytes(self) -> int:
        """Return the bytes copied in all rounds."""
        progress = self._progress
        return progress.copied_bytes if progress is not None else 0

    def begin(self, command: commands.WarmUp) -> Callable[[WarmProgress], None]:
        """Begin a round, and return the function to which the copying thread reports its progress."""
        now = self._clock.monotonic_s()
        if self._progress is None:
            self._since_s = now
        self._round, self._round_since_s, self._before = command.round, now, self.copied_bytes
        first = RescaleProgress(
            workers=len(command.new.workers), workers_before=len(command.old.workers), round=command.round,
            copied_bytes=self._before, lag_bytes=0, slices_bytes=0, seconds=now - self._since_s, expected_s=None,
        )  # fmt: skip
        self._progress = first
        return lambda progress: self._tell(first, progress)

    def _tell(self, first: RescaleProgress, progress: WarmProgress) -> None:
        """Update the progress, on the copying thread; ignore reports of an earlier round."""
        if self._progress is None or self._progress.round != first.round:
            return
        now = self._clock.monotonic_s()
        rate = progress.copied_bytes / max(now - self._round_since_s, 1e-6)
        self._progress = replace(
            first, copied_bytes=first.copied_bytes + progress.copied_bytes, lag_bytes=progress.missing_bytes,
            slices_bytes=progress.slices_bytes, seconds=now - self._since_s,
            expected_s=progress.missing_bytes / rate if rate > 0 else None,
        )  # fmt: skip

    def going(self, future: Future[Mapping[int, WarmProgress]]) -> None:
        """Remember the future of the round that has begun."""
        self._future = future

    def forget(self) -> None:
        """Forget the warm-up, which has ended."""
        self._future, self._progress = None, None

    def news(self, number: int) -> events.WarmEnded | None:
        """Return how a round has ended; None while it goes on, and for any other round."""
        if self._future is None or self._round != number or not self._future.done():
            return None
        try:
            reports = self._future.result()
        except DbspError as error:
            return events.WarmEnded(round=number, code=error.code, message=str(error))
        except Exception as error:  # noqa: BLE001 - whatever a runtime or a driver raises is judged by the machine
            return events.WarmEnded(round=number, code="internal", message=f"{type(error).__name__}: {error}")
        return events.WarmEnded(round=number, lag_bytes=sum(report.copied_bytes for report in reports.values()))

    def round_notice(self, news: events.WarmEnded) -> WarmupRound:
        """Return the notice of a round that ended."""
        seconds = self._clock.monotonic_s() - self._round_since_s
        return WarmupRound(round=news.round, lag_bytes=news.lag_bytes, seconds=round(seconds, 6))

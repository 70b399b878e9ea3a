"""The live line of a running service: state, step, rows a second, step latency, lag, checkpoint.

On a terminal it is redrawn four times a second; elsewhere (a file, continuous integration) a plain line is printed now and then,
and only when something changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

from dbsp.coordinator.clock import Clock
from dbsp.coordinator.moves import MovingProgress
from dbsp.coordinator.status import Snapshot, WaitingRescale
from dbsp.coordinator.warmups import RescaleProgress

PLAIN_INTERVAL_S = 10.0
RATE_WINDOW_S = 2.0


class Rate:
    """Rows a second over the last window."""

    def __init__(self) -> None:
        """Nothing was seen."""
        self._seen: list[tuple[float, int]] = []

    def update(self, now_s: float, rows: int) -> float:
        """The rate when `rows` rows have been processed by `now_s`."""
        self._seen.append((now_s, rows))
        while len(self._seen) > 2 and self._seen[1][0] <= now_s - RATE_WINDOW_S:  # noqa: PLR2004 - two ends of a window
            self._seen.pop(0)
        (first_s, first), (last_s, last) = self._seen[0], self._seen[-1]
        return (last - first) / (last_s - first_s) if last_s > first_s else 0.0


def line(now: Snapshot, rate: float) -> str:
    """The figures as one line of text.

    **Example**

    >>> line(Snapshot(state="Running", step=12, rows_in=3400, version=2), 1234.5)
    'Running  step 12  3,400 rows  1,234 rows/s  lag 0 rows  checkpoint 2'
    """
    parts = [
        "Replaying" if now.replaying else now.state,
        f"step {now.step:,}",
        f"{now.rows_in:,} rows",
        f"{rate:,.0f} rows/s",
    ]
    if now.last_report is not None:
        parts.append(f"{now.last_report.seconds * 1000:,.0f} ms a step")
    parts.append(f"lag {now.lag_rows:,} rows")
    parts.append(f"checkpoint {now.version}")
    if now.rescale is not None:
        parts.append(rescale_text(now.rescale))
    if now.waiting is not None:
        parts.append(waiting_text(now.waiting))
    if now.dead:
        parts.append(f"{now.dead:,} dead letters")
    if now.rollbacks:
        parts.append(f"{now.rollbacks} rollbacks")
    return "  ".join(parts)


def rescale_lines(status: Mapping[str, Any]) -> list[str]:
    """What a service's status says of the rescale under way and of the one that waits: a line each."""
    under_way, waiting = status["rescale"], status["rescale_waiting"]
    lines = []
    if under_way:
        progress = MovingProgress(**under_way) if "left_keys" in under_way else RescaleProgress(**under_way)
        lines.append(rescale_text(progress))
    if waiting:
        lines.append(waiting_text(WaitingRescale(**waiting)))
    return lines


def waiting_text(waiting: WaitingRescale) -> str:
    """Which rescale waits, and for what.

    **Example**

    >>> waiting_text(WaitingRescale(workers=3, strategy="icadd", waits_for="the rescale under way"))
    'to 3 workers by icadd: waits for the rescale under way'
    """
    return f"to {waiting.workers} workers by {waiting.strategy}: waits for {waiting.waits_for}"


def rescale_text(rescale: RescaleProgress | MovingProgress) -> str:
    """How far a warm-up or a migration is, and how long its round, or all of it, takes yet.

    **Example**

    >>> rescale_text(RescaleProgress(workers=3, workers_before=2, round=1, copied_bytes=30_000_000, lag_bytes=10_000_000,
    ...     slices_bytes=90_000_000, seconds=3.0, expected_s=1.0))
    '2 -> 3 workers: round 1, 30 MB copied, 10 MB to go, 1 s'
    """
    known = "" if rescale.expected_s is None else f", {rescale.expected_s:,.0f} s"
    counts = f"{rescale.workers_before} -> {rescale.workers} workers"
    if isinstance(rescale, MovingProgress):
        return f"{counts}: {rescale.moved_keys:,} keys moved, {rescale.left_keys:,} to go{known}"
    return (
        f"{counts}: round {rescale.round},"
        f" {rescale.copied_bytes / 1e6:,.0f} MB copied, {rescale.lag_bytes / 1e6:,.0f} MB to go{known}"
    )


class Progress:
    """Shows snapshots; a context manager, so that a redrawn line is left in order."""

    def __init__(self, clock: Clock, console: Console | None = None) -> None:
        """On standard error, unless told otherwise."""
        self._console = console or Console(stderr=True)
        self._live = Live(console=self._console, refresh_per_second=4) if self._console.is_terminal else None
        self._clock, self._rate = clock, Rate()
        self._printed_s, self._printed = float("-inf"), ""

    def __enter__(self) -> Self:
        """Begin to draw."""
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the line as it is."""
        if self._live is not None:
            self._live.stop()

    def show(self, now: Snapshot) -> None:
        """Draw a snapshot, or print it if it is time."""
        at = self._clock.monotonic_s()
        text = line(now, self._rate.update(at, now.rows_in))
        if self._live is not None:
            self._live.update(Text(text))
        elif at - self._printed_s >= PLAIN_INTERVAL_S and text != self._printed:
            self._printed_s, self._printed = at, text
            self._console.print(text, highlight=False, soft_wrap=True)

"""The live line of a running service: state, step, rows a second, step latency, lag, checkpoint.

On a terminal it is redrawn four times a second. Elsewhere (a file, continuous integration) a plain line is printed at
most every `PLAIN_INTERVAL_S`, and only when something changed.
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

from dbsp.coordinator.exits import lead_nowhere
from dbsp.coordinator.running.clock import Clock
from dbsp.coordinator.running.progress import rescale_text, waiting_text
from dbsp.coordinator.running.status import Snapshot

PLAIN_INTERVAL_S = 10.0


class _Lasting(Console):
    """A console whose reader may end before the service does."""

    def on_broken_pipe(self) -> None:
        """Discard all later output; the base class would end the process."""
        lead_nowhere()


def console(*, quiet: bool = False) -> Console:
    """Return a console on standard error for the live line."""
    return _Lasting(stderr=True, quiet=quiet)


RATE_WINDOW_S = 2.0


class Rate:
    """The rate of processed rows, over the last `RATE_WINDOW_S` seconds."""

    def __init__(self) -> None:
        """Begin without samples."""
        self._seen: list[tuple[float, int]] = []

    def update(self, now_s: float, rows: int) -> float:
        """Add a sample, and return the rows a second over the window."""
        self._seen.append((now_s, rows))
        while len(self._seen) > 2 and self._seen[1][0] <= now_s - RATE_WINDOW_S:  # noqa: PLR2004 - two ends of a window
            self._seen.pop(0)
        (first_s, first), (last_s, last) = self._seen[0], self._seen[-1]
        return (last - first) / (last_s - first_s) if last_s > first_s else 0.0


def line(now: Snapshot, rate: float) -> str:
    """Format the figures of a snapshot as one line of text.

    **Example**

    >>> line(Snapshot(state="Running", step=12, rows_in=3400, version=2), 1234.5)
    'Running  step 12  3,400 rows  1,234 rows/s  lag 0 rows  checkpoint 2'
    """
    parts = [
        "Replaying" if now.replaying else now.state,
        f"step {now.step}",
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


class LiveLine:
    """The drawing of snapshots; a context manager, so that the terminal is left in order."""

    def __init__(self, clock: Clock, on: Console | None = None) -> None:
        """Draw on standard error, or on the given console."""
        self._console = on or console()
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
        """Stop drawing, and leave the last line as it is."""
        if self._live is not None:
            self._live.stop()

    def show(self, now: Snapshot) -> None:
        """Draw the snapshot again on a terminal; elsewhere print a line if one is due."""
        at = self._clock.monotonic_s()
        text = line(now, self._rate.update(at, now.rows_in))
        if self._live is not None:
            self._live.update(Text(text))
        elif at - self._printed_s >= PLAIN_INTERVAL_S and text != self._printed:
            self._printed_s, self._printed = at, text
            self._console.print(text, highlight=False, soft_wrap=True)

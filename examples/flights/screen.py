"""What the demo shows: a line of progress while it plays, the views as tables when it is done.

On a terminal the line is redrawn; elsewhere (a file, continuous integration) a line is printed every few seconds.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Self

import pyarrow as pa
from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

PLAIN_INTERVAL_S = 5.0
ROWS_SHOWN_MAX = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far the run is: changes `played` are in the log, `processed` in the views, out of `total`."""

    played: int
    processed: int
    total: int
    step: int
    rows_per_s: float
    latency_ms: float
    checkpoint: int

    @property
    def lag(self) -> int:
        """Changes in the log that no step has processed yet."""
        return max(self.played - self.processed, 0)

    def cells(self) -> list[str]:
        """The figures as text."""
        return [
            f"{self.processed:,} of {self.total:,} changes",
            f"step {self.step:,}",
            f"{self.rows_per_s:,.0f} rows/s",
            f"{self.latency_ms:,.0f} ms a step",
            f"lag {self.lag:,} rows",
            f"checkpoint {self.checkpoint}",
        ]


class Screen:
    """Shows progress; a context manager, so that a redrawn line is left in order."""

    def __init__(self, console: Console | None = None) -> None:
        """On standard output, unless told otherwise."""
        self.console = console or Console()
        self._live = Live(console=self.console, refresh_per_second=8) if self.console.is_terminal else None
        self._printed = 0.0

    def __enter__(self) -> Self:
        """Begin."""
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End."""
        if self._live is not None:
            self._live.stop()

    def show(self, progress: Progress, *, last: bool = False) -> None:
        """Show how far the run is; `last` is printed whatever the interval."""
        if self._live is not None:
            bar = ProgressBar(total=progress.total, completed=progress.processed, width=24)
            line = Table.grid(padding=(0, 2))
            line.add_row(bar, *progress.cells())
            self._live.update(line)
        elif last or time.monotonic() - self._printed >= PLAIN_INTERVAL_S:
            self._printed = time.monotonic()
            self.console.print(", ".join(progress.cells()), soft_wrap=True, highlight=False)


def print_view(console: Console, name: str, view: pa.Table, order: list[tuple[str, str]]) -> None:
    """Print a view's first rows in the order given (pairs as `pyarrow.Table.sort_by` takes them)."""
    rows = view.sort_by(order)
    shown = Table(title=f"{name} ({view.num_rows:,} rows)", title_justify="left")
    for column in rows.schema:
        number = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
        shown.add_column(column.name, justify="right" if number else "left")
    for row in rows.slice(0, ROWS_SHOWN_MAX).to_pylist():
        shown.add_row(*(_text(value) for value in row.values()))
    console.print(shown)
    if view.num_rows > ROWS_SHOWN_MAX:
        console.print(f"  and {view.num_rows - ROWS_SHOWN_MAX:,} more", highlight=False)


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.2f}"
    return f"{value:,}" if isinstance(value, int) else str(value)

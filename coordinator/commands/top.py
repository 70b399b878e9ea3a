"""`coordinator top`: a service at a glance, redrawn at an interval: state, rows a second, lag, workers, alarms."""

from __future__ import annotations

import json
import select
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import click

from dbsp.coordinator.commands.command_context import CommandContext
from dbsp.coordinator.running.progress import rescale_lines

CLEAR = "\033[H\033[2J"
ALARMS_MAX = 10
WORKERS_MAX = 30


@click.command()
@click.option(
    "--interval", "interval_s", type=click.FloatRange(min=0.1), default=1.0, show_default=True, metavar="SECONDS",
    help="How often it is drawn; the time that rows a second are counted over.",
)  # fmt: skip
@click.option("--once", is_flag=True, help="Print it once, for scripts.")
@click.pass_obj
def top(context: CommandContext, interval_s: float, once: bool) -> None:
    """Watch state, rows a second, lag and workers; q or Ctrl-C ends it."""
    live = sys.stdin.isatty() and sys.stdout.isatty() and not once
    with _keys(live) as pressed:
        before = _look(context)
        while not pressed(interval_s):
            now = _look(context)
            found = figures(before, now)
            text = json.dumps(found) if context.as_json else "\n".join(screen(found, now["status"]))
            click.echo((CLEAR if live else "") + text)
            before = now
            if once:
                return


def _look(context: CommandContext) -> dict[str, Any]:
    """Ask for the status and the layout."""
    return {"at": time.monotonic(), "status": context.client.status(), "layout": context.client.layout()}


def figures(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figures of the screen as JSON values; rates are None if the service has restarted since the last look."""
    status, past = now["status"], before["status"]
    seconds = now["at"] - before["at"]
    same = status["epoch"] == past["epoch"] and seconds > 0

    def rate(name: str) -> float | None:
        return round((status[name] - past[name]) / seconds, 1) if same and status[name] >= past[name] else None

    workers = [
        {name: row[name] for name in ("worker", "host", "shards", "state_bytes")} for row in now["layout"]["rows"]
    ]
    return {
        "name": status["name"], "state": status["state"], "step": status["step"], "workers": workers,
        "rows_in_per_s": rate("rows_in"), "rows_out_per_s": rate("rows_out"), "steps_per_s": rate("step"),
        "lag_rows": status["lag_rows"], "state_bytes": status["state_bytes"], "dead_letters": status["dead_letters"],
        "last_step_seconds": status["last_step_seconds"], "checkpoint_step": status["checkpoint_step"],
        "alarms": [alarm["text"] for alarm in status["alarms"]],
    }  # fmt: skip


def screen(found: Mapping[str, Any], status: Mapping[str, Any]) -> list[str]:
    """Return the lines of the screen."""
    last = found["last_step_seconds"]
    lines = [
        f"{found['name']}: {found['state']}, step {found['step']}, checkpoint at {found['checkpoint_step']}",
        f"rows in {_rate(found['rows_in_per_s'])}, rows out {_rate(found['rows_out_per_s'])}, steps {_rate(found['steps_per_s'])}"
        + ("" if last is None else f", last step {last * 1000:,.1f} ms"),
        f"lag {_lag(found['lag_rows'])} rows, state {_megabytes(found['state_bytes'])} MB,"
        f" {found['dead_letters']:,} dead letters",
        *rescale_lines(dict(status)),
        "",
        f"{'worker':>8}  {'shards':>8}  {'state MB':>10}  host",
        *(_worker_line(row) for row in found["workers"][:WORKERS_MAX]),
        *_more(found["workers"], WORKERS_MAX),
    ]
    if found["alarms"]:
        lines += ["", *(f"! {text}" for text in found["alarms"][:ALARMS_MAX]), *_more(found["alarms"], ALARMS_MAX)]
    return lines


def _lag(rows: int | None) -> str:
    return "-" if rows is None else f"{rows:,}"


def _megabytes(size: int | None) -> str:
    return "-" if size is None else f"{size / 1e6:,.1f}"


def _worker_line(row: Mapping[str, Any]) -> str:
    return f"{row['worker']:>8}  {row['shards']:>8,}  {_megabytes(row['state_bytes']):>10}  {row['host'] or '-'}"


def _more(found: Sequence[Any], shown: int) -> list[str]:
    return [f"and {len(found) - shown:,} more"] if len(found) > shown else []


def _rate(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}/s"


@contextmanager
def _keys(live: bool) -> Iterator[Callable[[float], bool]]:
    """Yield a function that waits some seconds and returns whether q was pressed; without a terminal it only waits."""

    def waited(seconds: float) -> bool:
        time.sleep(seconds)  # the time between two looks
        return False

    if not live:
        with suppress(KeyboardInterrupt):
            yield waited
        return
    import termios  # noqa: PLC0415 - only where there is a terminal
    import tty  # noqa: PLC0415 - as above

    def pressed(seconds: float) -> bool:
        ready, _, _ = select.select([sys.stdin], [], [], seconds)
        return bool(ready) and sys.stdin.read(1) in ("q", "Q", "")

    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        with suppress(KeyboardInterrupt):
            yield pressed
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)

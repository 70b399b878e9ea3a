"""Plays the flights through the pipeline: `make run`, or `python -m examples.flights.run [--set section.key=value ...]`.

The coordinator service runs in this process, with Spark as `pipeline.toml` says, and answers over HTTP meanwhile. The player
pushes the change stream under one producer id, each batch in one durable transaction; where the log ends it goes on after
an interruption, of whatever kind. When everything is played, the views are printed and held against DuckDB's answers.

Environment: `FRESH=1` removes the state first. Exit codes: 0 all equal, 1 a view differs, 130 interrupted (run it again to
go on), others as `dbsp.coordinator.exits`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import cast

import numpy as np
import pyarrow as pa
from rich.console import Console

from dbsp.coordinator.http.app import make_app
from dbsp.coordinator.http.listen import HttpServer, bind
from dbsp.coordinator.running.status import Snapshot
from dbsp.coordinator.service import Service
from dbsp.coordinator.settings.config import Config, load_config
from dbsp.errors import DbspError, UnavailableError
from dbsp.io.embedded_input import EmbeddedInputLog
from dbsp.io.pushed import Incoming, Producer
from dbsp.io.pushed import Push as LogPush
from dbsp.logs import DELETE, INSERT
from dbsp.zset.batch import Batch
from examples.flights import changes, data, oracle
from examples.flights.screen import Progress, Screen, print_view

HERE = Path(__file__).parent
PRODUCER = "player"
ROWS_PER_BATCH = 10_000
BATCHES_AHEAD = 2
RATE_WINDOW_S = 3.0
ORDER = {
    "delay_by_airline": [("mean_delay", "descending")],
    "worst_routes": [("mean_delay", "descending")],
    "delay_by_weather": [("mean_delay", "descending")],
    "flights_by_model": [("flights", "descending"), ("manufacturer", "ascending"), ("model", "ascending")],
    "fleet": [("planes", "descending"), ("name", "ascending")],
}


class Interrupted(Exception):  # noqa: N818 - it is no error
    """The user wants to stop; the state is kept."""


class Player:
    """Sends the stream to the service, never more than a few batches ahead of what is processed."""

    def __init__(
        self, service: Service, tables: dict[str, pa.Table], total: int, screen: Screen, stop: threading.Event
    ) -> None:
        """Look up where the log ends; nothing is sent yet. `total` changes are wanted in all."""
        self._service, self._tables, self._screen, self._stop = service, tables, screen, stop
        self.total = total
        inputs = cast(EmbeddedInputLog, service.built.parts.inputs)
        known = [inputs.last_sequence(table, PRODUCER) for table in tables]
        self.played = max((sequence for sequence in known if sequence is not None), default=0)
        self._recent: deque[tuple[float, int]] = deque([(time.monotonic(), self._processed(service.snapshot))])

    @property
    def finished(self) -> bool:
        """Whether everything has been sent."""
        return self.played >= self.total

    def play(self, rows_per_batch: int) -> None:
        """Send what was not sent yet, and wait until all of it is processed."""
        for batch in changes.pushes(self._tables, rows_per_batch, self.played):
            if self.finished:
                break
            self._wait_until_processed(self.played - (BATCHES_AHEAD - 1) * rows_per_batch)
            self._send(batch)
        self._wait_until_processed(self.played)
        self._screen.show(self._progress(), last=True)

    def _send(self, batch: list[changes.Push]) -> None:
        """One batch, in one transaction; the sequence number is the number of changes sent with and before a push."""
        incoming = []
        for push in batch:
            self.played += push.rows.num_rows
            incoming.append(
                Incoming(
                    table=push.table,
                    push=_log_push(self._service, push),
                    producer=Producer(id=PRODUCER, sequence=self.played),
                )
            )
        self._service.push_many(incoming)

    def _wait_until_processed(self, changes_: int) -> None:
        live_status = self._service.live_status
        while not live_status.wait_for(lambda now: self._processed(now) >= changes_, 0.2):
            self._check()
        self._check()

    def _check(self) -> None:
        self._screen.show(self._progress())
        if self._stop.is_set():
            raise Interrupted
        now = self._service.snapshot
        if now.ended:
            raise UnavailableError(f"the service has ended: {now.last_error or 'it was stopped'}", "run it again")

    @staticmethod
    def _processed(now: Snapshot) -> int:
        return sum(now.processed.values())

    def _progress(self) -> Progress:
        now = self._service.snapshot
        at, processed = time.monotonic(), self._processed(now)
        self._recent.append((at, processed))
        while len(self._recent) > 2 and at - self._recent[0][0] > RATE_WINDOW_S:
            self._recent.popleft()
        (first_at, first), (last_at, last) = self._recent[0], self._recent[-1]
        return Progress(
            played=self.played,
            processed=processed,
            total=self.total,
            step=now.step,
            rows_per_s=(last - first) / (last_at - first_at) if last_at > first_at else 0.0,
            latency_ms=now.last_report.seconds * 1000 if now.last_report else 0.0,
            checkpoint=now.version,
        )


def _log_push(service: Service, push: changes.Push) -> LogPush:
    """Rows as the input log wants them; a delete names the key alone, the rest is null."""
    table = service.table(push.table)
    rows = push.rows.num_rows
    columns = [
        push.rows[column.name] if column.name in push.rows.column_names else pa.nulls(rows, column.type)
        for column in table.schema
    ]
    operations = np.full(rows, DELETE if push.delete else INSERT, dtype=np.int8)
    return LogPush(batch=Batch.of(table.schema, columns), operations=operations)


@contextmanager
def answering(service: Service, config: Config) -> Iterator[str]:
    """Serve the HTTP interface; gives its address."""
    server = HttpServer(make_app(service), bind(config.http), config.data_dir)
    server.announce()
    server.start()
    try:
        yield server.url
    finally:
        server.stop()


@contextmanager
def stopping_on_signals() -> Iterator[threading.Event]:
    """An event that SIGINT or SIGTERM sets."""
    stop = threading.Event()

    def handle(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What the run ended with: the views, and the rows they are of."""

    views: dict[str, pa.Table]
    rows: dict[str, pa.Table]


def play(config: Config, rows_per_batch: int, total: int | None, screen: Screen, stop: threading.Event) -> Played:
    """Start the service, play what is left, take a last checkpoint."""
    console = screen.console
    tables = data.read()
    total = min(total or changes.count(tables), changes.count(tables))
    console.print(
        f"starting the service: runtime {config.pipeline.runtime}, state in {config.data_dir.resolve()}", soft_wrap=True
    )
    with Service(config) as service, answering(service, config) as url:
        player = Player(service, tables, total, screen, stop)
        if player.finished:
            console.print(f"all {player.played:,} changes were played before; these are the views from the state")
        else:
            console.print(f"playing {player.total - player.played:,} of {player.total:,} changes; console at {url}/")
        with screen:
            player.play(rows_per_batch)
        service.checkpoint()
        views = {found.view: found.table.drop_columns(["weight"]) for found in service.read_views(tuple(ORDER))}
        return Played(views=views, rows=changes.remaining(tables, player.played))


def report(console: Console, played: Played) -> bool:
    """Print the views, and whether they equal the recomputation."""
    views = played.views
    for name, view in views.items():
        print_view(console, name, view, ORDER[name])
    expected = oracle.recompute(played.rows)
    found = {name: oracle.differences(view, expected[name]) for name, view in views.items()}
    for name, lines in found.items():
        for line in lines[:10]:
            console.print(f"{name}: {line}", style="red", highlight=False)
    equal = not any(found.values())
    rows = sum(view.num_rows for view in views.values())
    if equal:
        console.print(f"all {len(views)} views ({rows:,} rows) equal DuckDB's recomputation over the same rows")
    else:
        wrong = ", ".join(name for name, lines in found.items() if lines)
        console.print(f"NOT equal to DuckDB's recomputation over the same rows: {wrong}", style="bold red")
    return equal


def main(arguments: list[str] | None = None) -> int:
    """Run the demo; the exit code."""
    parser = argparse.ArgumentParser(description="Play the flights of New York 2013 through a circuit.")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="change a setting")
    parser.add_argument("--rows-per-batch", type=int, default=ROWS_PER_BATCH, help="changes sent in one transaction")
    parser.add_argument("--changes", type=int, help="play only so many changes (whole batches)")
    chosen = parser.parse_args(arguments)
    screen = Screen()
    try:
        config = load_config(HERE / "pipeline.toml", overrides=chosen.set)
        if os.environ.get("FRESH", "") not in ("", "0"):
            shutil.rmtree(config.data_dir, ignore_errors=True)
        with stopping_on_signals() as stop:
            played = play(config, chosen.rows_per_batch, chosen.changes, screen, stop)
    except Interrupted:
        screen.console.print("interrupted; run it again to go on from here")
        return 130
    except DbspError as error:
        screen.console.print(f"error: {error}", style="red", highlight=False, soft_wrap=True)
        return error.exit_code
    return 0 if report(screen.console, played) else 1


if __name__ == "__main__":
    sys.exit(main())

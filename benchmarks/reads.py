"""Reads of a view while steps run, and look-ups by key: `python -m benchmarks.reads [--rows N] [--lookup-rows N] [--spark]`.

A service of two workers counts and sums per item; each item is a group of its own. Three medians of 50 one-row steps, as
a client sees them: alone, beside one thread that reads the whole view again and again, and beside one thread that only
sorts numbers. The last tells what any other thread costs on this machine. Then one row is read by its key: through the
service, and by an SQL query.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks import report
from benchmarks.report import Target
from dbsp.coordinator.serve import SWITCH_S
from dbsp.coordinator.service import Service
from dbsp.coordinator.settings.config import load_config

PUSH_ROWS, STEPS, LOOKUPS, QUERIES = 500_000, 50, 100, 20
CIRCUIT = """
import dbsp
orders = dbsp.table("orders", {"id": dbsp.INT64, "item": dbsp.STRING, "paid": dbsp.INT64}, primary_key="id")
sales = orders.group_by("item").aggregate(orders=dbsp.count(), paid=dbsp.sum("paid"))
shop = dbsp.circuit("shop", {"sales": sales})
"""
SETTINGS = """
[pipeline]
circuit = "circuit.py:shop"
runtime = "%s"
[checkpoint]
interval_s = 3600
[step]
max_step_delay_ms = 0
[http]
enabled = false
"""


def loaded(folder: Path, rows: int, runtime: str) -> Service:
    """Return a started service whose view has so many rows."""
    (folder / "circuit.py").write_text(CIRCUIT)
    (folder / "pipeline.toml").write_text(SETTINGS % runtime)
    service = Service(load_config(folder / "pipeline.toml", environment={}))
    service.start(timeout_s=300)
    for first in range(0, rows, PUSH_ROWS):
        ids = np.arange(first, min(first + PUSH_ROWS, rows))
        items = pa.array(np.char.add("item number ", ids.astype(str)))
        position = service.push("orders", pa.table({"id": ids, "item": items, "paid": ids % 7}))
    service.wait_until_processed(position, 1200)
    return service


def timed_ms(times: int, action: Callable[[int], object]) -> list[float]:
    """Return how long each call took."""
    found = []
    for number in range(times):
        started = time.perf_counter()
        action(number)
        found.append(1000 * (time.perf_counter() - started))
    return found


class Beside:
    """A thread that does something again and again while the block runs."""

    def __init__(self, action: Callable[[], object]) -> None:
        """Prepare the thread."""
        self._action, self._ends = action, threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.times = 0

    def _run(self) -> None:
        while not self._ends.is_set():
            self._action()
            self.times += 1

    def __enter__(self) -> Beside:
        """Start the thread."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End the thread after its action."""
        self._ends.set()
        self._thread.join()


def steps(service: Service, first: int) -> list[float]:
    """Return the latencies of one-row steps."""

    def one(number: int) -> None:
        row = pa.table({"id": [10**9 + first + number], "item": ["x"], "paid": [1]})
        service.wait_until_processed(service.push("orders", row), 300)

    return timed_ms(STEPS, one)


def beside_reads(service: Service) -> dict[str, object]:
    """Return the latencies of steps alone, beside reads, and beside another thread."""
    numbers = np.random.default_rng(7).random(500_000)
    steps(service, 0)
    alone = steps(service, 100)

    def read_all() -> None:
        """Read the whole view, also if the service keeps it."""
        with service.leases.taken(("sales",)) as leased:
            pa.concat_tables(leased.read("sales"))

    with Beside(read_all) as reads:
        read = steps(service, 200)
    with Beside(lambda: np.sort(numbers)):
        sort = steps(service, 300)
    median = statistics.median(alone)
    return {
        "step_alone_ms": median, "step_beside_reads_ms": statistics.median(read),
        "step_beside_a_sort_ms": statistics.median(sort), "worst_step_beside_reads_ms": max(read),
        "reads": reads.times, "ratio_beside_reads": max(0.0, statistics.median(read) - 5) / median,
    }  # fmt: skip


def look_ups(service: Service, rows: int) -> dict[str, object]:
    """Return the latencies of reading one row of the view by its key."""

    def name(number: int) -> str:
        return f"item number {number * 7919 % rows}"

    def look_up(number: int) -> None:
        if len(service.read_view("sales", key={"item": name(number)}).table) != 1:
            raise AssertionError(f"not one row: item={name(number)}")

    def query(number: int) -> None:
        service.query(f"select paid from sales where item = '{name(number)}'")

    query(0)
    found = timed_ms(LOOKUPS, look_up)
    return {
        "look_up_ms": statistics.median(found), "least_look_up_ms": min(found),
        "query_by_key_ms": statistics.median(timed_ms(QUERIES, query)),
    }  # fmt: skip


def measure(rows: int, lookup_rows: int, runtime: str) -> dict[str, object]:
    """Return all figures, of two services one after the other."""
    figures: dict[str, object] = {"rows": rows, "lookup_rows": lookup_rows}
    parts = ((rows, beside_reads), (lookup_rows, lambda service: look_ups(service, lookup_rows)))
    for count, part in parts:
        with tempfile.TemporaryDirectory(prefix="reads-") as folder:
            service = loaded(Path(folder), count, runtime)
            try:
                figures |= part(service)
            finally:
                service.stop(now=True)
    return figures


def main() -> None:
    """Measure, print, keep."""
    parser = report.parser(__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--lookup-rows", type=int, default=10_000_000)
    parser.add_argument("--spark", action="store_true")
    chosen = parser.parse_args()
    runtime = "spark" if chosen.spark else "local"
    sys.setswitchinterval(SWITCH_S)  # As the service's own process does.
    targets = {
        "ratio_beside_reads": Target(1.2, at_most=True),
        "look_up_ms": Target(50.0 if chosen.spark else 10.0, at_most=True),
    }
    name = "reads_spark" if chosen.spark else "reads"
    report.keep(name, measure(chosen.rows, chosen.lookup_rows, runtime), targets)


if __name__ == "__main__":
    main()

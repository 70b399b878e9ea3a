"""State larger than memory: what a pipeline holds in memory is what its steps touch, not what it keeps.

`python -m benchmarks.memory [--rows N] [--limit-mb M] [--workload count join]`. Each workload runs twice in a process of its own,
durable, one worker: without a limit, and in a memory cgroup of M MB (needs root; left out where no cgroup can be made). N rows
of state are built in steps of 100 k rows with a version committed after every ten; then come steps of 10 k rows all over the
keys, once with a quarter of the state and once with all of it. Anonymous memory (RssAnon) is what the process cannot give back;
file pages (RssFile) are the databases' maps, which the kernel drops when it needs the room. The cgroup counts both, so a
run that ends in it kept its state in less memory than the state takes. Both are sampled every 10 ms, also inside steps.

- count: `select k, count(*) group by k`, N distinct keys.
- join: N orders, each with its number, joined with N / 20 items by key; the steps on top change items, so each of their
  rows takes back and gives out about 20 rows.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa

import dbsp
from benchmarks import count_per_key, report
from benchmarks.durable import DurablePipeline
from dbsp.runtime.inprocess import InProcessRuntime

ROWS, LIMIT_MB = 40_000_000, 1_000
BUILD_ROWS, TOUCH_ROWS, TOUCH_STEPS, STEPS_PER_VERSION = 100_000, 10_000, 50, 10
ORDERS_PER_ITEM = 20
SAMPLE_S = 0.01
MEGABYTE = 1 << 20
CGROUPS = Path("/sys/fs/cgroup")
MIXED = np.uint64(0x9E3779B97F4A7C15)


class Sampler:
    """The highest RssAnon and RssFile since the last `take`."""

    def __init__(self) -> None:
        self._peaks = {"RssAnon": 0, "RssFile": 0}
        self._lock = threading.Lock()
        self._ended = threading.Event()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while not self._ended.wait(SAMPLE_S):
            self._look()

    def _look(self) -> None:
        for line in Path("/proc/self/status").read_text().splitlines():
            name, _, value = line.partition(":")
            if name in self._peaks:
                with self._lock:
                    self._peaks[name] = max(self._peaks[name], int(value.split()[0]) << 10)

    def take(self) -> dict[str, int]:
        """The peaks, in bytes; they begin anew."""
        self._look()
        with self._lock:
            found, self._peaks = self._peaks, dict.fromkeys(self._peaks, 0)
        return found

    def end(self) -> None:
        self._ended.set()


class Count:
    """N distinct keys; then rows of keys that are there."""

    def __init__(self) -> None:
        self.circuit = count_per_key.circuit()
        self._chance = np.random.default_rng(5)

    def build(self, pipeline: DurablePipeline, first: int, last: int) -> None:
        keys = np.arange(first, last, dtype=np.uint64) * MIXED
        pipeline.push(pa.table({"k": keys.view(np.int64)}))

    def touch(self, pipeline: DurablePipeline, rows: int) -> None:
        keys = self._chance.integers(0, rows, TOUCH_ROWS).astype(np.uint64) * MIXED
        pipeline.push(pa.table({"k": keys.view(np.int64)}))


class Join:
    """N orders joined with items; then items change."""

    def __init__(self) -> None:
        orders = dbsp.table("orders", {"number": dbsp.INT64, "item": dbsp.INT64, "quantity": dbsp.INT64})
        items = dbsp.table("items", {"item": dbsp.INT64, "price": dbsp.INT64}, primary_key="item")
        joined = orders.join(items, on="item").select("number", paid=dbsp.col("quantity") * dbsp.col("price"))
        self.circuit = dbsp.circuit("join", {"paid": joined})
        self._chance = np.random.default_rng(6)

    def build(self, pipeline: DurablePipeline, first: int, last: int) -> None:
        low, high = first // ORDERS_PER_ITEM, max(1, last // ORDERS_PER_ITEM)
        numbers = np.arange(low, high)
        pipeline.push(pa.table({"item": numbers, "price": numbers % 97 + 1}), "items")
        item = self._chance.integers(0, high, last - first)
        number = (np.arange(first, last, dtype=np.uint64) * MIXED).view(np.int64)
        pipeline.push(pa.table({"number": number, "item": item, "quantity": item % 9 + 1}), "orders")

    def touch(self, pipeline: DurablePipeline, rows: int) -> None:
        item = self._chance.choice(max(1, rows // ORDERS_PER_ITEM), TOUCH_ROWS // ORDERS_PER_ITEM)
        item = np.unique(item)
        pipeline.push(pa.table({"item": item, "price": self._chance.integers(1, 97, len(item))}), "items")


WORKLOADS: dict[str, Callable[[], Count | Join]] = {"count": Count, "join": Join}


def child(name: str, rows: int, box: Path) -> dict[str, object]:
    """One workload in this process; its figures."""
    workload, sampler = WORKLOADS[name](), Sampler()
    pipeline = DurablePipeline(box / "data", workload.circuit, 1, InProcessRuntime)
    figures: dict[str, object] = {f"started_{key}": value for key, value in sampler.take().items()}
    built = 0
    try:
        for share, until in (("quarter", rows // 4), ("whole", rows)):
            started = time.perf_counter()
            build(pipeline, workload, built, until)
            figures[f"built_{share}_rows_per_s"] = round((until - built) / (time.perf_counter() - started))
            figures |= {f"build_{share}_{key}": value for key, value in sampler.take().items()}
            built = until
            touch(pipeline, workload, built)  # reads what it needs for the first time
            sampler.take()
            seconds = touch(pipeline, workload, built)
            figures[f"steps_on_{share}_ms"] = round(1000 * seconds / TOUCH_STEPS, 2)
            figures |= {f"steps_on_{share}_{key}": value for key, value in sampler.take().items()}
            state = pipeline.step().workers[0].state_bytes
            figures[f"state_{share}_bytes"] = state
    finally:
        sampler.end()
        pipeline.close()
    return figures


def build(pipeline: DurablePipeline, workload: Count | Join, built: int, until: int) -> None:
    """Insert rows up to `until`."""
    for number, first in enumerate(range(built, until, BUILD_ROWS), 1):
        workload.build(pipeline, first, min(first + BUILD_ROWS, until))
        pipeline.step()
        if number % STEPS_PER_VERSION == 0:
            pipeline.commit()
    pipeline.commit()


def touch(pipeline: DurablePipeline, workload: Count | Join, rows: int) -> float:
    """Seconds that the steps on top of the state take."""
    started = time.perf_counter()
    for number in range(1, TOUCH_STEPS + 1):
        workload.touch(pipeline, rows)
        pipeline.step()
        if number % STEPS_PER_VERSION == 0:
            pipeline.commit()
    return time.perf_counter() - started


@contextmanager
def cgroup(limit_mb: int) -> Iterator[Path | None]:
    """A memory cgroup of this size, of either version; None where none can be made."""
    first = CGROUPS / "memory" if (CGROUPS / "memory").is_dir() else CGROUPS
    setting = "memory.limit_in_bytes" if first.name == "memory" else "memory.max"
    folder = first / f"dbsp-benchmark-{os.getpid()}"
    try:
        folder.mkdir()
        (folder / setting).write_text(str(limit_mb * MEGABYTE))
    except OSError as error:
        print(f"no memory cgroup can be made, the runs in one are left out: {error}", file=sys.stderr)
        if folder.is_dir():
            folder.rmdir()
        yield None
        return
    try:
        yield folder
    finally:
        folder.rmdir()


def highest(group: Path) -> int:
    """The most memory the group has used."""
    file = group / ("memory.max_usage_in_bytes" if group.parent.name == "memory" else "memory.peak")
    return int(file.read_text())


def run(name: str, rows: int, group: Path | None) -> dict[str, object]:
    """One workload in a process of its own, inside the group if there is one."""
    box = Path(tempfile.mkdtemp(prefix="memory-"))
    command = [sys.executable, "-m", "benchmarks.memory", "--child", str(box), "--workload", name, "--rows", str(rows)]
    enter = None if group is None else (lambda: (group / "cgroup.procs").write_text(str(os.getpid())))
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True, preexec_fn=enter)
        figures: dict[str, object] = json.loads(done.stdout)
        return figures if group is None else {**figures, "highest_bytes": highest(group)}
    finally:
        shutil.rmtree(box, ignore_errors=True)


def ratios(figures: dict[str, object], limit_mb: int) -> dict[str, object]:
    """What the figures say: how memory grew while the state grew four times, and how much more state than memory there was."""
    number = {key: float(str(value)) for key, value in figures.items()}
    found: dict[str, object] = {
        "ratio_of_state": number["state_whole_bytes"] / number["state_quarter_bytes"],
        "ratio_of_anonymous_memory": number["steps_on_whole_RssAnon"] / number["steps_on_quarter_RssAnon"],
        "ratio_of_state_to_anonymous_memory": number["state_whole_bytes"] / number["steps_on_whole_RssAnon"],
        "ratio_of_state_to_limit": number["state_whole_bytes"] / (limit_mb * MEGABYTE),
    }
    return found


def main() -> None:
    """Measure, print, keep."""
    parser = report.parser(__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--limit-mb", type=int, default=LIMIT_MB)
    parser.add_argument("--workload", nargs="+", choices=sorted(WORKLOADS), default=sorted(WORKLOADS))
    parser.add_argument("--child", type=Path, help="run one workload here, with its data in this folder")
    arguments = parser.parse_args()
    if arguments.child is not None:
        print(json.dumps(child(arguments.workload[0], arguments.rows, arguments.child)))
        return
    for name in arguments.workload:
        free = run(name, arguments.rows, None)
        report.keep("memory", {"workload": name, "rows": arguments.rows, **free, **ratios(free, arguments.limit_mb)})
        with cgroup(arguments.limit_mb) as group:
            if group is not None:
                limited = run(name, arguments.rows, group)
                shown = {"workload": name, "rows": arguments.rows, "limit_mb": arguments.limit_mb}
                report.keep("memory", {**shown, **limited, **ratios(limited, arguments.limit_mb)})


if __name__ == "__main__":
    main()

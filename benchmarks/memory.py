"""State larger than memory: what a pipeline holds in memory is what its steps touch, not what it keeps.

`python -m benchmarks.memory [--rows N] [--limit-mb M] [--workload count join]`. Durable, one worker, a process for each part:

1. N rows of state are built in steps of 100 k rows with a version committed after every ten; then come steps of 10 k rows all
   over the keys, once with a quarter of the state and once with all of it. Anonymous memory (RssAnon) is what the process
   cannot give back; file pages (RssFile) are the databases' maps, which the kernel drops when it needs the room. Both are
   sampled every 10 ms, also inside steps.
2. The state is opened by a new process, its files dropped from the page cache before, and stepped on: once without a limit,
   once in a memory cgroup of M MB (needs root; left out where none can be made), which counts both kinds of memory, page
   cache too. Each mix of keys has 50 steps of 10 k rows to begin with and 50 that are measured, a version after every
   ten. What the steps put out must be the same to the byte in both runs, else the run fails.

- count: `select k, count(*) group by k`, N distinct keys. `local`: 90 % of the rows have one of the 20 k newest keys, 9 % any,
  1 % a new one. `uniform`, the worst case: any key.
- join: N orders, each with its number, joined with N / 20 items by key; the steps on top change items, so each of their
  rows takes back and gives out about 20 rows.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
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
from dbsp.io.embedded_output import EmbeddedOutputLog
from dbsp.runtime.inprocess import InProcessRuntime

ROWS, LIMIT_MB = 40_000_000, 400
BUILD_ROWS, TOUCH_ROWS, TOUCH_STEPS, STEPS_PER_VERSION = 100_000, 10_000, 50, 10
ORDERS_PER_ITEM = 20
SAMPLE_S = 0.01
HOT_KEYS, HOT_SHARE, NEW_SHARE = 20_000, 0.9, 0.01
LEFT = "left.json"
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
        self.mixes = {"local": self._local, "uniform": self._uniform}
        self.draws = self._uniform
        self._chance = np.random.default_rng(5)
        self._new = 0

    def _uniform(self, rows: int) -> np.ndarray:
        """Any of the keys."""
        return self._chance.integers(0, rows, TOUCH_ROWS)

    def _local(self, rows: int) -> np.ndarray:
        """Mostly the newest keys, some that nobody has seen, and any of the others."""
        hot, new = int(TOUCH_ROWS * HOT_SHARE), int(TOUCH_ROWS * NEW_SHARE)
        self._new += new
        return np.concatenate(
            [
                self._chance.integers(max(0, rows - HOT_KEYS), rows, hot),
                np.arange(rows + self._new - new, rows + self._new),
                self._chance.integers(0, rows, TOUCH_ROWS - hot - new),
            ]
        )

    def build(self, pipeline: DurablePipeline, first: int, last: int) -> None:
        keys = np.arange(first, last, dtype=np.uint64) * MIXED
        pipeline.push(pa.table({"k": keys.view(np.int64)}))

    def touch(self, pipeline: DurablePipeline, rows: int) -> None:
        keys = self.draws(rows).astype(np.uint64) * MIXED
        pipeline.push(pa.table({"k": keys.view(np.int64)}))


class Join:
    """N orders joined with items; then items change."""

    def __init__(self) -> None:
        orders = dbsp.table("orders", {"number": dbsp.INT64, "item": dbsp.INT64, "quantity": dbsp.INT64})
        items = dbsp.table("items", {"item": dbsp.INT64, "price": dbsp.INT64}, primary_key="item")
        joined = orders.join(items, on="item").select("number", paid=dbsp.col("quantity") * dbsp.col("price"))
        self.circuit = dbsp.circuit("join", {"paid": joined})
        self.mixes = {"uniform": self._uniform}
        self.draws = self._uniform
        self._chance = np.random.default_rng(6)

    def _uniform(self, rows: int) -> np.ndarray:
        """Any of the items."""
        return self._chance.choice(max(1, rows // ORDERS_PER_ITEM), TOUCH_ROWS // ORDERS_PER_ITEM)

    def build(self, pipeline: DurablePipeline, first: int, last: int) -> None:
        low, high = first // ORDERS_PER_ITEM, max(1, last // ORDERS_PER_ITEM)
        numbers = np.arange(low, high)
        pipeline.push(pa.table({"item": numbers, "price": numbers % 97 + 1}), "items")
        item = self._chance.integers(0, high, last - first)
        number = (np.arange(first, last, dtype=np.uint64) * MIXED).view(np.int64)
        pipeline.push(pa.table({"number": number, "item": item, "quantity": item % 9 + 1}), "orders")

    def touch(self, pipeline: DurablePipeline, rows: int) -> None:
        item = np.unique(self.draws(rows))
        pipeline.push(pa.table({"item": item, "price": self._chance.integers(1, 97, len(item))}), "items")


WORKLOADS: dict[str, Callable[[], Count | Join]] = {"count": Count, "join": Join}


def child(name: str, rows: int, box: Path) -> dict[str, object]:
    """Build one workload's state in this process, and step on it; its figures."""
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
        pipeline.commit()
        (box / LEFT).write_text(json.dumps(pipeline.left()))
    finally:
        sampler.end()
        pipeline.close()
    return figures


def resumed_child(name: str, rows: int, box: Path) -> dict[str, object]:
    """Open the state that another process built, and step on it; figures, and digests of what the steps put out."""
    workload, sampler = WORKLOADS[name](), Sampler()
    left = json.loads((box / LEFT).read_text())
    started = time.perf_counter()
    pipeline = DurablePipeline(box / "data", workload.circuit, 1, InProcessRuntime, resumed=left)
    figures: dict[str, object] = {"opened_ms": round(1000 * (time.perf_counter() - started), 2)}
    try:
        for kind, keys in workload.mixes.items():
            begun = pipeline.left()["step"]
            workload.draws = keys
            touch(pipeline, workload, rows)  # reads what it needs for the first time, and checks the checksums
            sampler.take()
            faults, used = resource.getrusage(resource.RUSAGE_SELF).ru_majflt, time.process_time()
            seconds = touch(pipeline, workload, rows)
            figures[f"{kind}_steps_ms"] = round(1000 * seconds / TOUCH_STEPS, 2)
            figures[f"{kind}_steps_processor_ms"] = round(1000 * (time.process_time() - used) / TOUCH_STEPS, 2)
            figures[f"{kind}_pages_waited_for"] = resource.getrusage(resource.RUSAGE_SELF).ru_majflt - faults
            figures |= {f"{kind}_{key}": value for key, value in sampler.take().items()}
            figures[f"{kind}_digest"] = digest(pipeline, begun)
        figures["state_bytes"] = pipeline.step().workers[0].state_bytes
    finally:
        sampler.end()
        pipeline.close()
    return figures


def digest(pipeline: DurablePipeline, first: int) -> str:
    """A number for all that the steps from `first` on put out."""
    found, log = hashlib.blake2b(digest_size=8), pipeline.resources.output_log(0)
    if not isinstance(log, EmbeddedOutputLog):
        raise TypeError(f"the outputs are read back from the embedded log: kind={type(log).__name__}")
    for view in pipeline.plan.views:
        for step, rows in log.read(view.name, first):
            found.update(step.to_bytes(8, "big"))
            for column in rows.columns:
                found.update(column.to_numpy().tobytes())
    return found.hexdigest()


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


def run(name: str, rows: int, box: Path, group: Path | None = None, resumed: bool = False) -> dict[str, object]:
    """One workload in a process of its own, inside the group if there is one."""
    command = [sys.executable, "-m", "benchmarks.memory", "--child", str(box), "--workload", name, "--rows", str(rows)]
    command += ["--resumed"] if resumed else []
    enter = None if group is None else (lambda: (group / "cgroup.procs").write_text(str(os.getpid())))
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, preexec_fn=enter)
    figures: dict[str, object] = json.loads(done.stdout)
    return figures if group is None else {**figures, "highest_bytes": highest(group)}


def forgotten(box: Path) -> None:
    """Write the files of a folder out and drop them from the page cache: pages count for the group that read them first."""
    for file in box.rglob("*"):
        if file.is_file():
            handle = os.open(file, os.O_RDONLY)
            os.fsync(handle)
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(handle)


def larger_than_memory(name: str, rows: int, limit_mb: int, box: Path) -> dict[str, object] | None:
    """The state in `box` stepped on by a process without a limit, and by one in a group smaller than the state."""
    other = box.with_name(box.name + "-limited")
    shutil.copytree(box, other)
    try:
        forgotten(box)
        free = run(name, rows, box, resumed=True)
        with cgroup(limit_mb) as group:
            if group is None:
                return None
            forgotten(other)
            limited = run(name, rows, other, group, resumed=True)
    finally:
        shutil.rmtree(other, ignore_errors=True)
    found: dict[str, object] = {"workload": name, "rows": rows, "limit_mb": limit_mb}
    found |= {f"free_{key}": value for key, value in free.items()}
    found |= {f"limited_{key}": value for key, value in limited.items()}
    for kind in WORKLOADS[name]().mixes:
        found[f"ratio_{kind}_rate"] = float(str(free[f"{kind}_steps_ms"])) / float(str(limited[f"{kind}_steps_ms"]))
        found[f"same_{kind}_outputs"] = free[f"{kind}_digest"] == limited[f"{kind}_digest"]
    found["ratio_of_state_to_limit"] = float(str(free["state_bytes"])) / (limit_mb * MEGABYTE)
    return found


def ratios(figures: dict[str, object]) -> dict[str, object]:
    """What the figures say: how memory grew while the state grew four times, and how much more state than memory there was."""
    number = {key: float(str(value)) for key, value in figures.items()}
    found: dict[str, object] = {
        "ratio_of_state": number["state_whole_bytes"] / number["state_quarter_bytes"],
        "ratio_of_anonymous_memory": number["steps_on_whole_RssAnon"] / number["steps_on_quarter_RssAnon"],
        "ratio_of_state_to_anonymous_memory": number["state_whole_bytes"] / number["steps_on_whole_RssAnon"],
    }
    return found


def main() -> None:
    """Measure, print, keep."""
    parser = report.parser(__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--limit-mb", type=int, default=LIMIT_MB)
    parser.add_argument("--workload", nargs="+", choices=sorted(WORKLOADS), default=sorted(WORKLOADS))
    parser.add_argument("--resumed", action="store_true", help="the folder of --child holds a state already")
    parser.add_argument("--child", type=Path, help="run one workload here, with its data in this folder")
    arguments = parser.parse_args()
    if arguments.child is not None:
        work = resumed_child if arguments.resumed else child
        print(json.dumps(work(arguments.workload[0], arguments.rows, arguments.child)))
        return
    for name in arguments.workload:
        box = Path(tempfile.mkdtemp(prefix="memory-"))
        try:
            built = run(name, arguments.rows, box)
            report.keep("memory", {"workload": name, "rows": arguments.rows, **built, **ratios(built)})
            larger = larger_than_memory(name, arguments.rows, arguments.limit_mb, box)
            if larger is not None:
                report.keep("memory", larger)
                if not all(value for key, value in larger.items() if key.startswith("same_")):
                    raise SystemExit("the run in little memory has put out something else")
        finally:
            shutil.rmtree(box, ignore_errors=True)


if __name__ == "__main__":
    main()

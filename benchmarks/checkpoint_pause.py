"""For how long a checkpoint of about 500 MB of state keeps steps from running: copied between two steps, and beside them.

`python -m benchmarks.checkpoint_pause [--spark]`. Count per key over distinct keys, all of it new to the checkpoint, real
databases. Steps of 10 k rows follow each other; the pause is the longest time between the ends of two of them while the
checkpoint is taken. *Between*: `commit`, as stop and rescale wait for it. *Beside*: `pin`, then `copy` while steps go on. In
process one worker; with `--spark` two workers, where the copy is a chain of small jobs in a pool of their own.
"""

from __future__ import annotations

import itertools
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks import report
from benchmarks.count_per_key import circuit
from benchmarks.durable import DurablePipeline
from dbsp.runtime.inprocess import InProcessRuntime
from dbsp.runtime.runtime import Runtime
from dbsp.runtime.work import Work
from dbsp.store import CheckpointId

KEYS, LOAD_ROWS, STEP_ROWS, CALM_STEPS = 20_000_000, 1_000_000, 10_000, 20


def spark_runtime(work: Work) -> Runtime:
    """Spark on this machine."""
    from dbsp.runtime.spark.runtime import SparkRuntime  # noqa: PLC0415 - only when asked for
    from dbsp.runtime.spark.session import SparkSettings  # noqa: PLC0415 - as above

    return SparkRuntime(work, SparkSettings(master="local[2]"))


class Load:
    """Steps of one kind after each other, and when each ended."""

    def __init__(self, folder: Path, workers: int, make_runtime: Callable[[Work], Runtime]) -> None:
        """Build the state."""
        self.random = np.random.default_rng(7)
        self.pipeline = DurablePipeline(folder, circuit(), workers, make_runtime)
        self.ends: list[float] = []
        self.steps, self.state_bytes = 0, 0
        keys = self.random.permutation(KEYS)
        for first in range(0, KEYS, LOAD_ROWS):
            self._step(keys[first : first + LOAD_ROWS])
        for _ in range(CALM_STEPS):
            self.step()
        self.calm_s = statistics.median(self.gaps(CALM_STEPS))

    def _step(self, keys: Any) -> None:
        self.pipeline.push(pa.table({"k": keys}))
        found = self.pipeline.step()
        self.state_bytes = sum(worker.state_bytes for worker in found.workers)
        self.steps += 1
        self.ends.append(time.perf_counter())

    def step(self) -> None:
        """A step of rows of keys that are there."""
        self._step(self.random.integers(0, KEYS, STEP_ROWS))

    def gaps(self, last: int) -> list[float]:
        """Seconds between the ends of the last steps."""
        ends = self.ends[-last - 1 :]
        return [after - before for before, after in itertools.pairwise(ends)]

    def checkpoint(self) -> CheckpointId:
        """The id of what the next step starts from."""
        plan = self.pipeline.plan
        return CheckpointId(
            run="benchmark", epoch=1, step=self.steps, layout_version=self.pipeline.layout.version,
            fingerprint=plan.fingerprint,
        )  # fmt: skip


def between(load: Load) -> tuple[float, float, float]:
    """(longest pause, median step, seconds of the checkpoint)."""
    before = load.steps
    started = time.perf_counter()
    load.pipeline.runtime.commit(1, load.checkpoint(), load.pipeline.layout)
    seconds = time.perf_counter() - started
    load.step()
    gaps = load.gaps(load.steps - before)
    return max(gaps), statistics.median(gaps), seconds


def beside(load: Load) -> tuple[float, float, float]:
    """The same with the copy beside the steps."""
    before = load.steps
    started = time.perf_counter()
    checkpoint, runtime, layout = load.checkpoint(), load.pipeline.runtime, load.pipeline.layout
    runtime.pin(1, checkpoint, layout)
    copy: Future[Any] = runtime.copy(1, checkpoint, layout)
    while not copy.done():
        load.step()
    seconds = time.perf_counter() - started
    copy.result()
    load.step()
    gaps = load.gaps(load.steps - before)
    return max(gaps), statistics.median(gaps), seconds


def measure(workers: int, make_runtime: Callable[[Work], Runtime]) -> dict[str, object]:
    """Both ways, each on a state of its own."""
    figures: dict[str, object] = {}
    for name, way in (("between", between), ("beside", beside)):
        with tempfile.TemporaryDirectory(prefix="pause-") as folder:
            load = Load(Path(folder), workers, make_runtime)
            try:
                pause, step, seconds = way(load)
            finally:
                load.pipeline.close()
        figures |= {
            f"{name}_longest_pause_seconds": pause, f"{name}_checkpoint_seconds": seconds,
            f"{name}_median_step_seconds": step, f"{name}_calm_step_seconds": load.calm_s,
            "state_bytes": load.state_bytes,
        }  # fmt: skip
    figures["ratio_of_pauses"] = float(str(figures["between_longest_pause_seconds"])) / float(
        str(figures["beside_longest_pause_seconds"])
    )
    return figures


def main() -> None:
    """Measure, print, keep."""
    parser = report.parser(__doc__)
    parser.add_argument("--spark", action="store_true")
    if parser.parse_args().spark:
        report.keep("checkpoint_pause_spark", measure(2, spark_runtime))
    else:
        report.keep("checkpoint_pause", measure(1, InProcessRuntime))


if __name__ == "__main__":
    main()

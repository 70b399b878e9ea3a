"""What it gives to read the next step's input while a step runs: two durable pipelines with embedded logs, in turn.

`python -m benchmarks.read_ahead [--runtime local spark] [--rows 100000 1000000] [--pairs 40]`. One pipeline reads ahead, the
other does not; both take the same rows. A pair is a step of each, one after the other, the first one changing from pair to
pair, so that what slows the machine slows both. The ratios are of the step without to the step with, so that above 1 reading
ahead wins: medians over the pairs, with the quartiles, of the clock, and of the clock less what this thread was kept waiting
for a processor by others (in process that is what a quiet machine would show); and of the sums of the processor seconds of
all processes (this one, the JVM, its tasks, the background workers). On Spark, `--background` reads in background
worker processes instead of touching
the pages only.
"""

from __future__ import annotations

import gc
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks import count_per_key, report
from benchmarks.durable import DurablePipeline
from dbsp.io.pushed import Push
from dbsp.logs import DELETE, INSERT, StepRecord
from dbsp.runtime.background import BackgroundThreads
from dbsp.runtime.inprocess import InProcessRuntime
from dbsp.runtime.runtime import Runtime
from dbsp.runtime.work import Work
from dbsp.zset.batch import Batch
from examples.flights import changes, data
from examples.flights.circuit import circuit as flights_circuit

WORKERS = {"local": 1, "spark": 2}
PAIRS, WARM, KEYS = 40, 4, 1_000_000
Feed = Callable[[DurablePipeline], None]


@dataclass(slots=True)
class Spent:
    """Of one step: seconds, the same less waiting for a processor, processor seconds."""

    clock: float
    less_waiting: float
    processor: float


@dataclass(slots=True)
class Side:
    """A pipeline, and its next step, which is cut and, if the runtime reads ahead, read."""

    pipeline: DurablePipeline
    feed: Feed
    ahead: bool
    coming: StepRecord

    @classmethod
    def of(cls, pipeline: DurablePipeline, feed: Feed, ahead: bool) -> Side:
        """With the first step cut."""
        feed(pipeline)
        return cls(pipeline, feed, ahead, pipeline.cut())

    def step(self) -> Spent:
        """Run the step that was cut before, while the one that is cut now is read."""
        self.feed(self.pipeline)
        record, self.coming = self.coming, self.pipeline.cut()
        runtime, layout = self.pipeline.runtime, self.pipeline.layout
        gc.collect()
        used, kept, started = report.Moment.now().own_s, kept_waiting_s(), time.perf_counter()
        if self.ahead:
            runtime.read_ahead(self.coming, layout)
        runtime.run_step(record, layout)
        clock = time.perf_counter() - started
        return Spent(clock, clock - (kept_waiting_s() - kept), report.Moment.now().own_s - used)


def kept_waiting_s() -> float:
    """For how long this thread was ready to run and others had the processors."""
    return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9


def counting(rows: int) -> tuple[Any, Callable[[], Feed]]:
    """Count per key."""

    def feeding() -> Feed:
        generator = np.random.default_rng(1)
        return lambda pipeline: pipeline.push(pa.table({"k": generator.integers(0, KEYS, rows)}))

    return count_per_key.circuit(), feeding


def flying(rows: int) -> tuple[Any, Callable[[], Feed]]:
    """The flights of `make run`: wide rows with strings, replaced by their keys; over and over."""
    tables = data.read()

    def forever() -> Iterator[list[changes.Push]]:
        while True:
            yield from changes.pushes(tables, rows)

    def feeding() -> Feed:
        pushes = forever()
        return lambda pipeline: append(pipeline, next(pushes))

    return flights_circuit, feeding


def append(pipeline: DurablePipeline, pushes: list[changes.Push]) -> None:
    """As the player of the flights does, shared evenly among the partitions."""
    schemas = {table.name: table.schema for table in pipeline.plan.tables}
    count = len(pipeline.layout.workers)
    for push in pushes:
        schema, rows = schemas[push.table], push.rows.num_rows
        columns = [push.rows[c.name] if c.name in push.rows.column_names else pa.nulls(rows, c.type) for c in schema]
        batch = Batch.of(schema, columns)
        for slot in range(count):
            part = batch.slice(rows * slot // count, rows * (slot + 1) // count)
            operations = np.full(len(part), DELETE if push.delete else INSERT, dtype=np.int8)
            pipeline.inputs.append(push.table, Push(batch=part, operations=operations), partition=slot)


CASES = {"count": counting, "flights": flying}
Make = Callable[[bool], Callable[[Work], Runtime]]


@contextmanager
def runtimes(kind: str, background: bool) -> Iterator[Make]:
    """How to make a runtime of a kind, with reading ahead or without."""
    if kind == "local":
        yield (
            lambda ahead: (
                lambda work: InProcessRuntime(replace(work, background=BackgroundThreads() if ahead else None))
            )
        )
        return
    from benchmarks.read_ahead_spark import making  # noqa: PLC0415 - Spark only where it is asked for

    with making(WORKERS["spark"], background) as make:
        yield make


def compare(name: str, case: tuple[Any, Callable[[], Feed]], workers: int, make: Make, pairs: int) -> dict[str, object]:
    """Ratios over the pairs."""
    circuit, feeding = case
    found: dict[bool, list[Spent]] = {True: [], False: []}
    with tempfile.TemporaryDirectory(prefix="dbsp-bench-") as folder:
        sides = [
            Side.of(DurablePipeline(Path(folder) / str(ahead), circuit, workers, make(ahead)), feeding(), ahead)
            for ahead in (True, False)
        ]
        for pair in range(WARM + pairs):
            for side in sides if pair % 2 else sides[::-1]:
                spent = side.step()
                if pair >= WARM:
                    found[side.ahead].append(spent)
        for side in sides:
            side.pipeline.close()
    pairs_found = list(zip(found[False], found[True], strict=True))
    clock = [without.clock / with_.clock for without, with_ in pairs_found]
    less = [without.less_waiting / with_.less_waiting for without, with_ in pairs_found]
    used = {ahead: sum(spent.processor for spent in found[ahead]) for ahead in found}
    return {
        f"{name}_step_ms": statistics.median(spent.clock for spent in found[False]) * 1e3,
        f"{name}_ratio_of_clock": statistics.median(clock),
        f"{name}_ratio_of_clock_quartiles": quartiles(clock),
        f"{name}_ratio_of_clock_less_waiting": statistics.median(less),
        f"{name}_ratio_of_clock_less_waiting_quartiles": quartiles(less),
        f"{name}_ratio_of_processor_s": used[False] / used[True],
    }


def quartiles(values: list[float]) -> str:
    """As text."""
    return " ".join(f"{value:.3f}" for value in np.quantile(values, (0.25, 0.75)))


def main() -> None:
    """Measure, print, keep."""
    parser = report.parser(__doc__)
    parser.add_argument("--runtime", nargs="+", choices=list(WORKERS), default=list(WORKERS))
    parser.add_argument("--case", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--rows", nargs="+", type=int, default=[100_000])
    parser.add_argument("--pairs", type=int, default=PAIRS)
    parser.add_argument("--background", action="store_true", help="on Spark: read in background worker processes")
    arguments = parser.parse_args()
    figures: dict[str, object] = {}
    for kind in arguments.runtime:
        with runtimes(kind, arguments.background) as make:
            for case in arguments.case:
                for rows in arguments.rows:
                    name = f"{kind}_{case}_{rows}"
                    figures |= compare(name, CASES[case](rows), WORKERS[kind], make, arguments.pairs)
    report.keep("read_ahead", figures)


if __name__ == "__main__":
    main()

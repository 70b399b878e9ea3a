"""What a step costs on Spark beside a bare job: count per key, one exchange, two workers on `local[2]`.

`python -m benchmarks.spark_step [--rows 1000] [--large]`. Both run in one process, a block of each in turn: the bare job has the
same stages and moves blocks of the same size, and does nothing else. The ratio is that of the medians of the warm half.
The first step of a block begins the job whose tasks then stay, as the bare jobs had the cores: it stands beside the others, as
a step after five idle seconds would in a service.
`--large` measures rows a second in steps of 1 M rows.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import cast

import numpy as np
import pyarrow as pa
from pyspark import SparkContext
from pyspark.core.rdd import RDD

from benchmarks import report
from benchmarks.count_per_key import circuit
from benchmarks.durable import DurablePipeline
from dbsp.runtime.spark.runtime import SparkRuntime
from dbsp.runtime.spark.session import SparkSettings
from dbsp.runtime.spark.step_job import slot
from dbsp.runtime.work import Work

WORKERS, ROWS, KEYS = 2, 1_000, 100_000
BLOCK_BYTES = 8_000
BLOCKS, ROUNDS = 10, 40
RATIO_MAX, ABOVE_MS_MAX, P99_BY_MEDIAN_MAX = 1.3, 30.0, 3.0
LARGE_ROWS, LARGE_STEPS, LARGE_KEYS = 1_000_000, 8, 1_000_000
LARGE_WANTED = 3.0e6


def send(count: int, _: int, nothing: Iterable[int]) -> Iterator[tuple[int, bytes]]:
    """The first stage of the bare job: one block for each worker."""
    list(nothing)
    return iter([(place, bytes(BLOCK_BYTES)) for place in range(count)])


def receive(index: int, records: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, int]]:
    """Its last stage: how much arrived."""
    return iter([(index, sum(len(block) for _, block in records))])


def own(work: Work) -> SparkRuntime:
    """A runtime with a Spark of its own, as a service has it."""
    return SparkRuntime(work, SparkSettings(master=f"local[{WORKERS}]", app_name="benchmark"))


def small(folder: Path, rows: int = ROWS) -> dict[str, object]:
    """Medians of bare jobs and steps, a block of each in turn."""
    pipeline = DurablePipeline(folder, circuit(), WORKERS, own)
    context = cast(SparkRuntime, pipeline.runtime)._context
    generator = np.random.default_rng(1)
    bare, first, steps, work = [], [], [], []
    for block in range(BLOCKS):
        pipeline.runtime.versions(pipeline.layout.workers)  # a job, before which the tasks of the steps leave the cores
        took = [bare_job(context) for _ in range(ROUNDS)]
        done = []
        for _ in range(1 + ROUNDS):
            pipeline.push(pa.table({"k": generator.integers(0, KEYS, rows)}))
            done.append(pipeline.step())
        if block >= BLOCKS // 2:  # warm
            bare += took
            first.append(done[0].seconds)
            steps += [step.seconds for step in done[1:]]
            work += [max(worker.seconds for worker in step.workers) for step in done[1:]]
    pipeline.close()
    measured = {"bare": bare, "first": first, "step": steps, "work": work}
    middle = {name: statistics.median(times) for name, times in measured.items()}
    return {
        "rows_per_step": rows,
        "warm_rounds": len(bare),
        "bare_job_ms": middle["bare"] * 1e3,
        "step_ms": middle["step"] * 1e3,
        "step_that_begins_a_job_ms": middle["first"] * 1e3,
        "of_it_operators_of_the_slower_worker_ms": middle["work"] * 1e3,
        "ratio_step_to_bare_job": middle["step"] / middle["bare"],
        "step_above_bare_job_ms": (middle["step"] - middle["bare"]) * 1e3,
        "p99_by_median_of_steps": float(np.quantile(steps, 0.99)) / middle["step"],
    }


def bare_job(context: SparkContext) -> float:
    """Seconds of a job of the same stages."""
    started = time.perf_counter()
    ground: RDD[int] = context.parallelize([], WORKERS)
    sent = ground.mapPartitionsWithIndex(partial(send, WORKERS)).partitionBy(WORKERS, slot)
    sent.mapPartitionsWithIndex(receive).collect()
    return time.perf_counter() - started


def large(folder: Path) -> dict[str, object]:
    """Rows a second of both workers together in large steps, after one warm step."""
    pipeline = DurablePipeline(folder, circuit(), WORKERS, own)
    generator = np.random.default_rng(2)
    seconds = []
    for _ in range(LARGE_STEPS + 1):
        pipeline.push(pa.table({"k": generator.integers(0, LARGE_KEYS, LARGE_ROWS)}))
        seconds.append(pipeline.step().seconds)
    pipeline.close()
    speed = LARGE_ROWS * LARGE_STEPS / sum(seconds[1:])
    return {"rows_per_s_in_steps_of_1m": round(speed)}


def main() -> None:
    """Measure, print, keep."""
    parser = report.parser(__doc__)
    parser.add_argument("--rows", type=int, default=ROWS, help="rows of a step; 1 for the latency of a change")
    parser.add_argument("--large", action="store_true", help="also rows a second in steps of 1 M rows")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="dbsp-bench-") as name:
        figures = small(Path(name) / "small", arguments.rows)
        if arguments.large:
            figures |= large(Path(name) / "large")
    targets = {
        "ratio_step_to_bare_job": report.at_most(RATIO_MAX),
        "step_above_bare_job_ms": report.at_most(ABOVE_MS_MAX),
        "p99_by_median_of_steps": report.at_most(P99_BY_MEDIAN_MAX),
    }
    if arguments.large:
        targets["rows_per_s_in_steps_of_1m"] = report.at_least(LARGE_WANTED)
    report.keep("spark_step", figures, targets)


if __name__ == "__main__":
    main()

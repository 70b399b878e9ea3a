"""What a checkpoint costs when 1 % of the state has changed, beside the first one: real databases, one worker.

`python -m benchmarks.checkpoint`. The state is count per key over 5 M distinct keys; then 50 k keys in no order change in each
of ten rounds, a step and a checkpoint every round. The target is that such a checkpoint costs at most 5 % of the first, in
bytes as in seconds; a round in which a merge of large batches falls due costs more, so mean and worst are both shown.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks import report
from benchmarks.count_per_key import circuit
from benchmarks.durable import DurablePipeline
from dbsp.runtime.inprocess import InProcessRuntime
from dbsp.store import CheckpointId

KEYS, STEP_ROWS, ROUNDS, CHANGED = 5_000_000, 500_000, 10, 0.01
WANTED = 0.05


def commit(pipeline: DurablePipeline, version: int, step: int) -> tuple[float, int]:
    """Seconds and bytes of one checkpoint."""
    checkpoint = CheckpointId(
        run="benchmark",
        epoch=1,
        step=step,
        layout_version=pipeline.layout.version,
        fingerprint=pipeline.plan.fingerprint,
    )
    started = time.perf_counter()
    reports = pipeline.runtime.commit(version, checkpoint, pipeline.layout)
    return time.perf_counter() - started, sum(found.bytes_written for found in reports.values())


def measure(folder: Path) -> list[tuple[float, int]]:
    """(seconds, bytes) of the first checkpoint and of those after each round."""
    generator = np.random.default_rng(4)
    pipeline = DurablePipeline(folder, circuit(), 1, InProcessRuntime)
    try:
        steps = 0
        keys = generator.permutation(KEYS)
        for first in range(0, KEYS, STEP_ROWS):
            pipeline.push(pa.table({"k": keys[first : first + STEP_ROWS]}))
            pipeline.step()
            steps += 1
        found = [commit(pipeline, 1, steps)]
        for round_ in range(ROUNDS):
            pipeline.push(pa.table({"k": generator.choice(KEYS, int(KEYS * CHANGED), replace=False)}))
            pipeline.step()
            steps += 1
            found.append(commit(pipeline, round_ + 2, steps))
        return found
    finally:
        pipeline.close()


def main() -> None:
    """Measure, print, keep."""
    report.parser(__doc__).parse_args()
    with tempfile.TemporaryDirectory(prefix="checkpoint-") as folder:
        (first_s, first_bytes), *later = measure(Path(folder))
    figures: dict[str, object] = {"first_seconds": first_s, "first_bytes": first_bytes}
    for name, values, first in (
        ("seconds", [seconds for seconds, _ in later], first_s),
        ("bytes", [size for _, size in later], first_bytes),
    ):
        figures[f"ratio_of_{name}_mean"] = statistics.mean(values) / first
        figures[f"ratio_of_{name}_median"] = statistics.median(values) / first
        figures[f"ratio_of_{name}_worst"] = max(values) / first
    wanted = {f"ratio_of_{name}_mean": report.at_most(WANTED) for name in ("seconds", "bytes")}
    report.keep("checkpoint", figures, wanted)


if __name__ == "__main__":
    main()

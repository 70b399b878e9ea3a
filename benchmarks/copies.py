"""What copies of checkpoints cost: bytes for what changed, the rate of steps, upload, and restore: real databases, one worker.

`python -m benchmarks.copies`. The state is count per key over distinct keys, all of it copied to a folder on the same disk. In
each round a checkpoint of 1 % changed keys is taken, while steps change the next 1 %. The same rounds without copies are taken in
turn. *Changed* are the bytes of the chunks that the checkpoint committed. With `--lagging` the copies lag behind
(`copies_required = 0`): each begins when its checkpoint is there, while steps go on.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks import report
from benchmarks.count_per_key import circuit
from benchmarks.durable import DurablePipeline
from dbsp.coordinator.worker_resources import worker_copies
from dbsp.object_places import FolderPlace
from dbsp.runtime.inprocess import InProcessRuntime
from dbsp.runtime.runtime import BehindOrder, CopiesBehind
from dbsp.runtime.work import Work
from dbsp.storage.copied_checkpoints import CheckpointName, CopiedCheckpoints
from dbsp.storage.environment import MAP_SIZE_BYTES
from dbsp.store import CheckpointId

LOAD_ROWS, STEP_ROWS, ROUNDS, STEPS_MIN = 500_000, 10_000, 8, 40


@dataclass(frozen=True)
class CountingPlace(FolderPlace):
    """A folder that counts the bytes put, and the listings."""

    put_bytes: list[int] = field(default_factory=lambda: [0])
    lists: list[int] = field(default_factory=lambda: [0])

    def put(self, name: str, data: bytes | memoryview) -> None:
        """Count the bytes, and put the object."""
        self.put_bytes[0] += len(data)
        super().put(name, data)

    def names(self, prefix: str) -> list[str]:
        """Count the listing."""
        self.lists[0] += 1
        return super().names(prefix)


class Load:
    """A pipeline with all its state, and rounds of changes."""

    def __init__(self, folder: Path, keys: int, place: CountingPlace | None, *, lagging: bool = False) -> None:
        """Build the state, and take the first checkpoint."""
        self.keys, self.random, self.version, self.lagging = keys, np.random.default_rng(7), 0, lagging
        self.place, self.whole_s, self.whole_step = place, list[float](), 0

        def make(work: Work) -> InProcessRuntime:
            resources = replace(work.resources, copies=place, copies_lag=lagging)  # type: ignore[type-var]
            return InProcessRuntime(replace(work, resources=resources))

        self.pipeline = DurablePipeline(folder, circuit(), 1, make)
        self.steps = 0
        order = self.random.permutation(keys)
        for first in range(0, keys, LOAD_ROWS):
            self._step(order[first : first + LOAD_ROWS])
        started = time.perf_counter()
        self.first_bytes = self.checkpoint(0)[0]
        self.first_s = time.perf_counter() - started

    def _step(self, keys: np.ndarray) -> None:
        self.pipeline.push(pa.table({"k": keys}))
        self.pipeline.step()
        self.steps += 1

    def step(self) -> None:
        """Change some keys."""
        self._step(self.random.integers(0, self.keys, STEP_ROWS))

    def checkpoint(self, steps_min: int) -> tuple[int, float]:
        """Take a checkpoint while steps go on; return the bytes that it committed, and the steps per second meanwhile.

        Steps go on until the copies are whole, and for `steps_min` steps at least.
        """
        pipeline = self.pipeline
        checkpoint = CheckpointId(
            run="benchmark", epoch=1, step=self.steps, layout_version=pipeline.layout.version,
            fingerprint=pipeline.plan.fingerprint,
        )  # fmt: skip
        self.version += 1
        started, taken = time.perf_counter(), 0
        pipeline.runtime.pin(self.version, checkpoint, pipeline.layout)
        future = pipeline.runtime.copy(self.version, checkpoint, pipeline.layout)
        behind: Future[Mapping[int, int]] | None = None
        whole_s: float | None = None
        while taken < steps_min or whole_s is None:
            if future.done() and behind is None and self.lagging:
                order = BehindOrder(epoch=1, version=self.version, checkpoint=checkpoint, needed_from=self.whole_step)
                assert isinstance(pipeline.runtime, CopiesBehind)
                behind = pipeline.runtime.copy_behind(order, pipeline.layout, lambda _missing: None)
            if whole_s is None and future.done() and (not self.lagging or (behind is not None and behind.done())):
                whole_s = time.perf_counter() - started
            self.step()
            taken += 1
        self.whole_s.append(whole_s)
        rate = taken / (time.perf_counter() - started)
        if behind is not None:
            behind.result()
            self.whole_step = checkpoint.step
            self._name()
        written = sum(found.bytes_written for found in future.result().values())
        return written, rate

    def _name(self) -> None:
        """Put the object of the newest checkpoint, whose copy is whole, as the service does; the older one goes."""
        assert self.place is not None
        checkpoints = CopiedCheckpoints(self.place, "benchmark")
        before = checkpoints.names()
        checkpoints.put(CheckpointName(made=1, version=self.version, epoch=1, second=0), {"step": self.steps})
        checkpoints.delete(before)


def main() -> None:
    """Measure, print, keep."""
    parser = report.parser(__doc__)
    parser.add_argument("--keys", type=int, default=20_000_000)
    parser.add_argument("--lagging", action="store_true")
    options = parser.parse_args()
    keys = options.keys
    with tempfile.TemporaryDirectory(prefix="copies-") as name:
        folder = Path(name)
        place = CountingPlace(folder / "place")
        with_copies = Load(folder / "with", keys, place, lagging=options.lagging)
        without = Load(folder / "without", keys, None)
        steps = max(STEPS_MIN, keys // 100 // STEP_ROWS)
        shares, rates, lists = list[float](), list[float](), list[int]()
        for _ in range(steps):
            with_copies.step()
            without.step()
        for _ in range(ROUNDS):
            place.put_bytes[0] = place.lists[0] = 0
            written, rate = with_copies.checkpoint(steps)
            shares.append(place.put_bytes[0] / written)
            lists.append(place.lists[0])
            rates.append(rate / without.checkpoint(steps)[1])
        for load in (with_copies, without):
            load.pipeline.close()
        started = time.perf_counter()
        worker_copies(place, "benchmark", 0).restore(folder / "again", 2, MAP_SIZE_BYTES)
        restore_s = time.perf_counter() - started
    figures = {
        "state_mb": with_copies.first_bytes / 1e6, "first_checkpoint_s": with_copies.first_s,
        "first_checkpoint_without_s": without.first_s, "put_by_changed_median": statistics.median(shares),
        "put_by_changed_worst": max(shares), "steps_rate_median": statistics.median(rates),
        "steps_rate_worst": min(rates), "listings_a_checkpoint": statistics.median(lists), "restore_s": restore_s,
        "whole_after_s_median": statistics.median(with_copies.whole_s[1:]),
        "whole_after_without_s_median": statistics.median(without.whole_s[1:]),
    }  # fmt: skip
    report.keep(
        "copies_lagging" if options.lagging else "copies",
        figures,
        {"put_by_changed_worst": report.at_most(1.1), "steps_rate_median": report.at_least(0.9)},
    )


if __name__ == "__main__":
    main()

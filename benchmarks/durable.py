"""A durable pipeline for benchmarks: real databases and embedded logs in a folder, steps taken by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

import dbsp
from dbsp.coordinator.config import InputSection
from dbsp.coordinator.site import ConfiguredSite, close_site
from dbsp.io import EmbeddedInputLog, Push
from dbsp.layout import initial
from dbsp.logs import INSERT, Range, StepRecord
from dbsp.plan.planner import plan as make_plan
from dbsp.runtime.runtime import Runtime, StepReport
from dbsp.runtime.tasks import Work
from dbsp.store import CheckpointId
from dbsp.zset.batch import Batch


class DurablePipeline:
    """One circuit, opened at version 0; `push`, `step` and `commit`."""

    def __init__(
        self, folder: Path, circuit: dbsp.Circuit, workers: int, make_runtime: Callable[[Work], Runtime]
    ) -> None:
        """Make everything that is durable, and open it."""
        self.folder = folder
        self.plan = make_plan(circuit)
        self.layout = initial(workers)
        self.inputs = EmbeddedInputLog(folder, self.plan.tables, partitions=workers, create=True)
        site = ConfiguredSite(
            data_dir=folder, pipeline="benchmark", tables=self.plan.tables, input=InputSection(partitions=workers)
        )
        self.runtime = make_runtime(Work(site=site, plan=self.plan, run="benchmark"))
        self.table = self.plan.tables[0]
        self._next_step = self.version = 0
        self._done = dict.fromkeys(self.inputs.ends(), 0)
        first = CheckpointId(
            run="benchmark", epoch=1, step=0, layout_version=self.layout.version, fingerprint=self.plan.fingerprint
        )
        self.runtime.create(self.layout.workers, first)
        self.runtime.fence(1, self.layout.workers)
        self.runtime.open(0, 1, self.layout)

    def push(self, rows: pa.Table, name: str | None = None) -> None:
        """Append rows to a table (the first one), shared evenly among the partitions."""
        table = self.table if name is None else next(each for each in self.plan.tables if each.name == name)
        batch = Batch.from_arrow(rows, table.schema)
        count = len(self.layout.workers)
        cuts = [len(batch) * slot // count for slot in range(count + 1)]
        for partition in range(count):
            part = batch.slice(cuts[partition], cuts[partition + 1])
            operations = np.full(len(part), INSERT, dtype=np.int8)
            self.inputs.append(table.name, Push(batch=part, operations=operations), partition=partition)

    def step(self) -> StepReport:
        """Take everything pushed as one step."""
        ends = self.inputs.ends()
        ranges = tuple(
            Range(table=table, partition=partition, first=self._done.get((table, partition), 0), last=end)
            for (table, partition), end in sorted(ends.items())
            if end > self._done.get((table, partition), 0)
        )
        record = StepRecord(
            epoch=1, step=self._next_step, layout_version=self.layout.version, ranges=ranges, clock_us=0, engine="benchmark"
        )  # fmt: skip
        report = self.runtime.run_step(record, self.layout)
        self._next_step += 1
        self._done.update(ends)
        return report

    def commit(self) -> None:
        """Make the state durable as the next version, and drop the input rows below it."""
        self.version += 1
        checkpoint = CheckpointId(
            run="benchmark", epoch=1, step=self._next_step, layout_version=self.layout.version,
            fingerprint=self.plan.fingerprint,
        )  # fmt: skip
        self.runtime.commit(self.version, checkpoint, self.layout)
        self.inputs.trim(self._done)

    def close(self) -> None:
        """Close files and the runtime."""
        self.runtime.close()
        self.inputs.close()
        close_site(self.folder)

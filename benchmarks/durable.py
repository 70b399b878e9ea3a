"""A durable pipeline for benchmarks: real databases and embedded logs in a folder, steps taken by hand."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import dbsp
from dbsp.coordinator.worker_resources import ConfiguredResources, close_resources
from dbsp.io.connectors import InputKind, OutputKind
from dbsp.io.connectors.embedded import EmbeddedInput, EmbeddedOutput
from dbsp.io.embedded_input import EmbeddedInputLog
from dbsp.io.pushed import Push
from dbsp.layout import initial
from dbsp.logs import INSERT, Range, StepRecord
from dbsp.plan.planner import plan as make_plan
from dbsp.runtime.runtime import Runtime, StepReport
from dbsp.runtime.work import Work
from dbsp.store import CheckpointId
from dbsp.zset.batch import Batch


class DurablePipeline:
    """One circuit, opened at version 0; `push`, `step` and `commit`."""

    def __init__(
        self,
        folder: Path,
        circuit: dbsp.Circuit,
        workers: int,
        make_runtime: Callable[[Work], Runtime],
        source: InputKind | None = None,
        target: OutputKind | None = None,
        name: str = "benchmark",
        *,
        resumed: Mapping[str, Any] | None = None,
    ) -> None:
        """Make everything that is durable, and open it; input and output are embedded logs unless others are named.

        With `resumed`, what `left` told in another process, it opens what is there instead (embedded logs only).
        """
        self.folder = folder
        self.plan = make_plan(circuit)
        self.layout = initial(workers)
        self.resources = ConfiguredResources(
            data_dir=folder, pipeline=name, tables=self.plan.tables,
            input=source or EmbeddedInput(partitions=workers), output=target or EmbeddedOutput(),
        )  # fmt: skip
        if self.resources.input.kind == "embedded":
            new = resumed is None
            self.inputs: Any = EmbeddedInputLog(folder, self.plan.tables, partitions=workers, create=new)
        else:
            folder.mkdir(parents=True, exist_ok=True)
            self.inputs = self.resources.open_input(create=True)
        self._make_runtime = make_runtime
        self.runtime = make_runtime(Work(resources=self.resources, plan=self.plan, run="benchmark"))
        self.table = self.plan.tables[0]
        self._next_step, self.version, self._epoch = 0, 0, 1
        self._records: list[StepRecord] = []
        self._done: dict[tuple[str, int], int] = dict.fromkeys(self.inputs.ends(), 0)
        if resumed is not None:
            self._next_step, self.version, self._epoch = resumed["step"], resumed["version"], resumed["epoch"] + 1
            self._done = dict(self.inputs.ends())
            self.runtime.fence(self._epoch, self.layout.workers)
            self.runtime.open(self.version, self._epoch, self.layout)
            return
        self.runtime.create(self.layout.workers, self._checkpoint(0))
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

    def step(self, ends: Mapping[tuple[str, int], int] | None = None) -> StepReport:
        """Take everything pushed, or what lies below `ends`, as one step."""
        return self.runtime.run_step(self.cut(ends), self.layout)

    def cut(self, ends: Mapping[tuple[str, int], int] | None = None) -> StepRecord:
        """The record of the step that takes what `step` would; it must be run next but for those cut before it."""
        ends = self.inputs.ends() if ends is None else ends
        ranges = tuple(
            Range(table=table, partition=partition, first=self._done.get((table, partition), 0), last=end)
            for (table, partition), end in sorted(ends.items())
            if end > self._done.get((table, partition), 0)
        )
        record = StepRecord(
            epoch=self._epoch, step=self._next_step, layout_version=self.layout.version, ranges=ranges, clock_us=0,
            engine="benchmark",
        )  # fmt: skip
        self._records.append(record)
        self._next_step += 1
        self._done.update(ends)
        return record

    def _checkpoint(self, step: int) -> CheckpointId:
        """The state behind the steps below this one."""
        return CheckpointId(
            run="benchmark", epoch=self._epoch, step=step, layout_version=self.layout.version,
            fingerprint=self.plan.fingerprint,
        )  # fmt: skip

    def commit(self) -> int:
        """Make the state durable as the next version, and drop the input rows below it; how many bytes the version holds."""
        self.version += 1
        found = self.runtime.commit(self.version, self._checkpoint(self._next_step), self.layout)
        self.inputs.trim(self._done)
        self._records.clear()
        return sum(each.state_bytes for each in found.values())

    def left(self) -> dict[str, int]:
        """What another process needs to go on from the last commit; nothing may have been pushed since."""
        return {"step": self._next_step, "version": self.version, "epoch": self._epoch}

    def recover(self) -> tuple[float, float]:
        """As after the end of the process: (seconds to open the version, seconds to replay the steps since)."""
        self.runtime.close()
        close_resources(self.folder)
        started = time.perf_counter()
        self.runtime = self._make_runtime(Work(resources=self.resources, plan=self.plan, run="benchmark"))
        self.runtime.fence(self._epoch + 1, self.layout.workers)
        self._epoch += 1
        self.runtime.open(self.version, self._epoch, self.layout)
        opened = time.perf_counter()
        for record in self._records:
            self.runtime.run_step(record, self.layout)
        return opened - started, time.perf_counter() - opened

    def close(self) -> None:
        """Close files and the runtime."""
        self.runtime.close()
        self.inputs.close()
        close_resources(self.folder)

"""A durable pipeline driven by hand: real databases and logs, any runtime, the steps that a test orders."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import dbsp
from dbsp.circuit.circuit import Circuit
from dbsp.coordinator.worker_resources import ConfiguredResources, close_resources
from dbsp.io.connectors.embedded import EmbeddedInput
from dbsp.io.embedded_input import EmbeddedInputLog
from dbsp.io.embedded_output import read_outputs
from dbsp.io.embedded_steps import EmbeddedStepLog
from dbsp.io.pushed import Push
from dbsp.layout import Layout, initial, rescaled
from dbsp.logs import INSERT, Range, StepRecord
from dbsp.plan.plan import Plan
from dbsp.plan.planner import plan as make_plan
from dbsp.runtime.inprocess import InProcessRuntime
from dbsp.runtime.runtime import Runtime, StepReport
from dbsp.runtime.work import Work
from dbsp.store import CheckpointId
from dbsp.zset.batch import Batch

CLOCK_US = 10_000_000_000  # later than any time in the rows
PARTITIONS = 4
RUN = "test"
MakeRuntime = Callable[[Work], Runtime]
Open = Callable[..., "Pipeline"]

orders = dbsp.table("orders", {"id": dbsp.INT64, "customer": dbsp.STRING, "amount": dbsp.FLOAT64})
customers = dbsp.table("customers", {"customer": dbsp.STRING, "city": dbsp.STRING}, primary_key="customer")


def double(row: dict[str, Any]) -> dict[str, Any]:
    """A user's own function, which must reach the workers."""
    return {"id": row["id"], "amount": row["amount"] * 2}


def sample_circuit() -> Circuit:
    """Every kind of work at least once: a row function, a join, a group, an order; three exchanges deep."""
    by_city = (
        orders.join(customers, on="customer")
        .group_by("city")
        .aggregate(n=dbsp.count(), total=dbsp.sum("amount"), top=dbsp.max("amount"))
    )
    doubled = orders.filter(dbsp.col("amount") > 50.0).map(double, schema={"id": dbsp.INT64, "amount": dbsp.FLOAT64})
    return dbsp.circuit("sample", {"by_city": by_city, "doubled": doubled})


@dataclass
class Pipeline:
    """One data folder with its plan, its layout and its position; `run_step` takes what was pushed."""

    folder: Path
    make_runtime: MakeRuntime = InProcessRuntime
    workers: int = 2
    circuit: Circuit = field(default_factory=sample_circuit)
    wrap_resources: Callable[[ConfiguredResources], Any] = lambda resources: resources

    def __post_init__(self) -> None:
        self.plan = make_plan(self.circuit)
        self.inputs = EmbeddedInputLog(self.folder, self.plan.tables, partitions=PARTITIONS, create=True)
        resources = ConfiguredResources(
            data_dir=self.folder, pipeline="p", tables=self.plan.tables, input=EmbeddedInput(partitions=PARTITIONS)
        )
        self.runtime = self.make_runtime(Work(resources=self.wrap_resources(resources), plan=self.plan, run=RUN))
        self.layout: Layout = initial(self.workers)
        self.steps = EmbeddedStepLog(self.folder, create=True)
        self.records: list[StepRecord] = list(self.steps.read(0))
        self.done = {(r.table, r.partition): r.last for record in self.records for r in record.ranges}
        self.epoch, self.version, self.step = self.steps.claim(), 0, 0
        self.runtime.create(self.layout.workers, self.checkpoint_id())
        self.recover()

    def push(self, table: str, rows: Iterable[tuple[Any, ...]], operation: int = INSERT, partition: int = 0) -> None:
        schema = next(known.schema for known in self.plan.tables if known.name == table)
        batch = Batch.from_rows(schema, list(rows))
        self.inputs.append(
            table, Push(batch=batch, operations=np.full(len(batch), operation, dtype=np.int8)), partition=partition
        )

    def next_record(self) -> StepRecord:
        ranges = tuple(
            Range(table=table, partition=partition, first=self.done.get((table, partition), 0), last=end)
            for (table, partition), end in sorted(self.inputs.ends().items())
            if end > self.done.get((table, partition), 0)
        )
        return StepRecord(
            epoch=self.epoch, step=self.step, layout_version=self.layout.version, ranges=ranges,
            clock_us=CLOCK_US + 1_000_000 * self.step, engine="test",
        )  # fmt: skip

    def run_step(self, record: StepRecord | None = None) -> StepReport:
        record = record or self.next_record()
        if record.step == len(self.records):
            self.steps.append(record)
            self.records.append(record)
        report = self.runtime.run_step(record, self.layout)
        self.done.update({(r.table, r.partition): r.last for r in record.ranges})
        self.step = record.step + 1
        return report

    def checkpoint(self) -> None:
        self.runtime.commit(self.version + 1, self.checkpoint_id(), self.layout)
        self.version += 1

    def recover(self) -> None:
        """Fence, go back to the newest version that all have, run the steps since again."""
        self.runtime.fence(self.epoch, self.layout.workers)
        found = self.runtime.versions(self.layout.workers).values()
        self.version = max(set.intersection(*({info.version for info in infos} for infos in found)))
        checkpoint = self.runtime.open(self.version, self.epoch, self.layout)
        self.step = checkpoint.step
        for record in self.records[checkpoint.step :]:
            self.run_step(record)

    def new_epoch(self) -> None:
        self.epoch = self.steps.claim()
        self.recover()

    def rescale(self, workers: int) -> Any:
        return self.slice_into(rescaled(self.layout, workers, step=self.step))

    def slice_into(self, new: Layout) -> Any:
        """At a checkpoint make a version in another layout, and open it under a new epoch."""
        self.checkpoint()
        old = self.layout
        self.runtime.fence(self.epoch, old.workers)
        self.runtime.create(new.workers, self._id_in(new))
        report = self.runtime.redistribute(self.version + 1, self._id_in(new), old, new)
        self.version += 1
        self.layout = new
        self.new_epoch()
        self.runtime.discard([worker for worker in old.workers if worker not in new.workers])
        return report

    def checkpoint_id(self) -> CheckpointId:
        return self._id_in(self.layout)

    def _id_in(self, layout: Layout) -> CheckpointId:
        return CheckpointId(
            run=RUN, epoch=self.epoch, step=self.step, layout_version=layout.version,
            fingerprint=self.plan.fingerprint,
        )  # fmt: skip

    def outputs(self) -> dict[str, dict[int, list[bytes]]]:
        """Every part of every view."""
        return outputs_of(self.folder, self.plan)

    def views(self) -> dict[str, bytes]:
        read = {view.name: self.runtime.read_view(view.name, self.layout) for view in self.plan.views}
        return {name: as_bytes(in_order(table)) for name, table in read.items()}

    def close(self) -> None:
        self.runtime.close()
        self.inputs.close()
        self.steps.close()
        close_resources(self.folder)


def outputs_of(folder: Path, plan: Plan) -> dict[str, dict[int, list[bytes]]]:
    """Every part of every view as Arrow bytes, by view and step, workers in order."""
    found: dict[str, dict[int, list[bytes]]] = {view.name: {} for view in plan.views}
    for view, steps in found.items():
        for step, _, table in read_outputs(folder, view):
            steps.setdefault(step, []).append(as_bytes(table))
    return found


def in_order(table: pa.Table) -> pa.Table:
    """The rows of a view in the order of all their columns: ways of reading differ in the order of rows."""
    return table.sort_by([(name, "ascending") for name in table.column_names]).combine_chunks()


def as_bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    return bytes(sink.getvalue())


def play(pipeline: Pipeline, steps: int, seed: int = 1, rows: int = 60) -> None:
    """The same pushes and steps for the same seed: inserts, replaced customers, deletes."""
    for _ in range(steps):
        push_some(pipeline, seed, rows)
        pipeline.run_step()


def push_some(pipeline: Pipeline, seed: int, rows: int = 60) -> None:
    chance = random.Random(f"{seed} {pipeline.step}")
    for partition in range(PARTITIONS):
        names = [f"c{chance.randrange(20)}" for _ in range(5)]
        pipeline.push("customers", [(name, f"city {chance.randrange(6)}") for name in names], partition=partition)
        new = [(pipeline.step * 1000 + n, f"c{chance.randrange(22)}", chance.randrange(400) / 4) for n in range(rows)]
        pipeline.push("orders", new, partition=partition)
        pipeline.push("orders", new[: rows // 4], operation=1, partition=partition)

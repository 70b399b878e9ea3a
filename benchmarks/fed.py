"""The coordinator's service over folders of Parquet files that are given to it batch by batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import pyarrow.parquet as pq

import dbsp
from dbsp.coordinator.build import build
from dbsp.coordinator.service import Service
from dbsp.coordinator.settings.config import (
    CheckpointSection,
    Config,
    PipelineSection,
    SparkSection,
    StepSection,
)
from dbsp.io.connectors.files import FilesInput, FilesOutput
from dbsp.logs import StepRecord
from dbsp.plan.planner import plan as make_plan

AHEAD = 2
"""Batches that are cut in advance: the next one is ready when a step ends."""


def batch_name(number: int) -> str:
    """The name of a batch's file in the folder of a table."""
    return f"{number:05d}.parquet"


class FedPipeline:
    """A service on Spark, from Parquet files to Parquet files; a batch is a file per table, and becomes a step.

    `source` has a folder per table, with a file per batch; they are linked into the folder that the service looks into.
    Checkpoints are taken beside the steps, as the coordinator does.
    """

    def __init__(
        self, box: Path, circuit: dbsp.Circuit, workers: int, checkpoint_s: float, source: Path, batches: int
    ) -> None:
        """Make everything that is durable, and give the first batch; nothing runs yet."""
        self._source, self._batches, self._given = source, batches, 0
        self._tables = [table.name for table in circuit.tables]
        self._landing, self.out = box / "in", box / "out"
        config = Config(
            pipeline=PipelineSection(circuit="the one that is given", workers=workers), folder=box,
            spark=SparkSection(master=f"local[{workers}]"),
            input=FilesInput(directory="in", partitions=workers, look_every_s=0),
            output=FilesOutput(format="parquet", directory="out"),
            checkpoint=CheckpointSection(interval_s=checkpoint_s),
            step=StepSection(max_rows_per_step=self._rows(0), max_step_bytes=1 << 40),
        )  # fmt: skip
        self._service = Service(config, build(config, plan=make_plan(circuit)))
        self._service.tell(self)
        self._give()

    def __enter__(self) -> Self:
        """Start the service."""
        self._service.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        """Stop it."""
        self._service.__exit__(*error)

    def first(self) -> None:
        """Return when the first batch is processed."""
        self._processed(1)

    def rest(self) -> None:
        """Return when all batches are processed, and a checkpoint holds them."""
        self._service.pause()  # else it might find a batch's file of one table before that of another, and cut other steps
        for _ in range(AHEAD):
            self._give()
        self._service.resume()
        self._processed(self._batches)
        self._service.checkpoint()
        now = self._service.snapshot
        if now.step != self._batches or now.lag_rows:
            raise RuntimeError(
                f"the batches did not become steps: steps={now.step} batches={self._batches} lag={now.lag_rows}"
            )

    def stepped(self, record: StepRecord, *_: Any, **__: Any) -> None:
        """A step is done: one more batch lies ready; see `dbsp.coordinator.running.command_runner.Observer`."""
        if record.step:
            self._give()

    def noted(self, *_: Any) -> None:
        """See `dbsp.coordinator.running.command_runner.Observer`."""

    def _processed(self, batches: int) -> None:
        if not self._service.live_status.wait_for(lambda now: now.step >= batches, None):
            self._service.stop()  # raises what ended it

    def _give(self) -> None:
        if self._given == self._batches:
            return
        name = batch_name(self._given)
        for table in self._tables:
            (self._landing / table / name).hardlink_to(self._source / table / name)
        self._given += 1

    def _rows(self, batch: int) -> int:
        """Of a batch, what the circuit reads."""
        return sum(pq.read_metadata(self._source / table / batch_name(batch)).num_rows for table in self._tables)

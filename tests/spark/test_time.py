"""Time on Spark: waterlines, late rows, final windows, sessions and now() give the bytes of the in-process runtime."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import pytest

import dbsp
from dbsp.circuit.circuit import Circuit
from dbsp.logs import StepRecord
from dbsp.runtime.inprocess import InProcessRuntime
from dbsp.runtime.runtime import StepReport
from dbsp.steps.timing import Partitions, Timing
from tests.spark.pipelines import PARTITIONS, MakeRuntime, Open, Pipeline

pytestmark = pytest.mark.spark

START = dt.datetime(1970, 1, 1)


def timed_circuit() -> Circuit:
    t = dbsp.table("t", {"k": dbsp.STRING, "at": dbsp.TIMESTAMP}, watermark={"at": dbsp.seconds(2)})
    windows = t.tumble("at", dbsp.seconds(4)).group_by("k", "window_end")
    views = {
        "updated": windows.aggregate(n=dbsp.count()),
        "final": windows.aggregate(emit="final", n=dbsp.count()),
        "visits": t.session("at", dbsp.seconds(1), partition_by="k"),
        "recent": t.filter(dbsp.col("at") > dbsp.now() - dbsp.seconds(3)),
    }
    return dbsp.circuit("timed", views)


@dataclass
class Timed(Pipeline):
    """Takes the time of each step from the reports of those before, as a coordinator does; the clock ticks a second a step."""

    circuit: Circuit = field(default_factory=timed_circuit)
    timing: Timing = field(default_factory=Timing)

    def next_record(self) -> StepRecord:
        tables = {node: event_time.table for node, event_time in self.plan.event_times.items()}
        timing = self.timing.over(tables, Partitions(present={"t": range(PARTITIONS)}))
        moment = timing.moment(1_000_000 * self.step)
        return replace(
            super().next_record(), clock_us=moment.clock_us, clock_before_us=moment.clock_before_us,
            waterlines=moment.waterlines,
        )  # fmt: skip

    def run_step(self, record: StepRecord | None = None) -> StepReport:
        record = record or self.next_record()
        report = super().run_step(record)
        self.timing = self.timing.recorded(record.moment).finished(report.signals)
        return report


@pytest.fixture
def opened(opened: Open) -> Open:
    return partial(opened, kind=Timed)


def push(pipeline: Timed) -> None:
    chance = random.Random(pipeline.step)
    for partition in range(PARTITIONS):
        rows = [
            (
                (
                    chance.choice("abc"),
                    START + dt.timedelta(milliseconds=1000 * pipeline.step - chance.randrange(5000)),
                ),
                1,
            )
            for _ in range(6)
        ]
        pipeline.push("t", rows, partition=partition)


def test_spark_gives_the_same_bytes(tmp_path: Path, opened: Callable[..., Timed], on_spark: MakeRuntime) -> None:
    kinds: list[MakeRuntime] = [InProcessRuntime, on_spark]
    pipelines = [opened(tmp_path / str(number), kind) for number, kind in enumerate(kinds)]
    for pipeline in pipelines:
        for step in range(8):
            push(pipeline)
            report = pipeline.run_step()
            if step == 3:
                pipeline.checkpoint()
            if step == 5:
                pipeline.new_epoch()
        pipeline.rescale(3)
        for _ in range(6):
            push(pipeline)
            report = pipeline.run_step()
        report = pipeline.run_step()
        assert sum(worker.dead for worker in report.workers) == 0
    here, there = pipelines
    assert here.records == there.records
    assert any(record.waterlines for record in here.records)
    assert here.outputs() == there.outputs()
    assert here.views() == there.views()
    assert all(any(parts) for parts in here.outputs()["final"].values())

"""On Spark with an embedded log: the next step's input is brought into memory while a step runs, and nothing else changes."""

from __future__ import annotations

import os
import select
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dbsp.errors import DataError
from dbsp.logs import Range
from dbsp.runtime.spark.runtime import SparkRuntime
from dbsp.runtime.spark.session import SparkHandle
from tests.background.test_read_ahead import STEPS, Leading, life
from tests.spark.pipelines import Pipeline
from tests.spark.waiting import until
from tests.spark.wrapped_resources import Delegate

pytestmark = pytest.mark.spark

WAIT_MS = 60_000


@dataclass(frozen=True)
class MeetingLog(Delegate):
    """Meets the end of the step before when the first rows of a step are touched."""

    pipes: Path

    def touch(self, range_: Range) -> None:
        if (range_.table, range_.partition) == ("orders", 0):
            step = range_.first // (range_.last - range_.first)
            with (self.pipes / str(step)).open("wb", buffering=0) as pipe:  # goes on when the other side is there
                pipe.write(b"x")
        self.inner.touch(range_)


@dataclass(frozen=True)
class MeetingOutput(Delegate):
    pipes: Path

    def write(self, epoch: int, step: int, *rest: Any) -> None:
        pipe = os.open(self.pipes / str(step + 1), os.O_RDONLY | os.O_NONBLOCK)
        try:
            poll = select.poll()
            poll.register(pipe, select.POLLIN)
            if not poll.poll(WAIT_MS):
                raise DataError(f"nobody reads ahead: step={step}")
        finally:
            os.close(pipe)
        self.inner.write(epoch, step, *rest)


@dataclass(frozen=True)
class BarrierResources(Delegate):
    """Worker 0's part of a step is written only after the input of the next step has begun to be touched."""

    pipes: Path

    def input_log(self) -> Any:
        return MeetingLog(self.inner.input_log(), self.pipes)

    def output_log(self, worker: int, first_step: int = 0, *, create: bool = False) -> Any:
        log = self.inner.output_log(worker, first_step, create=create)
        return MeetingOutput(log, self.pipes) if worker == 0 else log


@dataclass(frozen=True)
class BrokenTouch(Delegate):
    def input_log(self) -> Any:
        return BrokenTouchLog(self.inner.input_log())


@dataclass(frozen=True)
class BrokenTouchLog(Delegate):
    def touch(self, range_: Range) -> None:
        raise DataError(f"rows are gone: table={range_.table}")


def test_the_next_input_is_touched_before_the_step_ends(spark: SparkHandle, tmp_path: Path) -> None:
    """A step ends only after that: without it the step would fail."""
    for step in range(STEPS + 1):
        os.mkfifo(tmp_path / str(step))
    pipeline = Leading(
        tmp_path / "p",
        lambda work: SparkRuntime(work, spark=spark),
        wrap_resources=lambda resources: BarrierResources(resources, tmp_path),
    )
    for _ in range(STEPS):
        pipeline.lead()
    pipeline.close()


@dataclass(frozen=True)
class MarkingLog(Delegate):
    """Marks of which step rows are read; with `fails` worker 1 cannot read those of steps that it knows ahead, the first time."""

    marks: Path
    fails: bool

    def read(self, range_: Range, step: int) -> Any:
        mark = self.marks / f"{step} of {range_.partition}"
        if self.fails and range_.partition == 1 and 1 < step < STEPS and not mark.exists():
            mark.touch()
            raise DataError(f"not yet: step={step}")
        mark.touch()
        return self.inner.read(range_, step)


@dataclass(frozen=True)
class AwaitingOutput(Delegate):
    """Worker 0's, which waits until worker 1 has begun to read the next step; at the first one nobody stays yet."""

    marks: Path

    def write(self, epoch: int, step: int, *rest: Any) -> None:
        if 0 < step < STEPS - 1:
            try:
                until((self.marks / f"{step + 1} of 1").exists, "the other worker reads ahead")
            except AssertionError as error:
                raise DataError(f"{error}: step={step}") from None
        self.inner.write(epoch, step, *rest)


@dataclass(frozen=True)
class MarkingResources(Delegate):
    marks: Path
    fails: bool

    def input_log(self) -> Any:
        return MarkingLog(self.inner.input_log(), self.marks, self.fails)

    def output_log(self, worker: int, first_step: int = 0, *, create: bool = False) -> Any:
        log = self.inner.output_log(worker, first_step, create=create)
        return AwaitingOutput(log, self.marks) if worker == 0 else log


@pytest.mark.parametrize("fails", [False, True], ids=["sound", "reading ahead fails"])
def test_a_worker_that_has_done_its_part_reads_what_comes(
    fails: bool, spark: SparkHandle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the other one has done its own: without it the step would fail. The bytes are those of one process."""
    monkeypatch.setattr(SparkRuntime, "_stays", lambda _: True)
    marks = tmp_path / "marks"
    marks.mkdir()
    pipeline = Leading(
        tmp_path / "b",
        lambda work: SparkRuntime(work, spark=spark),
        wrap_resources=lambda resources: MarkingResources(resources, marks, fails),
    )
    assert life(pipeline, -1, Pipeline.new_epoch) == life(Leading(tmp_path / "a"), -1, Pipeline.new_epoch)


@pytest.mark.parametrize("wrap", [lambda resources: resources, BrokenTouch], ids=["sound", "touching fails"])
@pytest.mark.parametrize("event", [Pipeline.new_epoch, lambda p: p.rescale(3)], ids=["restart", "rescale"])
def test_the_same_bytes_as_one_process(event: Any, wrap: Any, spark: SparkHandle, tmp_path: Path) -> None:
    expected = life(Leading(tmp_path / "a"), 2, event)
    pipeline = Leading(tmp_path / "b", lambda work: SparkRuntime(work, spark=spark), wrap_resources=wrap)
    assert life(pipeline, 2, event) == expected

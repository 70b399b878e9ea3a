"""Reading the input of the next step while one runs: it begins in time, and nothing else can be told from outside."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from dbsp.errors import DataError
from dbsp.logs import Changes, Range, StepRecord
from dbsp.runtime.background import BackgroundThreads
from dbsp.runtime.inprocess import InProcessRuntime
from dbsp.runtime.runtime import Runtime
from dbsp.runtime.work import Work
from tests.spark.pipelines import Pipeline, push_some
from tests.spark.wrapped_resources import Delegate

STEPS = 4
WAIT_S = 60.0


class Leading(Pipeline):
    """A pipeline whose steps are logged, and with background workers read, one ahead; `rows` of step s are those of
    the seed and s."""

    def lead(self) -> None:
        """Run the next step; the record behind it is logged, and its input asked for, before it begins."""
        while len(self.records) < self.step + 2:
            self._log_one()
        record, following = self.records[self.step : self.step + 2]
        self.runtime.read_ahead(following, self.layout)
        self.run_step(record)

    def _log_one(self) -> None:
        """Push and log the step after the last one logged."""
        at, self.step = self.step, len(self.records)
        push_some(self, 1)
        self.done = {(r.table, r.partition): r.last for record in self.records for r in record.ranges}
        record = self.next_record()
        self.steps.append(record)
        self.records.append(record)
        self.step = at

    def rescale(self, workers: int) -> Any:
        """No step is logged ahead of a change of the layout: the last one logged runs in the old one."""
        for record in self.records[self.step :]:
            self.run_step(record)
        return super().rescale(workers)

    def found(self) -> Any:
        return self.outputs(), self.views()


def alone(work: Work) -> Runtime:
    return InProcessRuntime(work)


def kept(work: Work) -> Runtime:
    return InProcessRuntime(replace(work, background=BackgroundThreads()))


def life(pipeline: Leading, at: int, event: Callable[[Leading], None]) -> Any:
    """Steps, with something that happens before one of them; what they made."""
    while pipeline.step < STEPS:
        if pipeline.step == at:
            at = -1
            event(pipeline)
        else:
            pipeline.lead()
    found = pipeline.found()
    pipeline.close()
    return found


@pytest.mark.parametrize("at", range(STEPS))
@pytest.mark.parametrize(
    "event",
    [Pipeline.new_epoch, lambda p: p.rescale(3), lambda p: p.rescale(1), lambda p: p.checkpoint()],
    ids=["restart", "to three", "to one", "checkpoint"],
)
def test_the_same_bytes_whatever_happens_at_any_step(at: int, event: Any, tmp_path: Path) -> None:
    expected = life(Leading(tmp_path / "alone"), at, event)
    assert life(Leading(tmp_path / "kept", kept), at, event) == expected


@dataclass(frozen=True)
class WatchedLog(Delegate):
    """Tells the step before it reads."""

    read_begins: Callable[[int], None]

    def read(self, range_: Range, step: int) -> Sequence[Changes]:
        self.read_begins(step)
        found: Sequence[Changes] = self.inner.read(range_, step)
        return found


@dataclass(frozen=True)
class WatchedOutput(Delegate):
    ends: Callable[[int], None]

    def write(self, epoch: int, step: int, *rest: Any) -> None:
        self.inner.write(epoch, step, *rest)
        self.ends(step)


@dataclass(frozen=True)
class WatchedResources(Delegate):
    """Tells when the task, or its background worker, reads, and when a worker has written its part of a step, the
    last thing in it."""

    by_task: Callable[[int], None] = lambda step: None
    by_keeper: Callable[[int], None] = lambda step: None
    ends: Callable[[int], None] = lambda step: None

    def input_log(self) -> Any:
        return WatchedLog(self.inner.input_log(), self.by_task)

    def open_input(self) -> Any:
        return WatchedLog(self.inner.open_input(), self.by_keeper)

    def output_log(self, worker: int, first_step: int = 0, *, create: bool = False) -> Any:
        return WatchedOutput(self.inner.output_log(worker, first_step, create=create), self.ends)


@dataclass
class Watch:
    """Who has read what, and what has ended."""

    reads: dict[int, threading.Event] = field(default_factory=lambda: {step: threading.Event() for step in range(99)})
    by_task: list[int] = field(default_factory=list)

    def resources(self, inner: Any, ends: Callable[[int], None]) -> WatchedResources:
        return WatchedResources(inner, self.by_task.append, lambda step: self.reads[step].set(), ends)


def test_the_next_read_begins_before_the_step_ends(tmp_path: Path) -> None:
    """A step ends only after the read behind it has begun: without reading ahead it would never end."""
    watch = Watch()

    def ends(step: int) -> None:
        assert watch.reads[step + 1].wait(WAIT_S), f"nobody reads ahead: step={step}"

    pipeline = Leading(tmp_path, kept, wrap_resources=lambda resources: watch.resources(resources, ends))
    for _ in range(STEPS):
        pipeline.lead()
    pipeline.close()
    assert set(watch.by_task) == {0}, "the first step is the only one whose task reads"


def test_without_keepers_nobody_reads_ahead(tmp_path: Path) -> None:
    watch = Watch()
    pipeline = Leading(tmp_path, alone, wrap_resources=lambda resources: watch.resources(resources, lambda step: None))
    for _ in range(STEPS):
        pipeline.lead()
    pipeline.close()
    assert set(watch.by_task) == set(range(STEPS))
    assert not any(event.is_set() for event in watch.reads.values())


def test_a_slow_read_is_waited_for(tmp_path: Path) -> None:
    """A read that is not over when its step begins is the one that the step takes."""
    expected = life(Leading(tmp_path / "alone"), -1, Pipeline.new_epoch)
    watch, begun = Watch(), {step: threading.Event() for step in range(STEPS + 2)}

    def slow(step: int) -> None:
        assert begun[step].wait(WAIT_S)

    class Slow(Leading):
        def run_step(self, record: StepRecord | None = None) -> Any:
            assert record is not None
            begun[record.step].set()
            return super().run_step(record)

        def close(self) -> None:
            begun[STEPS].set()  # it was read ahead and is never run; nobody can close what still reads
            super().close()

    pipeline = Slow(
        tmp_path / "slow",
        kept,
        wrap_resources=lambda resources: WatchedResources(resources, watch.by_task.append, slow),
    )
    assert life(pipeline, -1, Pipeline.new_epoch) == expected
    assert set(watch.by_task) == {0}


@pytest.mark.parametrize("broken_at", range(1, STEPS))
def test_a_read_that_fails_once_fails_nothing(broken_at: int, tmp_path: Path) -> None:
    """The task reads by itself what its background worker could not."""
    expected = life(Leading(tmp_path / "alone"), -1, Pipeline.new_epoch)
    watch = Watch()

    def fail(step: int) -> None:
        if step == broken_at:
            raise DataError(f"rows are gone: step={step}", "restore them")

    pipeline = Leading(
        tmp_path / "kept",
        kept,
        wrap_resources=lambda resources: WatchedResources(resources, watch.by_task.append, fail),
    )
    assert life(pipeline, -1, Pipeline.new_epoch) == expected
    assert set(watch.by_task) == {0, broken_at}


@pytest.mark.parametrize("make", [alone, kept], ids=["alone", "kept"])
def test_rows_that_are_gone_are_one_error_of_their_own_step(make: Any, tmp_path: Path) -> None:
    """The error comes when the step is run, once, as without reading ahead, and later steps come when it is mended."""
    expected = life(Leading(tmp_path / "alone"), -1, Pipeline.new_epoch)
    gone = [2]

    def fail(step: int) -> None:
        if step in gone:
            raise DataError(f"rows are gone: step={step}", "restore them")

    pipeline = Leading(
        tmp_path / "kept", make, wrap_resources=lambda resources: WatchedResources(resources, fail, fail)
    )
    pipeline.lead()
    pipeline.lead()
    with pytest.raises(DataError, match="rows are gone: step=2") as caught:
        pipeline.lead()
    assert caught.value.hint == "restore them"
    gone.clear()
    pipeline.new_epoch()
    assert life(pipeline, -1, Pipeline.new_epoch) == expected

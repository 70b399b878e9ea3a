"""Steps with background workers: the bytes of steps without them, whenever a background worker is killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dbsp.logs import Range, StepRecord
from dbsp.processes import find_process
from dbsp.runtime import tasks
from dbsp.runtime.background import BackgroundProcesses, BackgroundThreads, BackgroundWorkers
from dbsp.runtime.inprocess import InProcessRuntime
from dbsp.zset.encoding import encode
from tests.spark.pipelines import Pipeline, play, push_some
from tests.spark.wrapped_resources import DearInput

STEPS = 4


class Kept(Pipeline):
    """A pipeline that lets the input of every step be read ahead; `between` is called before the step runs."""

    between: Callable[[int], None] = staticmethod(lambda step: None)

    def run_step(self, record: StepRecord | None = None) -> Any:
        record = record or self.next_record()
        self.runtime.read_ahead(record, self.layout)
        self.between(record.step)
        return super().run_step(record)


@pytest.fixture(params=["threads", "processes"])
def background(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BackgroundWorkers]:
    found: BackgroundWorkers = BackgroundThreads()
    if request.param == "processes":
        own = find_process(os.getpid())
        found = BackgroundProcesses(str(tmp_path), owner=own)
        for worker in (0, 1):
            found.of(worker).ready(60.0)  # type: ignore[union-attr]
    yield found
    found.close()


def kept(folder: Path, background: BackgroundWorkers) -> Kept:
    return Kept(
        folder, lambda work: InProcessRuntime(replace(work, resources=DearInput(work.resources), background=background))
    )


@pytest.fixture
def expected(tmp_path: Path) -> Any:
    pipeline = Pipeline(tmp_path / "alone")
    play(pipeline, STEPS)
    pipeline.new_epoch()
    play(pipeline, 1)
    found = pipeline.outputs(), pipeline.views()
    pipeline.close()
    return found


def test_reading_ahead_changes_no_byte(background: BackgroundWorkers, expected: Any, tmp_path: Path) -> None:
    pipeline = kept(tmp_path / "kept", background)
    play(pipeline, STEPS)
    pipeline.new_epoch()
    play(pipeline, 1)
    assert (pipeline.outputs(), pipeline.views()) == expected
    pipeline.close()


def test_what_is_taken_is_what_is_read(background: BackgroundWorkers, tmp_path: Path) -> None:
    pipeline = kept(tmp_path / "kept", background)
    push_some(pipeline, 1)
    record = pipeline.next_record()
    order = tasks.StepOrder(record=record, epoch=pipeline.epoch, layout=pipeline.layout)
    alone = replace(pipeline.runtime.work, background=None)  # type: ignore[attr-defined]
    own = {w: tasks.ahead.ranges_of(record.ranges, pipeline.layout, w) for w in pipeline.layout.workers}
    for worker, ranges in own.items():
        assert tasks.ahead.taken(background, worker, ranges, record.step, pipeline.epoch) is None, "not asked for"
    pipeline.runtime.read_ahead(record, pipeline.layout)
    for worker, ranges in own.items():
        found = tasks.ahead.taken(background, worker, ranges, record.step, pipeline.epoch)
        assert found is not None
        assert tasks.ahead.taken(background, worker, ranges, record.step, pipeline.epoch) is None, "given once"
        for one, other in zip(found, tasks.read_changes(alone, order, worker), strict=True):
            assert (one.table, one.partition, one.dead) == (other.table, other.partition, other.dead)
            assert encode(one.batch) == encode(other.batch)
            np.testing.assert_array_equal(one.operations, other.operations)
            np.testing.assert_array_equal(one.offsets, other.offsets)
    pipeline.close()


def test_a_worker_reads_its_ranges_also_of_partitions_that_its_log_does_not_know_of(tmp_path: Path) -> None:
    """A topic was given more partitions, and the broker that a worker asks has not heard of it."""
    pipeline = Pipeline(tmp_path)
    table = pipeline.runtime.work.plan.tables[0].name  # type: ignore[attr-defined]
    ranges = tuple(Range(table=table, partition=p, first=0, last=9) for p in range(7))
    record = StepRecord(epoch=1, step=0, layout_version=pipeline.layout.version, ranges=ranges, clock_us=0, engine="")
    shares = [tasks.ahead.ranges_of(record.ranges, pipeline.layout, worker) for worker in pipeline.layout.workers]
    assert sorted(r.partition for share in shares for r in share) == list(range(7))
    pipeline.close()


def test_a_read_of_another_step_or_epoch_is_not_taken(background: BackgroundWorkers, tmp_path: Path) -> None:
    pipeline = kept(tmp_path / "kept", background)
    push_some(pipeline, 1)
    record = pipeline.next_record()
    ranges = tasks.ahead.ranges_of(record.ranges, pipeline.layout, 0)
    pipeline.runtime.read_ahead(record, pipeline.layout)
    assert tasks.ahead.taken(background, 0, ranges, record.step + 1, pipeline.epoch) is None
    assert tasks.ahead.taken(background, 0, ranges[:-1], record.step, pipeline.epoch) is None
    assert tasks.ahead.taken(background, 0, ranges, record.step, pipeline.epoch + 1) is None
    assert tasks.ahead.taken(background, 0, ranges, record.step, pipeline.epoch) is None, "a newer epoch has begun"
    pipeline.close()


@pytest.mark.parametrize("background", ["processes"], indirect=True)
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_keepers_killed_between_any_two_steps(
    background: BackgroundProcesses, how: int, expected: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dbsp.runtime.background.process.ANSWER_S", 0.5)
    pids = {worker: background.of(worker).ready(60.0) for worker in (0, 1)}  # type: ignore[union-attr]

    def kill(step: int) -> None:
        if step in pids:
            with suppress(ProcessLookupError):  # a background worker that is slow to answer is killed by who asks
                os.kill(pids.pop(step), how)

    pipeline = kept(tmp_path / "kept", background)
    pipeline.between = kill  # type: ignore[method-assign]
    play(pipeline, STEPS)
    pipeline.new_epoch()
    play(pipeline, 1)
    assert (pipeline.outputs(), pipeline.views()) == expected
    pipeline.close()

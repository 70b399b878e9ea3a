"""Steps on Spark whose input the background workers read ahead: the bytes of one process, also when the background
workers are killed."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from dbsp.logs import StepRecord
from dbsp.processes import find_process
from dbsp.runtime import ahead
from dbsp.runtime.background import BackgroundLostError, BackgroundProcesses, Job
from dbsp.runtime.runtime import Runtime
from dbsp.runtime.spark.runtime import SparkRuntime
from dbsp.runtime.spark.session import SparkHandle
from dbsp.runtime.work import Work
from tests.pace import rotating
from tests.spark.pipelines import Pipeline, push_some
from tests.spark.test_drivers import DRIVER, JVM, assert_golden, drive
from tests.spark.waiting import until
from tests.spark.wrapped_resources import DearInput

pytestmark = pytest.mark.spark

STEPS = 5
Between = Callable[[Pipeline, int], None]


def life(pipeline: Pipeline, between: Between = lambda pipeline, step: None) -> Any:
    """Steps that are read ahead, a rollback with replay; what they made."""
    for step in range(STEPS):
        push_some(pipeline, 1)
        record = pipeline.next_record()
        if step == 0 and isinstance(pipeline.runtime, SparkRuntime):
            pids_of(pipeline)
        pipeline.runtime.read_ahead(record, pipeline.layout)
        between(pipeline, step)
        pipeline.run_step(record)
        getattr(pipeline, "after", int)()
        if step == 2:
            pipeline.new_epoch()
    found = pipeline.outputs(), pipeline.views()
    pipeline.close()
    return found


@pytest.fixture
def on_spark(spark: SparkHandle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Work], Runtime]:
    # On a machine with more to do than it can, a background worker that answers late would be killed, and nothing be read ahead.
    monkeypatch.setattr("dbsp.runtime.background.process.ANSWER_S", 60.0)

    def make(work: Work) -> Runtime:
        made = SparkRuntime(
            replace(work, resources=DearInput(work.resources), background=BackgroundProcesses(str(tmp_path))),
            spark=spark,
        )
        assert made._near is not None
        return made

    return make


def pids_of(pipeline: Pipeline) -> list[int]:
    background = pipeline.runtime._near.background  # type: ignore[attr-defined]
    return [background.of(worker).ready(60.0) for worker in pipeline.layout.workers]


def test_tasks_take_what_their_keepers_read(on_spark: Any, tmp_path: Path) -> None:
    expected = life(Pipeline(tmp_path / "a"))
    seen: set[int] = set()
    left: list[str] = []

    def look(pipeline: Pipeline, step: int) -> None:
        seen.update(pids_of(pipeline))
        background_worker = pipeline.runtime._near.background.of(0)  # type: ignore[attr-defined]
        left.append(background_worker.wait(read_of(pipeline, pipeline.next_record())).state)
        pipeline.after = lambda: left.append(background_worker.wait(read_of(pipeline, pipeline.records[step])).state)  # type: ignore[attr-defined]

    assert life(Pipeline(tmp_path / "b", on_spark), look) == expected
    assert len(seen) == 2, "driver and tasks find the same background workers"
    assert set(left[::2]) <= {"running", "done"}
    assert set(left[1::2]) == {"absent"}, "the tasks have taken them"
    until(lambda: all(find_process(pid) is None for pid in seen), "the end of the background workers")


def read_of(pipeline: Pipeline, record: StepRecord) -> Job:
    ranges = ahead.ranges_of(record.ranges, pipeline.layout, 0)
    return ahead._job(ranges, record.step, pipeline.epoch)


@pytest.mark.parametrize("how", rotating([signal.SIGKILL, signal.SIGTERM], 2))
def test_keepers_killed_before_every_step(how: int, on_spark: Any, tmp_path: Path) -> None:
    expected = life(Pipeline(tmp_path / "a"))

    def kill(pipeline: Pipeline, step: int) -> None:
        pids = pids_of(pipeline)
        with suppress(ProcessLookupError):
            os.kill(pids[step % len(pids)], how)

    assert life(Pipeline(tmp_path / "b", on_spark), kill) == expected


def test_a_rollback_leaves_an_older_read_behind(on_spark: Any, tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path / "b", on_spark)
    pids_of(pipeline)
    push_some(pipeline, 1)
    pipeline.runtime.read_ahead(pipeline.next_record(), pipeline.layout)
    pipeline.new_epoch()
    pipeline.run_step()
    background_worker = pipeline.runtime._near.background.of(0)  # type: ignore[attr-defined]
    background_worker.wait(Job(kind="fetch", key="any", epoch=pipeline.epoch))
    with pytest.raises(Exception, match="newer epoch"):
        background_worker.wait(Job(kind="fetch", key="any", epoch=pipeline.epoch - 1))
    pipeline.close()
    with pytest.raises(BackgroundLostError):
        background_worker.wait(Job(kind="fetch", key="any", epoch=pipeline.epoch))


@pytest.mark.parametrize(("fault", "code", "says"), rotating([JVM, DRIVER], 2))
def test_keepers_end_with_what_they_work_for(
    fault: tuple[Any, ...], code: int, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the two faults, the one that `test_a_killed_program_continues` leaves out at this commit."""
    with TemporaryDirectory(prefix="dbsp-") as temporary:
        monkeypatch.setenv("TMPDIR", temporary)
        place = Path(temporary) / f"dbsp-background-{os.getuid()}"
        first = drive(tmp_path / "p", fault=fault, background=True)
        assert first.returncode == code, "and no process is left"
        assert re.search(says, first.stdout)
        assert place.exists()
        until(lambda: not list(place.iterdir()), "the folders of the background workers are gone")
        done = drive(tmp_path / "p", background=True)
        assert done.returncode == 0, done.stdout + done.stderr
        until(lambda: not list(place.iterdir()), "the folders of the background workers are gone")
    assert_golden(tmp_path / "p", tmp_path / "golden")

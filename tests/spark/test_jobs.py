"""The thread that runs jobs: retries, errors, cancelling, silence, a JVM that dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.core.rdd import RDD
from pyspark.sql import SparkSession

from dbsp.errors import InternalError, UnavailableError
from dbsp.runtime.spark.jobs import JobThread, begun
from dbsp.runtime.spark.placement import drain, ground_rdd, live_hosts
from dbsp.runtime.spark.session import SparkHandle
from tests.spark.waiting import until

pytestmark = pytest.mark.spark


@pytest.fixture
def jobs(spark: SparkHandle) -> Iterator[JobThread]:
    thread = JobThread(spark.context, "test-jobs", 60, spark.alive)
    yield thread
    thread.close()


def _run(
    spark: SparkHandle,
    jobs: JobThread,
    function: Callable[[int], object],
    count: int = 2,
    gather: Callable[[RDD[Any]], list[object]] = RDD.collect,
) -> list[object]:
    ground = ground_rdd(spark.context, ("",) * count)

    def task(index: int, nothing: Iterable[int]) -> list[object]:
        drain(nothing)
        return [function(index)]

    return jobs.run("test", lambda: gather(ground.mapPartitionsWithIndex(task)))


def test_results_come_in_the_order_of_workers(spark: SparkHandle, jobs: JobThread) -> None:
    assert _run(spark, jobs, lambda index: index * 10, 5) == [0, 10, 20, 30, 40]


@pytest.mark.parametrize("hosts", [("", ""), ("127.0.0.1", "127.0.0.1")])
def test_python_workers_are_used_again(spark: SparkHandle, jobs: JobThread, hosts: tuple[str, ...]) -> None:
    ground = ground_rdd(spark.context, hosts)

    def pid(_: int, nothing: Iterable[int]) -> list[int]:
        drain(nothing)
        return [os.getpid()]

    seen = [set(jobs.run("test", lambda: ground.mapPartitionsWithIndex(pid).collect())) for _ in range(4)]
    assert len(set.union(*seen)) <= 2


@pytest.mark.parametrize("gather", [RDD.collect, lambda job: begun(job).get()])
def test_a_bug_in_a_task_is_told_without_the_jvm(
    gather: Callable[[RDD[Any]], list[object]], spark: SparkHandle, jobs: JobThread
) -> None:
    with pytest.raises(InternalError, match="reason=ZeroDivisionError: integer division or modulo by zero") as caught:
        _run(spark, jobs, lambda index: 1 // index, gather=gather)
    assert "org.apache" not in str(caught.value)
    assert len(str(caught.value)) < 5000


def test_a_killed_python_worker_is_replaced_and_its_task_retried(
    spark: SparkHandle, jobs: JobThread, tmp_path: Path
) -> None:
    mark = tmp_path / "killed"

    def fragile(index: int) -> int:
        if index == 1 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return index

    assert _run(spark, jobs, fragile) == [0, 1]
    assert mark.exists()


def test_a_worker_that_always_dies_is_an_outage(spark: SparkHandle, jobs: JobThread) -> None:
    with pytest.raises(UnavailableError, match="while=test"):
        _run(spark, jobs, lambda index: os.kill(os.getpid(), signal.SIGKILL))
    assert _run(spark, jobs, lambda index: index) == [0, 1]


def test_silence_is_an_outage_and_the_thread_goes_on(spark: SparkHandle, tmp_path: Path) -> None:
    jobs = JobThread(spark.context, "test-silence", 1.0, spark.alive)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    began = time.monotonic()
    with pytest.raises(UnavailableError, match=r"worker_silence_s=1"):
        _run(spark, jobs, lambda index: fifo.read_text() if index else 0)
    assert time.monotonic() - began < 15
    assert _run(spark, jobs, lambda index: index) == [0, 1]
    jobs.close()


def test_a_cancelled_job_is_an_outage(spark: SparkHandle, jobs: JobThread, tmp_path: Path) -> None:
    started, fifo = tmp_path / "started", tmp_path / "fifo"
    os.mkfifo(started)
    os.mkfifo(fifo)

    def wait(_: int) -> str:
        started.write_text("x")
        return fifo.read_text()

    def cancel() -> None:
        started.read_text()
        jobs.cancel()

    canceller = threading.Thread(target=cancel)
    canceller.start()
    with pytest.raises(UnavailableError, match="cancelled"):
        _run(spark, jobs, wait, 1)
    canceller.join()


def test_a_cancelled_task_that_waits_in_the_jvm_frees_its_core(spark: SparkHandle, jobs: JobThread) -> None:
    """As one that waits for rows of a silent host does: there the wait lasted minutes, and the recovery waited for the core."""
    cores, tracker = spark.context.defaultParallelism, spark.context.statusTracker()
    asleep = SparkSession(spark.context).range(0, cores, 1, cores)
    asleep = asleep.selectExpr("java_method('java.lang.Thread', 'sleep', 300000L)")

    def all_asleep() -> bool:
        stages = map(tracker.getStageInfo, tracker.getActiveStageIds())
        return any(stage is not None and stage.numActiveTasks == cores for stage in stages)

    def cancel() -> None:
        until(all_asleep, "every core has a task that waits")
        jobs.cancel()

    canceller = threading.Thread(target=cancel)
    canceller.start()
    with pytest.raises(UnavailableError, match="cancelled"):
        jobs.run("sleep", asleep.collect)
    canceller.join()
    began = time.monotonic()
    assert _run(spark, jobs, lambda index: index) == [0, 1]
    assert time.monotonic() - began < 60


def test_an_interrupt_cancels(spark: SparkHandle, jobs: JobThread) -> None:
    def interrupted() -> object:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        jobs.run("test", interrupted)
    assert _run(spark, jobs, lambda index: index) == [0, 1]


def test_an_idle_thread_keeps_itself_warm(spark: SparkHandle) -> None:
    idled = threading.Event()
    jobs = JobThread(spark.context, "test-idle", 60, spark.alive, idle_s=0.01, idle=idled.set)
    assert idled.wait(10)
    assert _run(spark, jobs, lambda index: index) == [0, 1]
    jobs.close()


def test_a_closed_thread_refuses(spark: SparkHandle) -> None:
    jobs = JobThread(spark.context, "test-closed", 60, spark.alive)
    jobs.close()
    with pytest.raises(UnavailableError, match="closed"):
        jobs.run("test", lambda: None)


def test_tasks_may_prefer_hosts(spark: SparkHandle, jobs: JobThread) -> None:
    assert live_hosts(spark.context) == {"127.0.0.1"}
    ground = ground_rdd(spark.context, ("127.0.0.1", "", "elsewhere"))
    assert jobs.run("test", lambda: ground.mapPartitionsWithIndex(lambda i, it: [(i, list(it))]).collect()) == [
        (0, []),
        (1, []),
        (2, []),
    ]
    java = ground._jrdd.rdd()
    places = [java.preferredLocations(part).mkString(",") for part in java.partitions()]
    assert places == ["127.0.0.1", "", "elsewhere"]


LOSE_THE_JVM = """
import os, signal, threading
from dbsp.errors import UnavailableError
from dbsp.runtime.spark.jobs import JobThread
from dbsp.runtime.spark.session import SparkSettings, start

handle = start(SparkSettings(master="local[1]"))
jobs = JobThread(handle.context, "g", 60, handle.alive)
pid = handle.process.pid
ground = handle.context.parallelize(range(1), 1)
workers = jobs.run("first", lambda: ground.mapPartitionsWithIndex(lambda i, _: [os.getpid()]).collect())
for what in ("second", "third"):
    try:
        jobs.run(what, lambda: ground.mapPartitionsWithIndex(lambda i, _: [os.kill(pid, signal.SIGKILL)]).collect())
    except UnavailableError as error:
        print(error, flush=True)
jobs.close()
handle.stop()
print("left", os.path.exists(handle.work_dir), flush=True)
handle = start(SparkSettings(master="local[1]"))
print("again", handle.context.range(3).count(), flush=True)
handle.stop()
"""


def test_a_killed_jvm_is_an_outage_that_ends_the_runtime_not_the_process() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", LOSE_THE_JVM], capture_output=True, text=True, timeout=90, check=False
    )
    lines = done.stdout.splitlines()
    assert lines == [
        "the Spark JVM died: while=second; start the same command again: it continues from its state",
        "the Spark JVM died: while=third; start the same command again: it continues from its state",
        "left False",
        "again 3",
    ], done.stderr
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr

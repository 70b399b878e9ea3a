"""Fault 41: an executor is stopped inside a task that is no step; Spark runs the task again; later the first attempt goes on.

Two executors of one host. The task stops between two of its transactions, and its JVM is stopped (SIGSTOP), so that Spark gives
the executor up and gives the task to the other one. When the pipeline has gone on, the first attempt does, and changes nothing.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dbsp.runtime.spark.runtime import SparkRuntime
from dbsp.runtime.spark.session import SparkHandle, SparkSettings, start
from dbsp.storage.durable import Durable
from dbsp.store import CheckpointId
from tests.spark.pipelines import Pipeline
from tests.spark.waiting import until
from tests.spark.wrapped_resources import Delegate, ancestor

pytestmark = [pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(900)]

GIVEN_UP_S = 20


@dataclass(frozen=True)
class StoppingResources(Delegate):
    """Stops the first task of the armed kind before its next transaction, until it is released."""

    folder: Path

    def arm(self, kind: str) -> None:
        for left in self.folder.glob("*"):
            left.unlink()
        self.folder.mkdir(exist_ok=True)
        os.mkfifo(self.folder / "release")
        (self.folder / "armed").write_text(kind)

    @contextmanager
    def at(self, kind: str) -> Iterator[None]:
        armed = self.folder / "armed"
        try:
            taken = armed.read_text() == kind
            if taken:
                armed.rename(self.folder / "taken")
        except FileNotFoundError:  # another attempt has come here before
            taken = False
        if not taken:
            yield
            return
        write = Durable.write

        def stopped(durable: Durable, *arguments: Any) -> Any:
            Durable.write = write  # type: ignore[method-assign]
            os.setpgid(
                0, 0
            )  # Spark ends a JVM that it has given up, and the JVM's daemon its group; who is late outlives both
            (self.folder / "pid").write_text(str(ancestor(2)))
            (self.folder / "pid").rename(self.folder / "reached")
            (self.folder / "release").read_text()
            return write(durable, *arguments)

        Durable.write = stopped  # type: ignore[method-assign]
        try:
            yield
        finally:
            Durable.write = write  # type: ignore[method-assign]
            (self.folder / "ended").touch()

    def database(self, worker: int, create: CheckpointId | None = None) -> Any:
        return StoppingDatabase(self.inner.database(worker, create), self, worker)

    def discard_database(self, worker: int, epoch: int, condemned: Any) -> None:
        with self.at("discard"):
            self.inner.discard_database(worker, epoch, condemned)


@dataclass(frozen=True)
class StoppingDatabase(Delegate):
    resources: StoppingResources
    worker: int

    def open(self, version: int, epoch: int) -> CheckpointId:
        with self.resources.at(f"open {self.worker}"):
            found: CheckpointId = self.inner.open(version, epoch)
            return found


@pytest.fixture(scope="module")
def two_executors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkHandle]:
    conf = {
        "spark.executor.memory": "512m", "spark.driver.memory": "512m", "spark.executor.heartbeatInterval": "2s",
        "spark.network.timeout": f"{GIVEN_UP_S}s",
    }  # fmt: skip
    settings = SparkSettings(
        master="local-cluster[2,1,600]", conf=conf, worker_silence_s=5.0, work_dir=tmp_path_factory.mktemp("spark")
    )
    handle = start(settings)
    yield handle
    handle.stop()


@contextmanager
def frozen(resources: StoppingResources, kind: str) -> Iterator[None]:
    """The first attempt of this task is stopped, and so is its JVM; at the end of the block it goes on, to its end."""
    resources.arm(kind)
    stopped: list[int] = []

    def stop() -> None:
        until((resources.folder / "reached").exists, f"{kind} is reached", 300)
        stopped.append(int((resources.folder / "reached").read_text()))
        os.kill(stopped[0], signal.SIGSTOP)

    watcher = threading.Thread(target=stop, daemon=True)
    watcher.start()
    try:
        yield
        watcher.join()
        assert stopped
    finally:
        release(resources.folder / "release")
        for pid in stopped:
            with suppress(ProcessLookupError):  # Spark has ended it
                os.kill(pid, signal.SIGCONT)
    until((resources.folder / "ended").exists, f"the first attempt of {kind} ends", 300)


def release(fifo: Path) -> None:
    """Let the first attempt go on; it must still be there."""
    with os.fdopen(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK), "w") as file:  # an error where nobody reads
        file.write("go on")


def push(pipeline: Pipeline, number: int) -> None:
    pipeline.push("customers", [(f"c{n}", f"city {n % 3}") for n in range(6)])
    pipeline.push("orders", [(100 * number + n, f"c{n % 6}", float(n)) for n in range(40)])


def test_an_executor_that_is_frozen_inside_open_and_discard(two_executors: SparkHandle, tmp_path: Path) -> None:
    """Spark's second attempt opens, the next version is out; then the first attempt goes on. So it is with a deletion."""
    sites: list[StoppingResources] = []

    def wrapped(resources: Any) -> StoppingResources:
        sites.append(StoppingResources(resources, tmp_path / "stops"))
        return sites[0]

    def make(work: Any) -> SparkRuntime:
        return SparkRuntime(work, SparkSettings(worker_silence_s=600.0), spark=two_executors)

    pipeline = Pipeline(tmp_path / "p", make, wrap_resources=wrapped)
    (resources,) = sites
    push(pipeline, 0)
    pipeline.run_step()
    pipeline.checkpoint()
    with frozen(resources, "open 1"):
        pipeline.new_epoch()
        push(pipeline, 1)
        pipeline.run_step()
        pipeline.checkpoint()
    assert held(pipeline) == {0: [1, 2], 1: [1, 2]}
    push(pipeline, 2)
    pipeline.run_step()

    with frozen(resources, "discard"):
        pipeline.rescale(1)
        pipeline.rescale(2)
        push(pipeline, 3)
        pipeline.run_step()
    assert 1 in held(pipeline)
    pipeline.checkpoint()
    assert all(versions[-1] == pipeline.version for versions in held(pipeline).values())
    pipeline.runtime.close()


def held(pipeline: Pipeline) -> dict[int, list[int]]:
    found = pipeline.runtime.versions(pipeline.layout.workers)
    return {worker: [info.version for info in infos] for worker, infos in found.items()}

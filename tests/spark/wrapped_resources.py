"""Worker resources that fail on purpose, once or always; picklable, so that the fault happens in a Spark worker."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dbsp.errors import DataError
from dbsp.logs import Changes, DeadLetter, Range
from dbsp.store import CheckpointId
from dbsp.zset.batch import Batch
from tests.spark import memory


@dataclass(frozen=True)
class Delegate:
    """Everything as the inner object has it."""

    inner: Any

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)


@dataclass(frozen=True)
class KillingResources(Delegate):
    """Kills a process at one point of one step of one worker, the first time it comes there.

    `victim` counts parents: 0 is the Python worker itself, 1 its daemon, 2 the JVM that runs it, 3 (local) the driver.
    `number` is the signal; a SIGSEGV is what a broken library would end with.
    """

    mark: Path
    point: str
    worker: int
    step: int
    victim: int = 0
    number: signal.Signals = signal.SIGKILL

    def at(self, point: str, worker: int, step: int) -> None:
        if (point, worker, step) == (self.point, self.worker, self.step) and not self.mark.exists():
            self.mark.touch()
            os.kill(ancestor(self.victim), self.number)

    def database(self, worker: int, create: CheckpointId | None = None) -> Any:
        return KillingDatabase(self.inner.database(worker, create), self, worker)

    def output_log(self, worker: int, first_step: int = 0, *, create: bool = False) -> Any:
        return KillingOutput(self.inner.output_log(worker, first_step, create=create), self, worker)


@dataclass(frozen=True)
class LateKillingResources(KillingResources):
    """As `KillingResources`, at the `times`-th time that the worker comes to the point: in a later round of a loop."""

    times: int = 2

    def at(self, point: str, worker: int, step: int) -> None:
        if (point, worker, step) != (self.point, self.worker, self.step) or self.mark.exists():
            return
        count = self.mark.with_suffix(".count")
        with count.open("ab") as file:
            file.write(b".")
        if count.stat().st_size == self.times:
            KillingResources.at(self, point, worker, step)


@dataclass(frozen=True)
class HaltingResources(Delegate):
    """Stops whoever comes first to an armed point, until it is released."""

    folder: Path

    def arm(self, point: str) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        os.mkfifo(self.folder / "release")
        (self.folder / "armed").write_text(point)

    def at(self, point: str, worker: int, step: int) -> None:
        armed = self.folder / "armed"
        try:
            if armed.read_text() != point:
                return
            armed.rename(self.folder / f"reached {worker} {step}")
        except FileNotFoundError:  # it was not armed, or another one is there already
            return
        (self.folder / "release").read_text()

    def reached(self) -> bool:
        return any(self.folder.glob("reached *"))

    def step(self) -> int:
        """The step in which somebody has come there."""
        (found,) = self.folder.glob("reached *")
        return int(found.name.split()[2])

    def release(self) -> None:
        (self.folder / "release").write_text("go on")

    def database(self, worker: int, create: CheckpointId | None = None) -> Any:
        return KillingDatabase(self.inner.database(worker, create), self, worker)

    def output_log(self, worker: int, first_step: int = 0, *, create: bool = False) -> Any:
        return KillingOutput(self.inner.output_log(worker, first_step, create=create), self, worker)


@dataclass(frozen=True)
class HoardingResources(Delegate):
    """Takes more memory than there is at one point of one step of one worker, the first `times` that it comes there.

    `ended`: under the limit of `tests.spark.memory`, so that the system ends the process; else its own limit refuses.
    """

    folder: Path
    point: str
    worker: int
    step: int
    times: int
    ended: bool = True

    def around(self, resources: Any) -> HoardingResources:
        return replace(self, inner=resources)

    def struck(self) -> int:
        return len(list(self.folder.glob("struck *")))

    def at(self, point: str, worker: int, step: int) -> None:
        if (point, worker, step) != (self.point, self.worker, self.step) or self.struck() == self.times:
            return
        (self.folder / f"struck {self.struck()}").touch(exist_ok=False)
        if self.ended:
            memory.enter(self.folder)
            memory.hoard()
        with memory.own_limit():
            memory.hoard()

    def database(self, worker: int, create: CheckpointId | None = None) -> Any:
        return KillingDatabase(self.inner.database(worker, create), self, worker)

    def output_log(self, worker: int, first_step: int = 0, *, create: bool = False) -> Any:
        return KillingOutput(self.inner.output_log(worker, first_step, create=create), self, worker)


def ancestor(generations: int) -> int:
    pid = os.getpid()
    for _ in range(generations):
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return pid


@dataclass(frozen=True)
class KillingDatabase(Delegate):
    resources: KillingResources | HaltingResources | HoardingResources
    worker: int
    steps: list[int] = field(default_factory=list)

    def begin(self, epoch: int, step: int, segment: int, traces: Any, *shared: Any) -> Any:
        self.steps.append(step)
        self.resources.at(f"segment {segment} begins", self.worker, step)
        return self.inner.begin(epoch, step, segment, traces, *shared)

    def state_bytes(self) -> int:
        self.resources.at("all done", self.worker, self.steps[-1])
        return int(self.inner.state_bytes())


@dataclass(frozen=True)
class KillingOutput(Delegate):
    resources: KillingResources | HaltingResources | HoardingResources
    worker: int

    def write(self, epoch: int, step: int, parts: Mapping[str, Batch], dead: Sequence[DeadLetter]) -> None:
        self.resources.at("before writing", self.worker, step)
        self.inner.write(epoch, step, parts, dead)
        self.resources.at("after writing", self.worker, step)


@dataclass(frozen=True)
class BrokenInput(Delegate):
    """Counts how often it is read, and never gives anything."""

    tries: Path

    def input_log(self) -> Any:
        return BrokenLog(self.inner.input_log(), self.tries)


@dataclass(frozen=True)
class BrokenLog(Delegate):
    tries: Path

    def read(self, range_: Range, step: int) -> Sequence[Changes]:
        with self.tries.open("a") as file:
            file.write("x")
        raise DataError(f"rows are gone: table={range_.table} step={step}", "restore them")


@dataclass(frozen=True)
class DearInput(Delegate):
    """An embedded log that background workers read ahead as they do Kafka's."""

    input_is_expensive: bool = True


@dataclass(frozen=True)
class DearOutput(Delegate):
    """An embedded log that one process alone may open, as if it were Kafka's."""

    output_is_expensive: bool = True

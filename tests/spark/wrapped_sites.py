"""Sites that fail on purpose, once or always; picklable, so that the fault happens in a Spark worker."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dbsp.errors import DataError
from dbsp.logs import Changes, DeadLetter, Range
from dbsp.store import CheckpointId
from dbsp.zset.batch import Batch


@dataclass(frozen=True)
class Delegate:
    """Everything as the inner object has it."""

    inner: Any

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)


@dataclass(frozen=True)
class KillingSite(Delegate):
    """Kills its process at one point of one step of one worker, the first time it comes there."""

    mark: Path
    point: str
    worker: int
    step: int

    def at(self, point: str, worker: int, step: int) -> None:
        if (point, worker, step) == (self.point, self.worker, self.step) and not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    def database(self, worker: int, create: CheckpointId | None = None) -> Any:
        return KillingDatabase(self.inner.database(worker, create), self, worker)

    def output_log(self, worker: int, first_step: int = 0) -> Any:
        return KillingOutput(self.inner.output_log(worker, first_step), self, worker)


@dataclass(frozen=True)
class KillingDatabase(Delegate):
    site: KillingSite
    worker: int

    def begin(self, epoch: int, step: int, segment: int, traces: Any) -> Any:
        self.site.at(f"segment {segment} begins", self.worker, step)
        return self.inner.begin(epoch, step, segment, traces)

    def state_bytes(self) -> int:
        self.site.at("all done", self.worker, self.inner.get_step() if self.site.step < 0 else self.site.step)
        return int(self.inner.state_bytes())


@dataclass(frozen=True)
class KillingOutput(Delegate):
    site: KillingSite
    worker: int

    def write(self, epoch: int, step: int, parts: Mapping[str, Batch], dead: Sequence[DeadLetter]) -> None:
        self.site.at("before writing", self.worker, step)
        self.inner.write(epoch, step, parts, dead)
        self.site.at("after writing", self.worker, step)


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

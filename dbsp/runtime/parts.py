"""Writing a worker's part of a step: by the task itself, or by its keeper where a writer is dear to make.

A transactional producer of Kafka costs a second to start, and Spark gives a worker's tasks now to this process, now to that
one: so the producer lives in the worker's keeper. A write is repeatable (the log compares and discards what it has), so where
the keeper is lost, in whatever state, the task writes by itself; the log's own fences decide between the two writers.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from dbsp.logs import DeadLetter, OutputLog
from dbsp.runtime.keeper import Job, KeeperLostError, Keepers, Kind, Task, finish
from dbsp.runtime.runtime import Site
from dbsp.zset.batch import Batch
from dbsp.zset.encoding import decode, encode

WAIT_S = 600.0


@runtime_checkable
class KeepsOutput(Protocol):
    """A site whose writers of outputs may live in keepers."""

    @property
    def output_is_dear(self) -> bool:
        """Whether they should."""
        ...

    def open_output(self, worker: int, first_step: int, create: bool = False) -> OutputLog:
        """A fresh handle on the worker's outputs, for one thread."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Whose part of which step, under which epoch; the worker's outputs begin at step `first`."""

    worker: int
    first: int
    epoch: int
    step: int


def write(
    keepers: Keepers | None, site: Site, place: Place, parts: Mapping[str, Batch], dead: Sequence[DeadLetter]
) -> None:
    """Write one step's part; durable on return. **Errors** those of `OutputLog.write`."""
    keeper = keepers.of(place.worker) if keepers is not None and keepers.apart else None
    if keeper is not None and isinstance(site, KeepsOutput) and site.output_is_dear:
        packed = [
            (name, part.schema, part.arrangement, np.frombuffer(encode(part), dtype=np.uint8))
            for name, part in parts.items()
        ]
        arguments = (site, place, packed, tuple(dead))
        job = Job(kind="write", key=str(place.step), epoch=place.epoch, arguments=arguments)
        try:
            keeper.start(job)
            finish(keeper, job, WAIT_S)
        except KeeperLostError:
            pass  # written by the task itself
        else:
            return
    site.output_log(place.worker, place.first).write(place.epoch, place.step, parts, dead)


def _write(task: Task, site: KeepsOutput, place: Place, packed: Sequence[Any], dead: Sequence[DeadLetter]) -> None:
    """In a keeper, which keeps the log and with it the producer; one writes at a time, and none that is not wanted any more."""
    parts = {name: decode(memoryview(data), schema, arrangement) for name, schema, arrangement, data in packed}
    with task.cache.get("output lock", threading.Lock):
        task.check()
        log = task.cache.get(("output", place.first), lambda: site.open_output(place.worker, place.first))
        log.write(place.epoch, place.step, parts, dead)


WRITE = Kind(run=_write)

"""Write a worker's part of a step: in the task, or in its background worker where a writer is expensive to make.

A transactional producer of Kafka takes a second to start, and Spark runs a worker's tasks in changing processes. So
the producer is in the worker's background worker. A write may be repeated, because the log compares a part with the one
that it has, and drops the repeat. So if the background worker is lost at any moment, the task writes the part itself.
The log's own fences decide between the two writers.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from dbsp.logs import DeadLetter, OutputLog
from dbsp.runtime.background import BackgroundLostError, BackgroundWorkers, Job, JobKind, Task, finish
from dbsp.runtime.runtime import WorkerResources
from dbsp.zset.batch import Batch
from dbsp.zset.encoding import decode, encode

WAIT_S = 600.0


@runtime_checkable
class KeepsOutput(Protocol):
    """Worker resources whose output writers may be in background workers."""

    @property
    def output_is_expensive(self) -> bool:
        """Return whether the writers should be in background workers, because they are expensive to open."""
        ...

    def open_output(self, worker: int, first_step: int, create: bool = False) -> OutputLog:
        """Open a new handle on the worker's outputs, for one thread."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputPlace:
    """A part's worker, epoch and step; the worker's outputs begin at step `first`."""

    worker: int
    first: int
    epoch: int
    step: int


def write(
    background: BackgroundWorkers | None,
    resources: WorkerResources,
    place: OutputPlace,
    parts: Mapping[str, Batch],
    dead: Sequence[DeadLetter],
) -> None:
    """Write one step's part; the part is durable on return. **Errors** those of `OutputLog.write`."""
    background_worker = background.of(place.worker) if background is not None and background.apart else None
    if background_worker is not None and isinstance(resources, KeepsOutput) and resources.output_is_expensive:
        packed = [
            (name, part.schema, part.arrangement, np.frombuffer(encode(part), dtype=np.uint8))
            for name, part in parts.items()
        ]
        arguments = (resources, place, packed, tuple(dead))
        job = Job(kind="write", key=str(place.step), epoch=place.epoch, arguments=arguments)
        try:
            background_worker.start(job)
            finish(background_worker, job, WAIT_S)
        except BackgroundLostError:
            pass  # written by the task itself
        else:
            return
    resources.output_log(place.worker, place.first).write(place.epoch, place.step, parts, dead)


def _write(
    task: Task, resources: KeepsOutput, place: OutputPlace, packed: Sequence[Any], dead: Sequence[DeadLetter]
) -> None:
    """Write a part in a background worker, which caches the log and its producer.

    One job writes at a time; a job that was cancelled while it waited does not write.
    """
    parts = {name: decode(memoryview(data), schema, arrangement) for name, schema, arrangement, data in packed}
    with task.cache.get("output lock", threading.Lock):
        task.check()
        log = task.cache.get(("output", place.first), lambda: resources.open_output(place.worker, place.first))
        log.write(place.epoch, place.step, parts, dead)


WRITE = JobKind(run=_write)

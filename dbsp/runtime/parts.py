"""Writing a worker's part of a step: by the task itself, or by its keeper where a writer is dear to make.

A transactional producer of Kafka costs a second to start, and Spark gives a worker's tasks now to this process, now to that
one: so the producer lives in the worker's keeper. A write is repeatable (the log compares and discards what it has), so where
the keeper is lost, in whatever state, the task writes by itself; the log's own fences decide between the two writers.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from dbsp.logs import DeadLetter, OutputLog
from dbsp.runtime.keeper import Job, KeeperLostError, Keepers, Kind, Task, finish
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


def write(
    keepers: Keepers | None, site: Any, worker: int, first: int, epoch: int, step: int,
    parts: Mapping[str, Batch], dead: Sequence[DeadLetter],
) -> None:  # fmt: skip
    """Write one step's part; durable on return. **Errors** those of `OutputLog.write`."""
    keeper = keepers.of(worker) if keepers is not None and keepers.apart else None
    if keeper is not None and isinstance(site, KeepsOutput) and site.output_is_dear:
        packed = [
            (name, part.schema, part.arrangement, np.frombuffer(encode(part), dtype=np.uint8))
            for name, part in parts.items()
        ]
        job = Job(kind="write", key=str(step), epoch=epoch, arguments=(site, first, epoch, step, packed, tuple(dead)))
        try:
            keeper.start(job)
            finish(keeper, job, WAIT_S)
        except KeeperLostError:
            pass  # written by the task itself
        else:
            return
    site.output_log(worker, first).write(epoch, step, parts, dead)


def _write(
    task: Task, site: KeepsOutput, first: int, epoch: int, step: int, packed: Sequence[Any], dead: Sequence[DeadLetter]
) -> None:
    """In a keeper, which keeps the log and with it the producer; one writes at a time, and none that is not wanted any more."""
    parts = {name: decode(memoryview(data), schema, arrangement) for name, schema, arrangement, data in packed}
    with task.cache.get("output lock", threading.Lock):
        task.check()
        task.cache.get(("output", first), lambda: site.open_output(task.worker, first)).write(epoch, step, parts, dead)


WRITE = Kind(run=_write)

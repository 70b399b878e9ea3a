"""Read ahead: while a step runs, background workers fetch and decode the input of the next step, whose record is
durable.

Where a worker stays from step to step and its input needs no background worker, the worker reads ahead itself. It
does so when its part of a step is done, and the other workers or the driver are not ready.

**Law** a read ahead returns the same rows as a read by the task: the ranges of a record name rows that never change.
A task takes the rows from its background worker if the read is complete. In every other case it reads the rows itself.

**Cost** the input of a step, at most `max_step_bytes` for all workers together, is held in memory until its step
takes it. The read of the next step may begin before that, so for a moment two inputs are held; a third one replaces
the oldest.

Left out: which step is next (the coordinator decides). Source: docs/concepts/steps.md, docs/design/0017.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np

from dbsp.errors import DbspError
from dbsp.layout import Layout
from dbsp.logs import Changes, DeadLetter, InputLog, Range, ReadsColumns, StepRecord
from dbsp.runtime.background import BackgroundWorker, BackgroundWorkers, Job, JobKind, Task, finish
from dbsp.zset.encoding import decode, encode
from dbsp.zset.schema import Schema

WAIT_S = 60.0
"""Seconds that a task waits at most for a read that its background worker has begun."""

Columns: TypeAlias = Mapping[str, frozenset[str]]
"""The columns that a step needs, by table; all columns of a table that is absent are read."""


@runtime_checkable
class OpensInput(Protocol):
    """Worker resources that can open a separate handle on the input log for a background worker."""

    def open_input(self) -> InputLog:
        """Open a new handle, for one thread."""
        ...


@runtime_checkable
class LiesNear(Protocol):
    """An input log whose rows are on a disk of this host, already as columns."""

    def touch(self, range_: Range) -> None:
        """Load a range into the host's memory."""
        ...


class HeldInput:
    """The rows of a step that a worker has read before it runs the step.

    **State** the rows, until their step takes them.
    """

    def __init__(self, step: int, ranges: Sequence[Range], changes: list[Changes]) -> None:
        """Hold the changes of these ranges, which are all that the worker reads in this step."""
        self._of, self._changes = (step, tuple(ranges)), changes

    def taken(self, step: int, ranges: Sequence[Range]) -> list[Changes] | None:
        """Return the changes, once; None if they are of another step, or of other ranges."""
        if self._of != (step, tuple(ranges)):
            return None
        changes, self._changes, self._of = self._changes, [], (-1, ())
        return changes


def ranges_of(ranges: Sequence[Range], layout: Layout, worker: int) -> tuple[Range, ...]:
    """Return the ranges of a step that a worker reads, in (table, partition, offset) order.

    **Law** each nonempty range is read by exactly one worker, whatever a log reports as its number of partitions. A
    broker may not know new partitions yet, and settings may name fewer than the record was made with.
    """
    mine = [r for r in ranges if r.first < r.last and layout.reader_of(r.table, r.partition) == worker]
    return tuple(sorted(mine, key=lambda r: (r.table, r.partition, r.first)))


def begin(
    background: BackgroundWorkers | None,
    resources: Any,
    worker: int,
    ranges: Sequence[Range],
    step: int,
    epoch: int,
    columns: Columns,
) -> None:
    """Let a worker's background worker read these columns of its input of a step; do nothing if that is not possible."""
    if background is None or not ranges or not isinstance(resources, OpensInput):
        return
    try:
        background_worker = background.of(worker)
        # `Changes.whole`, which reads the other columns on demand, cannot be sent between processes. So read all columns.
        needed = {} if background.apart else columns
        if background_worker is not None:
            background_worker.start(_job(ranges, step, epoch, (resources, ranges, step, needed)))
    except DbspError:
        return  # the task reads the rows itself, and raises the error if it lasts


def taken(
    background: BackgroundWorkers | None, worker: int, ranges: Sequence[Range], step: int, epoch: int
) -> list[Changes] | None:
    """Return the rows of a step that the worker's background worker has read; None if it has not read them."""
    background_worker = background.of(worker) if background is not None and ranges else None
    if background_worker is None:
        return None
    try:
        found: list[Changes] = finish(background_worker, _job(ranges, step, epoch), WAIT_S)
    except DbspError:
        return None  # the task reads the rows itself, and raises the error if it lasts
    return found


def forget(background: BackgroundWorkers | None, workers: Sequence[int], epoch: int) -> None:
    """Drop rows that were read for steps of older epochs, to free their memory; such reads would be refused anyway."""
    if background is None:
        return
    for worker in workers:
        with suppress(DbspError):
            background_worker = background.of(worker)
            if background_worker is not None:
                background_worker.wait(Job(kind="fetch", key="", epoch=epoch))


def _job(ranges: Sequence[Range], step: int, epoch: int, arguments: tuple[Any, ...] = ()) -> Job:
    digest = hashlib.blake2b(repr((step, tuple(ranges))).encode(), digest_size=16).hexdigest()
    return Job(kind="fetch", key=f"{step} {digest}", epoch=epoch, arguments=arguments)


def fetch(task: Task, resources: OpensInput, ranges: Sequence[Range], step: int, columns: Columns) -> list[Changes]:
    """Read and decode ranges, in a background worker; a cancelled read ends between two ranges."""
    lock = task.cache.get("input lock", threading.Lock)
    changes: list[Changes] = []
    with lock:  # a handle is for one thread, and a cancelled read may still be using it
        task.check()
        log = task.cache.get("input", resources.open_input)
        for number, range_ in enumerate(ranges):
            task.report(number, len(ranges))
            changes.extend(read(log, range_, step, columns))
    return changes


def read(log: InputLog, range_: Range, step: int, columns: Columns) -> Sequence[Changes]:
    """Return the changes of one range; leave unneeded columns unread where that saves work."""
    wanted = columns.get(range_.table)
    if wanted is None or not isinstance(log, ReadsColumns):
        return log.read(range_, step)
    return log.read_columns(range_, step, wanted)


def begin_touching(background_worker: BackgroundWorker, resources: Any, record: StepRecord, epoch: int) -> None:
    """Let all rows of a step be loaded into memory, if they are on this host; for tasks in other processes."""
    with suppress(DbspError):  # the tasks read the rows anyway, and raise the error if it lasts
        if isinstance(resources.input_log(), LiesNear):
            arguments = (resources, record.ranges)
            background_worker.start(Job(kind="touch", key=str(record.step), epoch=epoch, arguments=arguments))


def touch(task: Task, resources: Any, ranges: Sequence[Range]) -> None:
    """Load ranges into memory; end between two ranges when the next step's load begins."""
    log = resources.input_log()
    for range_ in ranges:
        task.check()
        log.touch(range_)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Packed:
    """Changes in the form that is sent between processes: the batch is bytes, which the receiver decodes in place."""

    table: str
    partition: int
    schema: Schema
    data: np.ndarray
    operations: np.ndarray
    offsets: np.ndarray
    dead: tuple[DeadLetter, ...]
    stored_bytes: int
    arrived_s: float | None


def _pack(changes: Sequence[Changes]) -> list[_Packed]:
    return [
        _Packed(
            table=change.table, partition=change.partition, schema=change.batch.schema,
            data=np.frombuffer(encode(change.batch), dtype=np.uint8), operations=change.operations,
            offsets=change.offsets, dead=change.dead, stored_bytes=change.stored_bytes, arrived_s=change.arrived_s,
        )
        for change in changes
    ]  # fmt: skip


def _unpack(packed: Sequence[_Packed]) -> list[Changes]:
    """Decode packed changes without a checksum check: the bytes have not left the host's memory since they were written."""
    return [
        Changes(
            table=each.table, partition=each.partition, batch=decode(each.data.data, each.schema, verify=False),
            operations=each.operations, offsets=each.offsets, dead=each.dead, stored_bytes=each.stored_bytes,
            arrived_s=each.arrived_s,
        )
        for each in packed
    ]  # fmt: skip


FETCH = JobKind(run=fetch, pack=_pack, unpack=_unpack, kept=2)
TOUCH = JobKind(run=touch)
"""The kind of job that loads a step's input into memory for tasks in other processes."""

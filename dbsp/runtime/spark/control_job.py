"""Run the small jobs around steps: create, fence, list versions, open, commit, take over, read a view, delete.

Each job runs one function per worker, on the worker's host, and returns a small value or a `TaskFailure` for each.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from dbsp.errors import DbspError
from dbsp.layout import Layout
from dbsp.runtime import tasks
from dbsp.runtime.spark.failures import TaskFailure, failure_of
from dbsp.runtime.spark.placement import drain, refuse_elsewhere
from dbsp.runtime.spark.shared import PackedWork, settle, unpack
from dbsp.runtime.work import Work
from dbsp.store import CheckpointId
from dbsp.zset.batch import Batch
from dbsp.zset.kernels.compile import compile_all

if TYPE_CHECKING:
    from pyspark import Broadcast

_IPC_ROWS = 1 << 18


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlTask:
    """A function of (work, worker, *arguments) to run for every worker of a list, on its host; a module-level function."""

    work: Broadcast[PackedWork]
    workers: tuple[int, ...]
    hosts: tuple[str, ...]
    function: Callable[..., Any]
    arguments: tuple[Any, ...]


def partial_of(task: ControlTask) -> Callable[[int, Iterable[int]], Iterator[tuple[int, Any] | TaskFailure]]:
    """Return the job's function: `run_control` for this task."""
    return partial(run_control, task)


def run_control(task: ControlTask, index: int, nothing: Iterable[int]) -> Iterator[tuple[int, Any] | TaskFailure]:
    """Run the task's function for one worker; yield the worker's number with the result, or the failure."""
    drain(nothing)
    worker = task.workers[index]
    try:
        work = unpack(task.work.value)
    except DbspError as error:
        yield failure_of(error, worker)
        return
    if not work.common_disk:
        refuse_elsewhere(task.hosts[index], worker)
    try:
        yield worker, task.function(work, worker, *task.arguments)
    except DbspError as error:
        yield failure_of(error, worker)


def view_bytes(work: Work, worker: int, view: str, epoch: int) -> bytes:
    """Return the worker's rows of a view as an Arrow stream, with their weights in the column `weight`."""
    part = tasks.view_part(work, worker, tasks.materialized_view(work.plan, view), epoch)
    table = part.to_arrow(weight_column="weight")
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=_IPC_ROWS)
    return bytes(sink.getvalue())


def view_batch(data: bytes, schema: Any) -> Batch:
    """Return a worker's rows of a view as a batch, from an Arrow stream with a `weight` column."""
    table = pa.ipc.open_stream(data).read_all()
    weights = table.column("weight").to_numpy().reshape(-1, 1)
    return Batch.from_arrow(table.drop_columns(["weight"]), schema, weights)


def open_version(work: Work, worker: int, version: int, epoch: int, layout: Layout) -> CheckpointId:
    """Open a version of the worker, and load the kernels that its steps need into this process."""
    load_kernels()
    if work.background is not None:
        work.background.prepare(worker)
    return tasks.open_version(work, worker, version, epoch, layout)


def warm(work: Work, worker: int) -> int:
    """Load the modules, the circuit and the kernels into this process; return a value that nothing uses."""
    load_kernels()
    return len(work.plan.nodes) + worker


@functools.cache
def load_kernels() -> int:
    """Load all compiled kernels, once per process, and return their number; the first step would load them one by one."""
    count = compile_all()
    settle("kernels")
    return count

"""One step as one Spark job: segment 0, an exchange, segment 1, ..., the last segment's reports.

    ground RDD (one empty partition per worker) ── segment 0 ── partitionBy ── segment 1 ── ... ── collect

A record of an exchange is (slot of the destination in `layout.workers`, parcel as bytes). Spark may run any task again at
any time; the tasks are `dbsp.runtime.tasks`, which allow it. The closure of a job holds the step record and no more: work
and layout are broadcast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from dbsp.errors import CapacityError, DbspError, InternalError
from dbsp.exchange import Parcel, from_bytes, to_bytes
from dbsp.layout import Layout
from dbsp.logs import StepRecord
from dbsp.runtime import tasks
from dbsp.runtime.runtime import WorkerReport
from dbsp.runtime.spark.failures import Failure, failure_from, failure_of, is_failure, worst
from dbsp.runtime.spark.placement import drain
from dbsp.runtime.spark.shared import PackedWork, settle, unpack

if TYPE_CHECKING:
    from pyspark import Broadcast
    from pyspark.core.rdd import RDD

PARCEL_BYTES_MAX = 1 << 30

Record = tuple[int, bytes]
Result = WorkerReport | Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTask:
    """What every task of one step is given; small, because it is pickled into each stage."""

    work: Broadcast[PackedWork]
    layout: Broadcast[Layout]
    record: StepRecord
    epoch: int

    def order(self) -> tasks.StepOrder:
        """The order that the segments take."""
        return tasks.StepOrder(record=self.record, epoch=self.epoch, layout=self.layout.value)


def slot(key: int) -> int:
    """The partitioner: keys are partition numbers. One function for all jobs, since Spark compares partitioners by it."""
    return key


def step_rdd(ground: RDD[int], task: StepTask, workers: int, segments: int) -> RDD[Result]:
    """The job of one step, not yet run; its elements are one report or failure per worker."""
    if segments == 1:
        return ground.mapPartitionsWithIndex(partial(only_segment, task))
    records: RDD[Record] = ground.mapPartitionsWithIndex(partial(first_segment, task))
    for segment in range(1, segments - 1):
        arrived = records.partitionBy(workers, slot)
        records = arrived.mapPartitionsWithIndex(partial(middle_segment, task, segment))
    return records.partitionBy(workers, slot).mapPartitionsWithIndex(partial(last_segment, task, segments - 1))


def only_segment(task: StepTask, index: int, nothing: Iterable[int]) -> Iterator[Result]:
    """The whole step of one worker, without an exchange."""
    drain(nothing)
    order = task.order()
    worker = order.layout.workers[index]
    yield _report(0, worker, lambda: tasks.run_first_segment(unpack(task.work.value), order, worker, _block))


def first_segment(task: StepTask, index: int, nothing: Iterable[int]) -> Iterator[Record]:
    """Segment 0 of one worker: its parcels, or its failure to everyone."""
    drain(nothing)
    order = task.order()
    worker = order.layout.workers[index]
    return _sent(
        order.layout, 0, worker, lambda: tasks.run_first_segment(unpack(task.work.value), order, worker, _block)
    )


def middle_segment(task: StepTask, segment: int, index: int, records: Iterable[Record]) -> Iterator[Record]:
    """A segment between two exchanges; a failure that arrives is passed on in the place of work."""
    order = task.order()
    worker = order.layout.workers[index]
    blocks = [block for _, block in records]
    failed = [failure_from(block) for block in blocks if is_failure(block)]
    if failed:
        return iter(enumerate([worst(failed).to_bytes()] * len(order.layout.workers)))
    return _sent(order.layout, segment, worker, lambda: _later(task, order, segment, worker, blocks))


def last_segment(task: StepTask, segment: int, index: int, records: Iterable[Record]) -> Iterator[Result]:
    """The segment that writes the outputs; its report, or the failure that arrived or happened."""
    order = task.order()
    worker = order.layout.workers[index]
    blocks = [block for _, block in records]
    failed = [failure_from(block) for block in blocks if is_failure(block)]
    if failed:
        yield worst(failed)
        return
    yield _report(segment, worker, lambda: _later(task, order, segment, worker, blocks))


def _later(
    task: StepTask, order: tasks.StepOrder, segment: int, worker: int, blocks: list[bytes]
) -> list[bytes] | WorkerReport:
    work = unpack(task.work.value)
    parcels = [from_bytes(block, work.plan) for block in blocks]
    return tasks.run_later_segment(work, order, segment, worker, parcels, _block)


def _sent(layout: Layout, segment: int, worker: int, run: Callable[[], list[bytes] | WorkerReport]) -> Iterator[Record]:
    """The records of a segment's parcels; of its failure, if it failed."""
    try:
        blocks = run()
        settle(f"segment {segment}")
        if isinstance(blocks, WorkerReport):
            raise InternalError(f"a segment before the last one ended its step: worker={worker}")
    except DbspError as error:
        blocks = [failure_of(error, worker).to_bytes()] * len(layout.workers)
    return iter(enumerate(blocks))


def _report(segment: int, worker: int, run: Callable[[], list[bytes] | WorkerReport]) -> Result:
    try:
        report = run()
        settle(f"segment {segment}")
    except DbspError as error:
        return failure_of(error, worker)
    if isinstance(report, WorkerReport):
        return report
    return failure_of(InternalError(f"the last segment of a step sent parcels: worker={worker}"), worker)


def _block(parcel: Parcel) -> bytes:
    """A parcel's bytes; Spark holds a record in one array, so it must stay well below 2 GiB."""
    block = to_bytes(parcel)
    if len(block) > PARCEL_BYTES_MAX:
        raise CapacityError(
            f"a parcel is too large for one exchange: bytes={len(block)} bytes_max={PARCEL_BYTES_MAX}"
            f" step={parcel.address.step} source={parcel.address.source} destination={parcel.address.destination}",
            "lower max_step_bytes",
        )
    return block

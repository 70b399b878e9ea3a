"""Run one step as one Spark job: segment 0, an exchange, segment 1, ..., the last segment's reports.

    ground RDD (one empty partition per worker) ── segment 0 ── partitionBy ── segment 1 ── ... ── collect

A step with a recursion takes several jobs: after each iteration the driver must know whether some worker has more to do. A job
that only inspects the parcels of an iteration leaves their shuffle files, and the next job starts from these files.

If every worker has a core of one host at the same time, resident tasks run many steps in one job instead. They exchange through
the driver without a shuffle, also within a recursion: see `dbsp.runtime.spark.task_server`.

    ground RDD ── (step: segment 0, exchange in the driver, segment 1, ... report) for step after step, one task per worker

A record of an exchange is (slot of the destination in `layout.workers`, parcel as bytes or the name of its file). Spark may run
any task again at any time; `dbsp.runtime.tasks` allows that. The job is the same for all steps of a layout, so that the driver
can build it before its step is known. Work and layout are broadcast. The step's record is a local property, which Spark passes
to every task of a job, also to a retried one. A resident task receives the record from the driver.
"""

from __future__ import annotations

import base64
import itertools
import pickle
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from pyspark import TaskContext

from dbsp.errors import CapacityError, DbspError, InternalError
from dbsp.layout import Layout
from dbsp.logs import StepRecord
from dbsp.plan.plan import Plan
from dbsp.runtime import tasks
from dbsp.runtime.ahead import HeldInput
from dbsp.runtime.loops import LoopPlace, ends_round, first_place, next_place, run_loop_segment
from dbsp.runtime.runtime import WorkerReport
from dbsp.runtime.spark.failures import TaskFailure, failure_from, failure_of, is_failure, worst
from dbsp.runtime.spark.moving_steps import Moving
from dbsp.runtime.spark.parcel_files import ParcelFiles, passed_on
from dbsp.runtime.spark.parcel_files import arrived as at_hand
from dbsp.runtime.spark.placement import drain, refuse_elsewhere, seated
from dbsp.runtime.spark.shared import PackedWork, settle, unpack
from dbsp.runtime.spark.task_server import COMES, TaskConnection, TurnedAwayError, joined
from dbsp.steps.exchange import Parcel, from_bytes, least_of, least_round, sections_of

if TYPE_CHECKING:
    from pyspark import Broadcast
    from pyspark.core.rdd import RDD

PARCEL_BYTES_MAX = 1 << 30
ORDER = "dbsp.step"
"""The local property with the record and the epoch of the step that a job runs, as `as_property` encodes them."""
TASK_CONNECTION = "dbsp.task_connection"
"""The local property with the number of a resident job, with which its tasks connect to the driver."""

Record = tuple[int, bytes]
Result = WorkerReport | TaskFailure


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTask:
    """The arguments of all tasks of a layout, or of one migration step; kept small, because Spark pickles them into each stage.

    `parcels` is where large parcels are written as files; None disables files. `announced` is the step, if the job's local
    property does not carry the step. `held` is the input that the worker has read for the step already.
    """

    work: Broadcast[PackedWork]
    layout: Broadcast[Layout]
    moving: Moving | None = None
    parcels: ParcelFiles | None = None
    announced: tuple[StepRecord, int] | None = None
    held: HeldInput | None = None

    def order(self, index: int) -> tasks.StepOrder:
        """Return the step order for the worker in this slot; fail if the task runs on another host and disks are not shared."""
        record, epoch = self.announced or _announced_by_job()
        layout, work = self.layout.value, unpack(self.work.value)
        if not work.common_disk:
            refuse_elsewhere(layout.hosts[index], layout.workers[index])
        moving = self.moving
        migration = None if moving is None else moving.of(layout.workers[index], work.plan)
        return tasks.StepOrder(record=record, epoch=epoch, layout=layout, migration=migration)

    def block(self, parcel: Parcel) -> bytes:
        """Return the bytes that the exchange carries for a parcel: the parcel, or the name of its file.

        **Errors** `CapacityError` above `PARCEL_BYTES_MAX`: Spark holds a record in one array, which must stay well below 2 GiB.
        """
        sections = sections_of(parcel)
        size = sum(map(len, sections))
        if size > PARCEL_BYTES_MAX:
            raise CapacityError(
                f"a parcel is too large for one exchange: bytes={size} bytes_max={PARCEL_BYTES_MAX}"
                f" step={parcel.address.step} source={parcel.address.source} destination={parcel.address.destination}",
                "lower max_step_bytes",
            )
        return passed_on(self.parcels, sections)


def _announced_by_job() -> tuple[StepRecord, int]:
    """Return the step that the job's local property names, with its epoch; `as_property` wrote the property."""
    announced: tuple[StepRecord, int] = pickle.loads(base64.b64decode(_property(ORDER)))  # noqa: S301  (made by this project's driver)
    return announced


def _property(name: str) -> str:
    """Return a local property of the job of this task. **Errors** `InternalError` if the property is absent."""
    context = TaskContext.get()
    value = context.getLocalProperty(name) if context is not None else None
    if value is None:
        raise InternalError(f"the job of a task does not name its step: property={name}")
    return str(value)


def as_property(record: StepRecord, epoch: int) -> str:
    """Return a step and its epoch as text for the local property `ORDER`."""
    return base64.b64encode(pickle.dumps((record, epoch))).decode()


def slot(key: int) -> int:
    """Return the key as the partition number.

    All jobs share this function, since Spark compares partitioners by it.
    """
    return key


def step_rdd(ground: RDD[int], task: StepTask, workers: int, plan: Plan, step: int) -> RDD[Result]:
    """Return the last job of one step, not yet run; its elements are one report or failure per worker.

    `step` matters only if the plan has loops: this function runs their iterations, as jobs of their own.
    **Errors** the worst failure of a loop's iteration.
    """
    if plan.segments == 1:
        return ground.mapPartitionsWithIndex(partial(only_segment, task))
    records: RDD[Record] = ground.mapPartitionsWithIndex(partial(first_segment, task))
    for segment in range(1, plan.segments):
        arrived = exchanged(records, task, workers)
        arrived, turn = _loops(arrived, task, workers, plan, segment - 1, step)
        if segment == plan.segments - 1:
            return arrived.mapPartitionsWithIndex(partial(last_segment, task, segment, turn))
        records = arrived.mapPartitionsWithIndex(partial(middle_segment, task, segment, turn))
    raise InternalError(f"a plan without a last segment: segments={plan.segments}")


def exchanged(records: RDD[Record], task: StepTask, workers: int) -> RDD[Record]:
    """Return the RDD of records shuffled to their destinations, each on the host of its worker.

    Spark would choose Kryo, and each task would build its own Kryo serializer, which costs more than passing small blocks. With
    large parcels in files the blocks are small, and Java's serializer suffices.
    """
    arrived = records.partitionBy(workers, slot)
    if task.parcels is not None:
        context: Any = records.context
        shuffled = arrived._jrdd.rdd().dependencies().head().rdd()
        shuffled.setSerializer(context._jvm.JavaSerializer(context._conf._jconf))
    return seated(arrived, task.layout.value.hosts, workers)


def _loops(
    arrived: RDD[Record], task: StepTask, workers: int, plan: Plan, depth: int, step: int
) -> tuple[RDD[Record], int]:
    """Run the loops after a segment, one job per turn; return the records that arrive after them and the number of turns."""
    turn = 0
    place = first_place(plan, depth, _least(arrived)) if plan.loops_after(depth) else None
    while place is not None:
        records: RDD[Record] = arrived.mapPartitionsWithIndex(partial(loop_segment, task, place))
        arrived = exchanged(records, task, workers)
        least = _least(arrived) if ends_round(plan, place) else None
        turn, place = place.turn + 1, next_place(plan, place, least, step)
    return arrived, turn


def _least(arrived: RDD[Record]) -> int | None:
    """Return the first iteration for which some worker has work, or None; raise the worst failure, if any."""
    found: list[int | TaskFailure] = arrived.mapPartitions(looked_at).collect()
    failures = [each for each in found if isinstance(each, TaskFailure)]
    if failures:
        raise worst(failures).error()
    return least_round(each for each in found if not isinstance(each, TaskFailure))


def looked_at(records: Iterable[Record]) -> Iterator[int | TaskFailure]:
    """Yield the least pending iteration of each parcel, or its failure; the driver needs nothing else of a parcel."""
    for _, block in records:
        yield failure_from(block) if is_failure(block) else least_of(at_hand(block))


def loop_segment(task: StepTask, place: LoopPlace, index: int, records: Iterable[Record]) -> Iterator[Record]:
    """Run one segment of one loop iteration and return the records for the next exchange."""

    def run(order: tasks.StepOrder, worker: int, parcels: list[Parcel]) -> list[bytes] | WorkerReport:
        return run_loop_segment(unpack(task.work.value), order, place, worker, parcels, task.block)

    return _passed_on(task, place.depth + 1, index, records, run)


def resident_task(task: StepTask, task_server: str, index: int, nothing: Iterable[int]) -> Iterator[Result]:
    """Run one worker's part of step after step, until the driver dismisses the task; return no elements.

    **Errors** as those of every segment: Spark then runs the task again. A task that the driver rejects ends without an error.
    """
    drain(nothing)
    report: tuple[int, bytes] | None = None
    held: HeldInput | None = None
    with suppress(TurnedAwayError), joined(task_server, int(_property(TASK_CONNECTION)), index) as connection:
        while (asked := connection.asked(report)) is not None:
            number, order = asked
            announced: tuple[StepRecord, int] = pickle.loads(order)  # noqa: S301  (made by this project's driver)
            if number == COMES:
                report, held = None, read_before(replace(task, announced=announced), index)
                continue
            # `held` serves the step after its announcement; `replace` drops the input with the step.
            mine = replace(task, announced=announced, held=held)
            result = whole_step(mine, partial(_met, connection, number, itertools.count()), index)
            report, held = (number, pickle.dumps(result)), None
    return iter(())


def read_before(task: StepTask, index: int) -> HeldInput | None:
    """Read the input of an announced step while the worker is idle; return None on an error, which the step itself reports."""
    with suppress(DbspError):
        order = task.order(index)
        return tasks.read_before(unpack(task.work.value), order, order.layout.workers[index])
    return None


Met: TypeAlias = Callable[[Iterable[Record]], list[Record]]
"""A function that sends a worker's records to all workers and returns the records that arrive at the worker."""


def whole_step(task: StepTask, met: Met, index: int) -> Result:
    """Run all segments of one worker, with an exchange after each but the last; return the report or the failure."""
    plan = unpack(task.work.value).plan
    last = plan.segments - 1
    if last == 0:
        return next(only_segment(task, index, ()))
    records = first_segment(task, index, ())
    try:
        for segment in range(1, last):
            arrived, turn = _rounds(task, met, plan, segment - 1, index, met(records))
            records = middle_segment(task, segment, turn, index, arrived)
        arrived, turn = _rounds(task, met, plan, last - 1, index, met(records))
    except DbspError as error:
        return failure_of(error, task.layout.value.workers[index])
    return next(last_segment(task, last, turn, index, arrived))


def _rounds(
    task: StepTask, met: Met, plan: Plan, depth: int, index: int, arrived: list[Record]
) -> tuple[list[Record], int]:
    """Run the loops after a segment; return the records that arrive after them and the number of turns.

    Each parcel carries the least pending iteration of its sender, or the sender's failure. Every worker gets one from every
    worker, so all take the same decision without asking the driver.
    **Errors** `CapacityError` on all workers, if a loop exceeds its limit of iterations.
    """
    turn, step = 0, task.order(index).record.step
    place = first_place(plan, depth, _least_here(arrived)) if plan.loops_after(depth) else None
    while place is not None and not any(is_failure(block) for _, block in arrived):
        arrived = met(loop_segment(task, place, index, arrived))
        turn, place = place.turn + 1, next_place(plan, place, _least_here(arrived), step)
    return arrived, turn


def _least_here(arrived: list[Record]) -> int | None:
    """Return the first iteration for which some worker has work, by the parcels that arrived, or None; skip failures."""
    return least_round(least_of(at_hand(block)) for _, block in arrived if not is_failure(block))


def _met(connection: TaskConnection, step: int, depths: Iterator[int], records: Iterable[Record]) -> list[Record]:
    """Exchange records with the other workers, as `Met` says.

    Exchanges are numbered in the order of their calls, which is the same on all workers.
    """
    return list(enumerate(connection.exchange(step, next(depths), [block for _, block in records])))


def only_segment(task: StepTask, index: int, nothing: Iterable[int]) -> Iterator[Result]:
    """Run a step of a plan without exchanges for one worker and yield its report or failure."""
    drain(nothing)
    order = task.order(index)
    worker = order.layout.workers[index]
    work, held = unpack(task.work.value), task.held
    yield _report(0, worker, lambda: tasks.run_first_segment(work, order, worker, task.block, held))


def first_segment(task: StepTask, index: int, nothing: Iterable[int]) -> Iterator[Record]:
    """Run segment 0 of one worker; return its parcels, or its failure for every worker."""
    drain(nothing)
    order = task.order(index)
    worker = order.layout.workers[index]
    work, held = unpack(task.work.value), task.held
    return _sent(order.layout, 0, worker, lambda: tasks.run_first_segment(work, order, worker, task.block, held))


def middle_segment(task: StepTask, segment: int, turn: int, index: int, records: Iterable[Record]) -> Iterator[Record]:
    """Run a segment between two exchanges; a failure that arrived is passed on instead."""
    return _passed_on(task, segment, index, records, partial(_later, task, segment, turn))


def _passed_on(
    task: StepTask,
    segment: int,
    index: int,
    records: Iterable[Record],
    run: Callable[[tasks.StepOrder, int, list[Parcel]], list[bytes] | WorkerReport],
) -> Iterator[Record]:
    """Run a segment on the parcels that arrived and return its records; if a failure arrived, return that for every worker."""
    order = task.order(index)
    worker = order.layout.workers[index]
    blocks = [block for _, block in records]
    failed = [failure_from(block) for block in blocks if is_failure(block)]
    if failed:
        return iter(enumerate([worst(failed).to_bytes()] * len(order.layout.workers)))
    return _sent(order.layout, segment, worker, lambda: run(order, worker, _parcels(task, blocks)))


def last_segment(task: StepTask, segment: int, turn: int, index: int, records: Iterable[Record]) -> Iterator[Result]:
    """Run the segment that writes the outputs; yield its report, or the failure that arrived or occurred."""
    order = task.order(index)
    worker = order.layout.workers[index]
    blocks = [block for _, block in records]
    failed = [failure_from(block) for block in blocks if is_failure(block)]
    if failed:
        yield worst(failed)
        return
    yield _report(segment, worker, lambda: _later(task, segment, turn, order, worker, _parcels(task, blocks)))


def _parcels(task: StepTask, blocks: list[bytes]) -> list[Parcel]:
    plan = unpack(task.work.value).plan
    return [from_bytes(at_hand(block), plan) for block in blocks]


def _later(
    task: StepTask, segment: int, turn: int, order: tasks.StepOrder, worker: int, parcels: list[Parcel]
) -> list[bytes] | WorkerReport:
    work = unpack(task.work.value)
    return tasks.run_later_segment(work, order, segment, worker, parcels, task.block, turn)


def _sent(layout: Layout, segment: int, worker: int, run: Callable[[], list[bytes] | WorkerReport]) -> Iterator[Record]:
    """Run a segment and return its parcels as records; on an error return the failure for every worker."""
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

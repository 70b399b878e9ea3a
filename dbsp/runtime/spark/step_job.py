"""One step as one Spark job: segment 0, an exchange, segment 1, ..., the last segment's reports.

    ground RDD (one empty partition per worker) ── segment 0 ── partitionBy ── segment 1 ── ... ── collect

A step with a recursion is several jobs: the driver must know, at the end of each round, whether some worker has more to do. A
job that only looks at the parcels of a round leaves their shuffle files behind, and the next job starts from these.

Where all workers have a core of one host at once, the tasks of one job stay for many steps instead, and exchange without a
shuffle, in the rounds of a recursion too: see `dbsp.runtime.spark.meetings`.

    ground RDD ── (step: segment 0, meeting, segment 1, ... report) again and again, for one worker in one task

A record of an exchange is (slot of the destination in `layout.workers`, parcel as bytes or the name of its file). Spark may run
any task again at any time; the tasks are `dbsp.runtime.tasks`, which allow it. A job is the same for all steps of a layout, so
that it can be built before its step is known: work and layout are broadcast, and the record comes as a local property, which
Spark hands to every task of a job, a repeated one too, or by the meeting.
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
from dbsp.runtime.spark.failures import Failure, failure_from, failure_of, is_failure, worst
from dbsp.runtime.spark.meetings import COMES, Meeting, TurnedAwayError, joined
from dbsp.runtime.spark.moving_steps import Moving
from dbsp.runtime.spark.parcel_files import ParcelFiles, passed_on
from dbsp.runtime.spark.parcel_files import arrived as at_hand
from dbsp.runtime.spark.placement import drain, refuse_elsewhere, seated
from dbsp.runtime.spark.shared import PackedWork, settle, unpack
from dbsp.steps.exchange import Parcel, from_bytes, least_of, least_round, sections_of

if TYPE_CHECKING:
    from pyspark import Broadcast
    from pyspark.core.rdd import RDD

PARCEL_BYTES_MAX = 1 << 30
ORDER = "dbsp.step"
"""The local property that holds a job's step."""
MEETING = "dbsp.meeting"
"""The local property that holds the number under which a job's tasks stand."""

Record = tuple[int, bytes]
Result = WorkerReport | Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTask:
    """What the tasks of all steps of a layout are given, or of one step of a migration; small: it is pickled into each stage.

    Large parcels lie in files, if there may be any (`dbsp.runtime.spark.parcel_files`). `told` is the step, where it does not
    come with the job; `held` what a worker has read of it already.
    """

    work: Broadcast[PackedWork]
    layout: Broadcast[Layout]
    moving: Moving | None = None
    parcels: ParcelFiles | None = None
    told: tuple[StepRecord, int] | None = None
    held: HeldInput | None = None

    def order(self, index: int) -> tasks.StepOrder:
        """The order that the segments of the worker at this place take."""
        record, epoch = self.told or _told_by_job()
        layout, work = self.layout.value, unpack(self.work.value)
        if not work.common_disk:
            refuse_elsewhere(layout.hosts[index], layout.workers[index])
        moving = self.moving
        migration = None if moving is None else moving.of(layout.workers[index], work.plan)
        return tasks.StepOrder(record=record, epoch=epoch, layout=layout, migration=migration)

    def block(self, parcel: Parcel) -> bytes:
        """What goes through the shuffle for a parcel; Spark holds a record in one array, so it must stay well below 2 GiB."""
        sections = sections_of(parcel)
        size = sum(map(len, sections))
        if size > PARCEL_BYTES_MAX:
            raise CapacityError(
                f"a parcel is too large for one exchange: bytes={size} bytes_max={PARCEL_BYTES_MAX}"
                f" step={parcel.address.step} source={parcel.address.source} destination={parcel.address.destination}",
                "lower max_step_bytes",
            )
        return passed_on(self.parcels, sections)


def _told_by_job() -> tuple[StepRecord, int]:
    """The step of a job, as `as_property` wrote it."""
    told: tuple[StepRecord, int] = pickle.loads(base64.b64decode(_property(ORDER)))  # noqa: S301  (made by this project's driver)
    return told


def _property(name: str) -> str:
    """What a job was told by a local property."""
    context = TaskContext.get()
    told = context.getLocalProperty(name) if context is not None else None
    if told is None:
        raise InternalError(f"a task of a step was not told which: property={name}")
    return str(told)


def as_property(record: StepRecord, epoch: int) -> str:
    """A step as the local property of its jobs."""
    return base64.b64encode(pickle.dumps((record, epoch))).decode()


def slot(key: int) -> int:
    """The partitioner: keys are partition numbers. One function for all jobs, since Spark compares partitioners by it."""
    return key


def step_rdd(ground: RDD[int], task: StepTask, workers: int, plan: Plan, step: int) -> RDD[Result]:
    """The last job of one step, not yet run; its elements are one report or failure per worker.

    Only where the plan has loops does it matter which step it is: their rounds are run here.
    **Errors** what went wrong in a round of a loop.
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
    """The records at their destinations, where these live.

    Spark would take Kryo for them, and each task would make its own anew, which costs more than to pass on small blocks. Where
    large ones lie in files, Java's own way of writing does.
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
    """Run the loops behind a segment, a job per round; what arrives behind them, and how many turns there were."""
    turn = 0
    place = first_place(plan, depth, _least(arrived)) if plan.loops_after(depth) else None
    while place is not None:
        records: RDD[Record] = arrived.mapPartitionsWithIndex(partial(loop_segment, task, place))
        arrived = exchanged(records, task, workers)
        least = _least(arrived) if ends_round(plan, place) else None
        turn, place = place.turn + 1, next_place(plan, place, least, step)
    return arrived, turn


def _least(arrived: RDD[Record]) -> int | None:
    """The first round for which some worker has work; the gravest failure, if there is one, is raised."""
    found: list[int | Failure] = arrived.mapPartitions(looked_at).collect()
    failures = [each for each in found if isinstance(each, Failure)]
    if failures:
        raise worst(failures).error()
    return least_round(each for each in found if not isinstance(each, Failure))


def looked_at(records: Iterable[Record]) -> Iterator[int | Failure]:
    """What the driver must know of the parcels."""
    for _, block in records:
        yield failure_from(block) if is_failure(block) else least_of(at_hand(block))


def loop_segment(task: StepTask, place: LoopPlace, index: int, records: Iterable[Record]) -> Iterator[Record]:
    """One segment of one round of a loop."""

    def run(order: tasks.StepOrder, worker: int, parcels: list[Parcel]) -> list[bytes] | WorkerReport:
        return run_loop_segment(unpack(task.work.value), order, place, worker, parcels, task.block)

    return _passed_on(task, place.depth + 1, index, records, run)


def standing_worker(task: StepTask, meetings: str, index: int, nothing: Iterable[int]) -> Iterator[Result]:
    """A worker for as long as its job stands: step after step, as the driver says; it has no elements.

    **Errors** what a task raises for Spark to run it again, as every segment does; who is turned away has nothing left to do.
    """
    drain(nothing)
    report: tuple[int, bytes] | None = None
    held: HeldInput | None = None
    with suppress(TurnedAwayError), joined(meetings, int(_property(MEETING)), index) as meeting:
        while (asked := meeting.asked(report)) is not None:
            number, order = asked
            told: tuple[StepRecord, int] = pickle.loads(order)  # noqa: S301  (made by this project's driver)
            if number == COMES:
                report, held = None, read_before(replace(task, told=told), index)
                continue
            mine = replace(task, told=told, held=held)
            result = whole_step(mine, partial(_met, meeting, number, itertools.count()), index)
            report, held = (number, pickle.dumps(result)), None
    return iter(())


def read_before(task: StepTask, index: int) -> HeldInput | None:
    """What a worker reads of a step that comes, while it has nothing else to do; what is wrong with it the step will meet."""
    with suppress(DbspError):
        order = task.order(index)
        return tasks.read_before(unpack(task.work.value), order, order.layout.workers[index])
    return None


Met: TypeAlias = Callable[[Iterable[Record]], list[Record]]
"""The records that arrive at a worker for those that it sends."""


def whole_step(task: StepTask, met: Met, index: int) -> Result:
    """All segments of one worker, which meets the others between them: its report, or a failure."""
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
    """The loops behind a segment; what arrives behind them, and how many turns there were.

    Every worker is told the least round of every other by the parcel that it gets from there, and a failure as well, so all
    decide alike where to go on.
    **Errors** `CapacityError` of a loop that goes on too long, on all workers.
    """
    turn, step = 0, task.order(index).record.step
    place = first_place(plan, depth, _least_here(arrived)) if plan.loops_after(depth) else None
    while place is not None and not any(is_failure(block) for _, block in arrived):
        arrived = met(loop_segment(task, place, index, arrived))
        turn, place = place.turn + 1, next_place(plan, place, _least_here(arrived), step)
    return arrived, turn


def _least_here(arrived: list[Record]) -> int | None:
    """The first round for which some worker has work, as the parcels of all say; failures say nothing."""
    return least_round(least_of(at_hand(block)) for _, block in arrived if not is_failure(block))


def _met(meeting: Meeting, step: int, depths: Iterator[int], records: Iterable[Record]) -> list[Record]:
    """See `Met`; exchanges are numbered as they come, which is the same on all workers."""
    return list(enumerate(meeting.exchange(step, next(depths), [block for _, block in records])))


def only_segment(task: StepTask, index: int, nothing: Iterable[int]) -> Iterator[Result]:
    """The whole step of one worker, without an exchange."""
    drain(nothing)
    order = task.order(index)
    worker = order.layout.workers[index]
    work, held = unpack(task.work.value), task.held
    yield _report(0, worker, lambda: tasks.run_first_segment(work, order, worker, task.block, held))


def first_segment(task: StepTask, index: int, nothing: Iterable[int]) -> Iterator[Record]:
    """Segment 0 of one worker: its parcels, or its failure to everyone."""
    drain(nothing)
    order = task.order(index)
    worker = order.layout.workers[index]
    work, held = unpack(task.work.value), task.held
    return _sent(order.layout, 0, worker, lambda: tasks.run_first_segment(work, order, worker, task.block, held))


def middle_segment(task: StepTask, segment: int, turn: int, index: int, records: Iterable[Record]) -> Iterator[Record]:
    """A segment between two exchanges; a failure that arrives is passed on in the place of work."""
    return _passed_on(task, segment, index, records, partial(_later, task, segment, turn))


def _passed_on(
    task: StepTask,
    segment: int,
    index: int,
    records: Iterable[Record],
    run: Callable[[tasks.StepOrder, int, list[Parcel]], list[bytes] | WorkerReport],
) -> Iterator[Record]:
    """What a worker makes of what arrived; a failure that arrives, in its place."""
    order = task.order(index)
    worker = order.layout.workers[index]
    blocks = [block for _, block in records]
    failed = [failure_from(block) for block in blocks if is_failure(block)]
    if failed:
        return iter(enumerate([worst(failed).to_bytes()] * len(order.layout.workers)))
    return _sent(order.layout, segment, worker, lambda: run(order, worker, _parcels(task, blocks)))


def last_segment(task: StepTask, segment: int, turn: int, index: int, records: Iterable[Record]) -> Iterator[Result]:
    """The segment that writes the outputs; its report, or the failure that arrived or happened."""
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

"""A loop inside a step: iterations of its body on every worker, until no worker has anything left to do.

Every change has a column with its iteration. So the order in which tasks run does not decide the iteration of a row. A
change for a later iteration, found in stored history, waits (`pending`) until no worker has work for an earlier one.

The state that a worker needs for the next task of the loop is sent in its parcel to itself (`Carried.loop_state`). So
every task is a function of the state as of step-1 and of its parcels, and may run again. Nothing is written before
the segment after the loop.

Source: docs/concepts/steps.md, design record 0010.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from dbsp.errors import CapacityError, InternalError
from dbsp.logs.step_commands import skipped_nodes
from dbsp.operators.iterations.histories import iterations_of
from dbsp.plan.backfill import backfill_of
from dbsp.plan.plan import LoopSpec, Plan
from dbsp.runtime.backfill import Emptied
from dbsp.runtime.loop_state import HELD, LEFT, PENDING, RETURN, TRACE, runs_of, without_round
from dbsp.runtime.moved import moved_over
from dbsp.runtime.profile import NodeProfile
from dbsp.runtime.tasks import StepOrder
from dbsp.runtime.work import Work
from dbsp.steps.error_policy import NodeFailure, judge
from dbsp.steps.exchange import Address, Carried, Parcel, Slot, check_arrival, gather, split
from dbsp.steps.segment import Arrived, SegmentResult, run_segment
from dbsp.store import StepTransaction, TraceSpec
from dbsp.trace.retention import RetentionBound
from dbsp.trace.spine import Spine
from dbsp.zset.batch import Batch, concat
from dbsp.zset.merge import merge

NOTHING = -1

Sent = TypeVar("Sent")
Parked = dict[Slot, Batch]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopPlace:
    """The position of a task in the loops between two segments; `turn` counts the tasks since the outer segment."""

    depth: int
    loop: int
    turn: int = 0
    iteration: int = 0
    segment: int = 0
    round: int = 0


def first_place(plan: Plan, depth: int, least: int | None) -> LoopPlace | None:
    """Return the first position in the loops after a segment; None if there are no loops, or no rows enter them."""
    loops = plan.loops_after(depth)
    return LoopPlace(depth=depth, loop=loops[0].id) if loops and least is not None else None


def ends_round(plan: Plan, place: LoopPlace) -> bool:
    """Return whether the position is the last of an iteration: the next one depends on the workers' least iterations."""
    return place.segment == plan.loops[place.loop].body.segments - 1


def next_place(plan: Plan, place: LoopPlace, least: int | None, step: int) -> LoopPlace | None:
    """Return the next position: the body's next segment or iteration, the next loop, or None for the outer plan.

    **Errors** `CapacityError` for a loop that needs more than `max_rounds` iterations; it names the loop's views.
    """
    loop, turn = plan.loops[place.loop], place.turn + 1
    if not ends_round(plan, place):
        return replace(place, turn=turn, segment=place.segment + 1)
    if least is None:
        rest = [other.id for other in plan.loops_after(place.depth) if other.id > loop.id]
        return LoopPlace(depth=place.depth, loop=rest[0], turn=turn) if rest else None
    if least > loop.max_rounds:
        views = ", ".join(loop.views)
        source = plan.nodes[loop.place].source
        raise CapacityError(
            f"a recursion did not reach a fixed point: views={views} max_rounds={loop.max_rounds} step={step}"
            + (f" line={source}" if source is not None else ""),
            "raise max_rounds= of dbsp.recursive if chains this long are meant; if rows grow without end (a counter, a sum"
            " along a cycle), bound them with a filter inside the recursion; if rows were deleted that were not there, what"
            " follows from them may have no answer: push those rows, or give the table a primary key",
        )
    return replace(place, turn=turn, iteration=place.iteration + 1, segment=0, round=least)


def run_loop_segment(
    work: Work,
    order: StepOrder,
    place: LoopPlace,
    worker: int,
    parcels: Sequence[Parcel],
    send: Callable[[Parcel], Sent],
) -> list[Sent]:
    """Run one segment of one iteration of a loop on one worker; return its sent parcels."""
    started = time.perf_counter()
    plan, loop = work.plan, work.plan.loops[place.loop]
    check_arrival(parcels, _address(work, order, place.depth, place.turn, worker, worker), order.layout)
    carried = next(p.carried for p in parcels if p.address.source == worker and p.carried is not None)
    loop_state: Parked = dict(carried.loop_state)
    failed = next(p.failed for p in parcels if p.address.source == worker)
    if place.turn == 0:
        judge(row for parcel in parcels for row in parcel.failed)
        failed = ()
        held = gather(parcels, plan, place.depth)
        loop_state.update({(HELD, number, 0): batch for number, batch in held.items() if len(batch)})
    arrived = _arrived(loop, place, parcels, loop_state)
    behind = place.depth + 1
    database = work.resources.database(worker)
    traces = plan.traces(behind)
    backfill = backfill_of(order.record.commands)
    with database.begin(order.epoch, order.record.step, behind, traces) as begun:
        transaction = moved_over(order.migration, worker, begun, traces)
        if backfill is not None:
            transaction = Emptied(transaction, backfill.kept)
        view = _Turn(transaction=transaction, loop_state=loop_state)
        result = _run(order, loop, place, arrived, view)
        view.settle()
        returned = _park(loop, place, result, loop_state)
        seconds = time.perf_counter() - started
        total = _figures(loop, replace(carried, loop_state=loop_state), result, seconds)
        failed += tuple(replace(row, node=loop.place, payload=without_round(row.payload)) for row in result.failed)
        return [send(p) for p in _parcels(work, order, place, worker, result, returned, total, failed=failed)]


def _arrived(loop: LoopSpec, place: LoopPlace, parcels: Sequence[Parcel], loop_state: Parked) -> Arrived:
    """Return the segment's input: rows that enter in the first iteration, rows due in this one, or rows sent in the body."""
    body = loop.body
    if place.segment:
        exchanges = gather(parcels, body, place.segment - 1)
        return Arrived(tables={}, exchanges=exchanges, later_round=place.iteration > 0)
    if place.iteration == 0:
        found = {inner: loop_state.get((HELD, outer, 0)) for outer, inner in loop.enters}
        return Arrived(tables={}, exchanges={number: batch for number, batch in found.items() if batch is not None})
    back = gather(parcels, body, body.segments - 1)
    for number in loop.returns:
        for due, rows in _by_round(back[number]):
            waits = loop_state.get((PENDING, number, due))
            loop_state[PENDING, number, due] = rows if waits is None else concat([waits, rows])
    due_now = {number: loop_state.pop((PENDING, number, place.round), None) for number in loop.returns}
    due_here = {number: batch for number, batch in due_now.items() if batch is not None}
    return Arrived(tables={}, exchanges=due_here, later_round=True)


def _by_round(batch: Batch) -> list[tuple[int, Batch]]:
    """Return the rows of each iteration."""
    rounds = iterations_of(batch)
    order = np.argsort(rounds, kind="stable")
    values, starts = np.unique(rounds[order], return_index=True)
    dealt = batch.loose().take(order)
    ends = [*starts.tolist()[1:], len(order)]
    return [(value, dealt.slice(a, b)) for value, a, b in zip(values.tolist(), starts.tolist(), ends, strict=False)]


def _run(order: StepOrder, loop: LoopSpec, place: LoopPlace, arrived: Arrived, turn: StepTransaction) -> SegmentResult:
    """Run the body's segment; a command to skip the loop's node in the plan skips all nodes of the body."""
    skipped: frozenset[int] = frozenset()
    if loop.place in skipped_nodes(order.record.commands):
        skipped = frozenset(node.id for node in loop.body.nodes)
    return run_segment(
        loop.body,
        place.segment,
        step=order.record.step,
        moment=order.record.moment,
        arrived=arrived,
        transaction=turn,
        skipped=skipped,
    )


@dataclass(slots=True)
class _Turn:
    """The loop's traces as of this turn: the state as of step-1, and the rows that earlier turns added."""

    transaction: StepTransaction
    loop_state: Parked
    done: bool = False
    added: list[tuple[int, Batch]] = field(default_factory=list)

    def spine(self, trace: TraceSpec) -> Spine:
        """Return the trace, with the runs of earlier turns."""
        spine = self.transaction.spine(trace)
        for _, run in runs_of(self.loop_state, trace.id):
            spine = spine.with_batch(run)
        return spine

    def append(self, trace: TraceSpec, batch: Batch, retention: RetentionBound | None = None) -> None:
        """Keep a batch for the next turn; raise if it has a retention bound: no bound is known to hold inside a loop."""
        if retention is not None:
            raise InternalError(f"a trace of a loop has a retention bound: trace={trace.id} retention={retention}")
        if len(batch):
            self.added.append((trace.id, batch))

    def settle(self) -> None:
        """Add this turn's batches to the loop state; merge each with runs that are less than twice as long."""
        for trace, batch in self.added:
            runs = runs_of(self.loop_state, trace)
            whole = batch
            while runs and len(runs[-1][1]) < 2 * len(whole):
                slot, run = runs.pop()
                del self.loop_state[slot]
                whole = merge(run, whole)
            if len(whole):
                self.loop_state[TRACE, trace, len(runs)] = whole

    def __enter__(self) -> _Turn:
        """Return this object: the wrapped transaction is entered already."""
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing: the caller leaves the wrapped transaction."""

    def finish(self) -> None:
        """Raise `InternalError`: nothing is written before the segment after the loop."""
        raise InternalError("a turn of a loop writes nothing")


def _park(loop: LoopSpec, place: LoopPlace, result: SegmentResult, loop_state: Parked) -> dict[int, Batch]:
    """Store rows of views and rows that wait to be sent back in the loop state; return the rows to send back now."""
    for inner, _ in loop.leaves:
        if inner in result.sent and len(result.sent[inner]):
            loop_state[LEFT, inner, place.turn] = result.sent[inner].loose()
    made = {number: result.sent[number] for number in loop.returns if number in result.sent}
    if place.segment < loop.body.segments - 1:
        loop_state.update({(RETURN, number, 0): batch for number, batch in made.items() if len(batch)})
        return {}
    waited = {number: loop_state.pop((RETURN, number, 0), None) for number in loop.returns}
    return made | {number: batch for number, batch in waited.items() if batch is not None}


def _figures(loop: LoopSpec, carried: Carried, result: SegmentResult, seconds: float) -> Carried:
    """Return the carried data with this turn's dead letters and figures; a node's figures are added up over the turns."""
    nodes = {profile.node: profile for profile in carried.nodes}
    for profile in result.nodes:
        number = loop.number(profile.node)
        before = nodes.get(number)
        nodes[number] = NodeProfile(
            node=number,
            rows_in=profile.rows_in + (before.rows_in if before else 0),
            rows_out=profile.rows_out + (before.rows_out if before else 0),
            seconds=profile.seconds + (before.seconds if before else 0.0),
            state_rows=before.state_rows if before else profile.state_rows,
            state_bytes=before.state_bytes if before else profile.state_bytes,
        )
    return replace(
        carried, dead=carried.dead + result.dead, nodes=tuple(nodes.values()), seconds=carried.seconds + seconds
    )


def _parcels(
    work: Work,
    order: StepOrder,
    place: LoopPlace,
    worker: int,
    result: SegmentResult,
    returned: Mapping[int, Batch],
    carried: Carried,
    *,
    failed: tuple[NodeFailure, ...],
) -> list[Parcel]:
    """Make one parcel per worker: rows inside the body, or at its end rows for the next iteration.

    Each parcel carries the failures of all turns so far. The segment after the loop judges them, because a row that
    fails in one iteration may be retracted in another.
    """
    loop = work.plan.loops[place.loop]
    sent = {**result.sent, **returned}
    last = ends_round(work.plan, place)
    shares = {
        spec.id: split(sent[spec.id], spec, order.owners)
        for spec in loop.body.exchanges
        if spec.depth == place.segment and spec.id in sent and not spec.local and (last or spec.id not in loop.returns)
    }
    rounds = [int(iterations_of(batch).min()) for batch in returned.values() if len(batch)]
    rounds += [slot[2] for slot in carried.loop_state if slot[0] == PENDING]
    return [
        Parcel(
            address=_address(work, order, place.depth, place.turn + 1, worker, destination),
            batches={number: share[slot] for number, share in shares.items() if len(share[slot])},
            carried=carried if destination == worker else None,
            least=min(rounds, default=NOTHING),
            failed=failed,
        )
        for slot, destination in enumerate(order.layout.workers)
    ]


def _address(work: Work, order: StepOrder, depth: int, turn: int, source: int, destination: int) -> Address:
    return Address(
        run=work.run, epoch=order.epoch, step=order.record.step, layout_version=order.layout.version,
        depth=depth, source=source, destination=destination, round=turn,
    )  # fmt: skip

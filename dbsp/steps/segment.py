"""One segment of one step on one worker: run the nodes in order, from what arrived to what is sent.

A pure function of (plan, segment, the state as of step-1, what arrived, the record's clock): a task that Spark runs twice
gives the same bytes twice (invariant 3). The state is reached through a `StepTransaction` alone, files and workers not at all.

Left out: where the inputs come from and where the parcels go (`dbsp.runtime.tasks`).
Source: docs/concepts/circuits.md and docs/concepts/steps.md.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from dbsp.errors import CapacityError, DbspError, InternalError
from dbsp.logs import DeadLetter
from dbsp.operators.integrate import integrate
from dbsp.operators.monotone_bounds import retention_bound
from dbsp.operators.operator import StepContext
from dbsp.plan.nodes import PlanNode
from dbsp.plan.plan import Plan
from dbsp.runtime.profile import NodeProfile
from dbsp.steps.error_policy import NodeFailure
from dbsp.steps.timing import Moment, Signal
from dbsp.store import StepTransaction
from dbsp.trace.manifest import PendingMerge, SpineState, state_bytes
from dbsp.trace.retention import RetentionBound
from dbsp.trace.spine import Spine
from dbsp.zset.batch import Batch, consolidate, no_rows_of
from dbsp.zset.sorted_keys import remembering

NOTHING_GIVEN: Mapping[int, Batch] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrived:
    """What a segment starts from: the tables' changes (segment 0) and the exchanges' rows (later ones).

    `whole` gives the same rows of a table of which columns that nobody needs were left unread, with all their columns.
    In a `later_round` of a loop nodes that get no rows do not run, as they answer nothing with nothing there, and the size of the
    state is not looked up again.
    """

    tables: Mapping[str, Batch]
    exchanges: Mapping[int, Batch]
    whole: Mapping[str, Callable[[], Batch]] = field(default_factory=dict)
    later_round: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentResult:
    """What a segment made: rows to send per exchange, the views' deltas, dead letters, figures per node.

    `failed` is what may be a reason not to take the step (`dbsp.steps.error_policy`).
    """

    sent: Mapping[int, Batch]
    views: Mapping[str, Batch]
    dead: tuple[DeadLetter, ...]
    nodes: tuple[NodeProfile, ...]
    signals: tuple[Signal, ...] = ()
    failed: tuple[NodeFailure, ...] = ()


@dataclass(frozen=True, slots=True)
class _NodeState:
    """The node's traces, by their index in the node; `changes` is what was added to each trace in this segment, by number."""

    node: PlanNode
    transaction: StepTransaction
    retentions: Mapping[int, RetentionBound]
    changes: dict[int, Batch]
    appended: set[int] = field(default_factory=set)

    def spine(self, index: int) -> Spine:
        return self.transaction.spine(self.node.traces[index])

    def retention_bound(self, index: int) -> RetentionBound | None:
        return self.retentions.get(index)

    def append(self, index: int, batch: Batch, retention: RetentionBound | None = None) -> None:
        if self.node.trace_owner(index) is not None:
            return  # its owner adds the same
        self.appended.add(index)
        self.changes[self.node.traces[index].id] = batch
        self._append(index, batch, retention or self.retention_bound(index))

    def arranged(self, inputs: tuple[Batch, ...]) -> tuple[Batch, ...]:
        """The inputs; what the owner of a borrowed trace has arranged already as it is there."""
        given = list(inputs)
        for index, integral in enumerate(self.node.operator.integrals()):
            trace = self.node.traces[index]
            if integral is None or self.node.trace_owner(index) in (None, self.node.id) or trace.id not in self.changes:
                continue
            if integral.only or not integral.left_out(trace.arrangement.schema):
                given[integral.stream] = self.changes[trace.id]
        return tuple(given)

    def _append(self, index: int, batch: Batch, retention: RetentionBound | None) -> None:
        if retention is None:
            self.transaction.append(self.node.traces[index], batch)
        else:
            self.transaction.append(self.node.traces[index], batch, retention)

    def settle(self) -> None:
        """Traces that got no rows are rid of closed ones all the same, and go on with merges under way.

        So what was deleted leaves the state although nothing more comes for its trace.
        """
        for index, trace in enumerate(self.node.traces):
            if index in self.appended or self.node.trace_owner(index) is not None:
                continue
            state, retention = self.spine(index).state, self.retention_bound(index)
            if (retention is not None and state.rows) or any(
                isinstance(entry, PendingMerge) for entry in state.entries
            ):
                nothing = no_rows_of(trace.arrangement)
                self._append(index, nothing, retention)


@remembering()
def run_segment(
    plan: Plan,
    segment: int,
    *,
    step: int,
    moment: Moment,
    arrived: Arrived,
    transaction: StepTransaction,
    skipped: frozenset[int] = frozenset(),
    given: Mapping[int, Batch] = NOTHING_GIVEN,
) -> SegmentResult:
    """Run one segment; at the `skipped` nodes rows that fail are dead letters whatever the error policy.

    Nodes that are `given` their change do not run.

    Under `stop` they are dead letters everywhere, and what failed elsewhere is told, for all workers to judge together.

    **State** each node's traces, read as of step-1 and appended to; materialized views are integrated here too.
    **Cost** the nodes' own; the views' deltas are consolidated, so that equal steps give equal bytes.
    **Errors** whatever a node raises, with the node, the step and the user's line added.
    """
    values: dict[int, Batch] = {}
    dead: list[DeadLetter] = []
    failed: list[NodeFailure] = []
    figures: list[NodeProfile] = []
    signals: list[Signal] = []
    changes: dict[int, Batch] = {}
    for node in plan.segment(segment):
        if node.id in given:
            values[node.id] = given[node.id]
            continue
        inputs = _inputs(plan, node, values, arrived)
        if arrived.later_round and not any(map(len, inputs)):
            values[node.id] = Batch.empty(node.schema)
            continue
        started = time.perf_counter()
        context = StepContext(
            number=step, moment=moment, depends_on=node.operator.depends_on_time, signals=signals,
            error_policy=plan.circuit.error_policy, whole=_whole(plan, node, arrived),
        )  # fmt: skip
        state = _NodeState(node, transaction, _retentions(node, moment), changes)
        values[node.id] = _run_node(node, context, inputs, state)
        if context.failures:
            if plan.circuit.error_policy == "stop" and node.id not in skipped:
                failed.extend(_unjudged(node, context))
            dead.extend(_dead_letters(node, context))
        seconds = time.perf_counter() - started
        kept = () if arrived.later_round else plan.state[node.id]
        figures.append(
            _profile(node, inputs, values[node.id], seconds, [transaction.spine(trace).state for trace in kept])
        )
    sent = {spec.id: values[spec.sender] for spec in plan.exchanges if spec.sender in values}
    views = _views(plan, segment, values, transaction)
    return SegmentResult(
        sent=sent, views=views, dead=tuple(dead), nodes=tuple(figures), signals=tuple(signals), failed=tuple(failed)
    )


def _inputs(plan: Plan, node: PlanNode, values: Mapping[int, Batch], arrived: Arrived) -> tuple[Batch, ...]:
    """What a node reads: the table's changes, what an exchange brought, or other nodes' values."""
    table = node.operator.reads_table()
    if table is not None:
        return (arrived.tables.get(table, Batch.empty(node.schema)),)
    spec = plan.arrivals.get(node.id)
    if spec is not None:
        found = arrived.exchanges.get(spec.id)
        return (found if found is not None else Batch.empty(spec.schema, spec.weights),)
    return tuple(values[number] for number in node.inputs)


def _whole(plan: Plan, node: PlanNode, arrived: Arrived) -> Callable[[], Batch] | None:
    """How the node's input is read with all columns, if it is a table of which some were left unread."""
    if not arrived.whole:
        return None
    read = (plan.nodes[number].operator.reads_table() for number in node.inputs)
    tables = [table for table in read if table is not None]
    return arrived.whole.get(tables[0]) if tables else None


def _run_node(node: PlanNode, context: StepContext, inputs: tuple[Batch, ...], state: _NodeState) -> Batch:
    """Return the node's change of the step; append to the node's traces."""
    step = context.number
    policy = "dead-letter" if context.error_policy == "stop" else context.error_policy
    try:
        told = context if policy == context.error_policy else replace(context, error_policy=policy)
        made = node.operator.step(told, state, state.arranged(inputs))
        state.settle()
        return made
    except DbspError as error:
        raise type(error)(f"{error.message} {_place(node, step)}", error.hint) from error
    except OverflowError as error:
        raise CapacityError(f"a number overflowed: {error} {_place(node, step)}") from error
    except Exception as error:
        raise InternalError(f"operator failed: {type(error).__name__}: {error} {_place(node, step)}") from error


def _retentions(node: PlanNode, moment: Moment) -> dict[int, RetentionBound]:
    """Below which retention bounds the node's traces need no rows any more."""
    bounds = {
        index: retention_bound(*kept, moment.waterlines) for index, kept in enumerate(node.closing) if kept is not None
    }
    return {index: retention for index, retention in bounds.items() if retention is not None}


def _unjudged(node: PlanNode, context: StepContext) -> Iterator[NodeFailure]:
    """What failed at the node, added up; rows that came too late leave the stream under every error policy."""
    sums: Counter[tuple[str, str]] = Counter()
    for failure in context.failures:
        if not failure.late:
            sums[failure.payload, failure.reason] += failure.weight
    for (payload, reason), weight in sums.items():
        if weight:
            yield NodeFailure(
                node=node.id, name=node.name, place=_place(node, context.number), payload=payload, reason=reason,
                weight=weight,
            )  # fmt: skip


def _dead_letters(node: PlanNode, context: StepContext) -> Iterator[DeadLetter]:
    """What failed at the node, added up: a row that comes and goes in one step is no letter."""
    sums: Counter[tuple[str, str]] = Counter()
    for failure in context.failures:
        sums[failure.payload, failure.reason] += failure.weight
    for (payload, reason), weight in sums.items():
        if weight:
            yield DeadLetter(
                step=context.number, origin=node.name, partition=-1, offset=-1, reason=reason, payload=payload,
                weight=weight,
            )  # fmt: skip


def _profile(
    node: PlanNode, inputs: tuple[Batch, ...], made: Batch, seconds: float, states: Sequence[SpineState]
) -> NodeProfile:
    """What the node did, and the state it keeps as of the step before, with that of the views made of it."""
    return NodeProfile(
        node=node.id,
        rows_in=sum(map(len, inputs)),
        rows_out=len(made),
        seconds=seconds,
        state_rows=sum(state.rows for state in states),
        state_bytes=sum(map(state_bytes, states)),
    )


def _views(plan: Plan, segment: int, values: Mapping[int, Batch], transaction: StepTransaction) -> dict[str, Batch]:
    """The consolidated deltas of the views made here; materialized ones are added to their trace."""
    found: dict[str, Batch] = {}
    for view in plan.views:
        if view.node not in values or plan.nodes[view.node].segment != segment:
            continue
        delta = values[view.node]
        if view.integrates and view.trace is not None:
            whole = integrate(delta, view.trace, transaction)
        else:
            whole = delta if delta.arrangement is not None else consolidate(delta)
        found[view.name] = whole
    return found


def _place(node: PlanNode, step: int) -> str:
    line = f" line={node.source}" if node.source is not None else ""
    return f"node={node.name} step={step}{line}"

"""Run one segment of one step on one worker: the nodes in order, from the arrived rows to the rows to send.

The result is a pure function of the plan, the segment, the state as of step-1, the arrived rows and the record's
clock. So a task that Spark runs twice gives the same bytes twice (invariant 3). The segment reads and writes state only
through a `StepTransaction`, and accesses no file and no other worker.

Left out: the source of the inputs and the transport of the parcels (`dbsp.runtime.tasks`). Source:
docs/concepts/circuits.md and docs/concepts/steps.md.
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
    """The inputs of a segment: the tables' changes (segment 0) and the exchanges' rows (later segments).

    If columns of a table that no node needs were not read, `whole` has a function that returns the same rows with all
    columns. In a `later_round` of a loop, an iteration after the first, nodes without input rows do not run, because they
    return no rows then. The segment does not measure the state again either.
    """

    tables: Mapping[str, Batch]
    exchanges: Mapping[int, Batch]
    whole: Mapping[str, Callable[[], Batch]] = field(default_factory=dict)
    later_round: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentResult:
    """The results of a segment: rows to send per exchange, the views' deltas, dead letters, figures per node.

    `failed` holds failures that may refuse the step (`dbsp.steps.error_policy`).
    """

    sent: Mapping[int, Batch]
    views: Mapping[str, Batch]
    dead: tuple[DeadLetter, ...]
    nodes: tuple[NodeProfile, ...]
    signals: tuple[Signal, ...] = ()
    failed: tuple[NodeFailure, ...] = ()


@dataclass(frozen=True, slots=True)
class _NodeState:
    """A node's traces by their index in the node; `changes` maps trace numbers to the rows that this segment added."""

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
            return  # the trace's owner adds the same rows
        self.appended.add(index)
        self.changes[self.node.traces[index].id] = batch
        self._append(index, batch, retention or self.retention_bound(index))

    def arranged(self, inputs: tuple[Batch, ...]) -> tuple[Batch, ...]:
        """Return the node's inputs, arranged where the owner of a borrowed trace has already arranged the same rows."""
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
        """Clean the node's traces that got no rows: drop closed rows, and continue the merges in progress.

        So deleted rows leave the state although no more rows arrive for its trace.
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
    """Run one segment and return its result; rows that fail at `skipped` nodes become dead letters under every error policy.

    Nodes whose change is `given` do not run. Under the policy `stop`, failed rows become dead letters at every node.
    The result also returns the failures of the nodes that are not skipped, and all workers judge these together.

    **State** each node's traces, read as of step-1 and appended to; materialized views are integrated here too.
    **Cost** the nodes' own, and the consolidation of the views' deltas, so that equal steps give equal bytes.
    **Errors** each error of a node, with the node, the step and the user's line added.
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
    """Return the batches that a node reads: the table's changes, an exchange's rows, or other nodes' values."""
    table = node.operator.reads_table()
    if table is not None:
        return (arrived.tables.get(table, Batch.empty(node.schema)),)
    spec = plan.arrivals.get(node.id)
    if spec is not None:
        found = arrived.exchanges.get(spec.id)
        return (found if found is not None else Batch.empty(spec.schema, spec.weights),)
    return tuple(values[number] for number in node.inputs)


def _whole(plan: Plan, node: PlanNode, arrived: Arrived) -> Callable[[], Batch] | None:
    """Return the function that reads the node's input with all columns, or None if its table has no unread columns."""
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
        own = context if policy == context.error_policy else replace(context, error_policy=policy)
        made = node.operator.step(own, state, state.arranged(inputs))
        state.settle()
        return made
    except DbspError as error:
        raise type(error)(f"{error.message} {_place(node, step)}", error.hint) from error
    except OverflowError as error:
        raise CapacityError(f"a number overflowed: {error} {_place(node, step)}") from error
    except Exception as error:
        raise InternalError(f"operator failed: {type(error).__name__}: {error} {_place(node, step)}") from error


def _retentions(node: PlanNode, moment: Moment) -> dict[int, RetentionBound]:
    """Return the retention bounds of the node's traces, by trace index; no later step reads rows below such a bound."""
    bounds = {
        index: retention_bound(*kept, moment.waterlines) for index, kept in enumerate(node.closing) if kept is not None
    }
    return {index: retention for index, retention in bounds.items() if retention is not None}


def _unjudged(node: PlanNode, context: StepContext) -> Iterator[NodeFailure]:
    """Yield the consolidated failures of the node, except late rows, which leave the stream under every error policy."""
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
    """Yield the consolidated failures of the node: an insert and a delete of one row within a step cancel out."""
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
    """Return the node's figures: the rows and the time of this step, and its state as of the step before.

    The state includes that of the views made from the node.
    """
    return NodeProfile(
        node=node.id,
        rows_in=sum(map(len, inputs)),
        rows_out=len(made),
        seconds=seconds,
        state_rows=sum(state.rows for state in states),
        state_bytes=sum(map(state_bytes, states)),
    )


def _views(plan: Plan, segment: int, values: Mapping[int, Batch], transaction: StepTransaction) -> dict[str, Batch]:
    """Return the consolidated deltas of the views made here; add those of materialized views to their trace."""
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

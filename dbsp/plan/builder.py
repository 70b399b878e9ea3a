"""Builds the physical graph: equal nodes are one node, and an exchange is added where rows are not on the right worker.

A `Flow` is the planner's knowledge of a stream: its node, its columns, its distribution, and its pending stages. The
distribution names the columns by whose hash the rows are distributed over the workers (None: unknown). The stages are filters
and projections that wait to be fused into one `Apply`.

Rows cross a segment only through an exchange. So a stream that is needed in a later segment is exchanged once per segment in
between. Each of these exchanges has the same key, which leaves each row on its worker.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from dbsp.diagnostics.source_lines import SourceLine
from dbsp.expr.expression import ColumnRef
from dbsp.operators.apply import Apply, Project, Stage
from dbsp.operators.monotone_bounds import MonotoneBounds
from dbsp.operators.operator import Operator
from dbsp.operators.receive import Receive
from dbsp.plan.nodes import BuiltLoop, ExchangeSpec, PlanNode
from dbsp.plan.shared_arrangements import SharedArrangements
from dbsp.store import TraceSpec
from dbsp.zset.schema import Arrangement, Schema

Key = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """A stream while the plan is made."""

    node: int
    schema: Schema
    distribution: Key | None
    stages: tuple[Stage, ...] = ()
    weights: int = 1

    def then(self, stage: Stage, distribution: Key | None) -> Flow:
        """Return the flow with one more filter or projection."""
        return replace(self, schema=stage.schema, stages=(*self.stages, stage), distribution=distribution)

    def pick(self, names: Key) -> Flow:
        """Return the flow with these columns alone, in this order."""
        if names == self.schema.names:
            return self
        schema = self.schema.select(names)
        distribution = self.distribution
        if distribution is not None and not set(distribution) <= set(names):
            distribution = None
        return self.then(Project(columns=tuple((name, ColumnRef(name)) for name in names), schema=schema), distribution)


@dataclass(slots=True)
class NextNumbers:
    """The next numbers of traces and exchanges, which a plan and the bodies of its loops share."""

    traces: int = 0
    exchanges: int = 0

    def exchange(self) -> int:
        """Return the number of a new exchange."""
        self.exchanges += 1
        return self.exchanges - 1


@dataclass(slots=True)
class Builder:
    """The nodes, exchanges and loops made so far; `prefix` begins the names of nodes of a loop's body."""

    nodes: list[PlanNode] = field(default_factory=list)
    exchanges: list[ExchangeSpec] = field(default_factory=list)
    loops: list[BuiltLoop] = field(default_factory=list)
    numbers: NextNumbers = field(default_factory=NextNumbers)
    prefix: str = ""
    monotone_bounds: dict[int, MonotoneBounds] = field(default_factory=dict)
    appending: set[int] = field(default_factory=set)
    shared: SharedArrangements = field(default_factory=SharedArrangements)
    _known: dict[tuple[Operator, tuple[int, ...]], int] = field(default_factory=dict)
    _received: dict[tuple[int, Key], int] = field(default_factory=dict)

    def add(
        self, kind: str, operator: Operator, inputs: tuple[int, ...], schema: Schema, source: SourceLine | None
    ) -> int:
        """Return the node with this operator and these inputs, which are in one segment; make the node if there is none."""
        known = self._known.get((operator, inputs))
        if known is not None:
            return known
        segment = self.nodes[inputs[0]].segment if inputs else 0
        made = self._append(kind, operator, inputs, segment, schema, source)
        self._known[(operator, inputs)] = made
        return made

    def _append(
        self,
        kind: str,
        operator: Operator,
        inputs: tuple[int, ...],
        segment: int,
        schema: Schema,
        source: SourceLine | None,
    ) -> int:
        number = len(self.nodes)
        monotone_bounds = [self.monotone_bounds.get(node, {}) for node in inputs]
        closing = operator.closing(monotone_bounds)
        traces, trace_owners = self.shared.traces(number, operator, inputs, closing, self.trace)
        self.monotone_bounds[number] = operator.monotone_bounds(monotone_bounds)
        if inputs and operator.only_adds([number in self.appending for number in inputs]):
            self.appending.add(number)
        self.nodes.append(
            PlanNode(id=number, name=f"{self.prefix}{kind}#{number}", operator=operator, inputs=inputs, segment=segment,
                     traces=traces, schema=schema, source=source, closing=closing, trace_owners=trace_owners)
        )  # fmt: skip
        return number

    def trace(self, arrangement: Arrangement) -> TraceSpec:
        """Return a new trace with the next number."""
        self.numbers.traces += 1
        return TraceSpec(id=self.numbers.traces - 1, arrangement=arrangement)

    def segment(self, flow: Flow) -> int:
        """Return the segment in which the flow is made."""
        return self.nodes[flow.node].segment

    def settle(self, flow: Flow, source: SourceLine | None) -> Flow:
        """Return the flow with its waiting stages turned into a node."""
        stages = fused(self.nodes[flow.node].schema, flow.stages)
        if not stages:
            return replace(flow, stages=())
        node = self.add("apply", Apply(stages=stages, schema=flow.schema), (flow.node,), flow.schema, source)
        return replace(flow, node=node, stages=())

    def arrival(self, flow: Flow, key: Key) -> int:
        """Return the first segment in which the flow can be distributed by the key."""
        return self.segment(flow) + (flow.distribution != key)

    def distribute(self, flow: Flow, key: Key, source: SourceLine | None, segment: int = 0) -> Flow:
        """Return the flow, distributed by the key, in its first possible segment that is not before `segment`."""
        flow = self.settle(flow, source)
        if flow.distribution != key:
            flow = self._exchange(flow, key, source)
        while self.segment(flow) < segment:
            flow = self._exchange(flow, key, source)
        return flow

    def together(self, flows: list[Flow], keys: list[Key], source: SourceLine | None) -> list[Flow]:
        """Return the flows, each distributed by its key, all in one segment."""
        segment = max(self.arrival(flow, key) for flow, key in zip(flows, keys, strict=True))
        return [self.distribute(flow, key, source, segment) for flow, key in zip(flows, keys, strict=True)]

    def lifted(self, flows: list[Flow], source: SourceLine | None) -> list[Flow]:
        """Return the flows in the segment of the last of them.

        A flow keeps its distribution; a flow that has to move and has none is distributed by all its columns.
        """
        last = max(map(self.segment, flows))
        moved = []
        for flow in flows:
            key = flow.schema.names if flow.distribution is None else flow.distribution
            moved.append(
                self.distribute(flow, key, source, last) if self.segment(flow) < last else self.settle(flow, source)
            )
        return moved

    def known(self) -> tuple[PlanNode, ...]:
        """Return the nodes, with the facts known of their rows: append-only, and bounded columns."""
        return tuple(
            replace(node, appends=node.id in self.appending, bounded=tuple(self.monotone_bounds.get(node.id, {})))
            for node in self.nodes
        )

    def receive(self, segment: int, schema: Schema, source: SourceLine | None) -> int:
        """Add a node that receives rows from an exchange or a loop."""
        return self._append("receive", Receive(), (), segment, schema, source)

    def _exchange(self, flow: Flow, key: Key, source: SourceLine | None) -> Flow:
        """Send the flow to the owners of the key; equal senders and keys share one exchange."""
        receiver = self._received.get((flow.node, key))
        if receiver is None:
            depth = self.segment(flow)
            receiver = self.receive(depth + 1, flow.schema, source)
            self._received[(flow.node, key)] = receiver
            self.monotone_bounds[receiver] = self.monotone_bounds[flow.node]
            if flow.node in self.appending:
                self.appending.add(receiver)
            lifted = flow.distribution == key and not self.prefix
            if lifted:
                self.shared.lifted(flow.node, receiver)
            self.exchanges.append(
                ExchangeSpec(id=self.numbers.exchange(), depth=depth, sender=flow.node, receiver=receiver, key=key,
                             schema=flow.schema, weights=flow.weights, lifted=lifted)
            )  # fmt: skip
        return replace(flow, node=receiver, distribution=key)


def fused(schema: Schema, stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
    """Return the stages without those that change nothing, and with picks of columns folded into the projection before them."""
    made: list[Stage] = []
    for stage in stages:
        if isinstance(stage, Project) and stage.is_plain and made and isinstance(made[-1], Project):
            before = dict(made[-1].columns)
            columns = tuple((name, value.substitute(before)) for name, value in stage.columns)
            stage = Project(columns=columns, schema=stage.schema)  # noqa: PLW2901 (the fused stage takes its place)
            made.pop()
        if not _changes_nothing(made[-1].schema if made else schema, stage):
            made.append(stage)
    return tuple(made)


def _changes_nothing(schema: Schema, stage: Stage) -> bool:
    """Return whether a stage emits exactly the columns that it reads."""
    if not isinstance(stage, Project) or stage.schema != schema:
        return False
    return stage.columns == tuple((name, ColumnRef(name)) for name in schema.names)

"""The plan of a circuit: physical nodes in order, cut into segments at the exchanges.

Segment s runs between the exchanges of depth s-1 and s; all exchanges at one depth travel in one shuffle. A node reads nodes
of its own segment only; rows that cross a segment boundary pass an `ExchangeSpec`. Trace numbers, exchange numbers and node
numbers depend on the circuit alone. So they are the same in each process and each version that has the same fingerprint.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import pyarrow as pa

from dbsp.algebra.table import Table
from dbsp.circuit.circuit import Circuit
from dbsp.operators.operator import Shows, TableTime
from dbsp.plan.nodes import ExchangeSpec, PlanNode
from dbsp.store import TraceSpec
from dbsp.zset.schema import Schema

LOOP_NODES_MAX = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopSpec:
    """A recursion: a plan of its own that runs once per iteration between segments `depth` and `depth + 1` (record 0010).

    `enters` and `leaves` pair exchanges of the outer plan and of the body: the inputs, and the changes of the views. `returns`
    are the body's exchanges that bring each view's rows back for the next iteration. `place` is the outer node of the first view.
    """

    id: int
    depth: int
    views: tuple[str, ...]
    place: int
    max_rounds: int
    enters: tuple[tuple[int, int], ...]
    leaves: tuple[tuple[int, int], ...]
    returns: tuple[int, ...]
    body: Plan

    def number(self, node: int) -> int:
        """Return the number of a node of the body in metrics of all nodes; always negative, unlike those of the outer plan."""
        return -1 - (self.id * LOOP_NODES_MAX + node)


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewSpec:
    """A view: the node whose delta is the view's output, and the trace that holds it (None: not materialized).

    The trace integrates the view's changes. With `shows`, it is instead a trace that the node has anyway, and the operator
    `shows` reads the view from it. With `keyed_by` all rows of a key, in these columns, are made by one worker.
    """

    name: str
    node: int
    schema: Schema
    trace: TraceSpec | None
    shows: Shows | None = None
    keyed_by: tuple[str, ...] = ()

    @property
    def home(self) -> tuple[tuple[str, pa.DataType], ...] | None:
        """Return names and types of the columns that decide which worker has a row; None if the view is not materialized."""
        if self.trace is None:
            return None
        form = self.trace.arrangement
        return tuple((name, form.schema[name].type) for name in form.key)

    @property
    def integrates(self) -> bool:
        """Return whether the view's changes must be added to its trace."""
        return self.trace is not None and self.shows is None


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The executable form of a circuit; `nodes` is in topological order, `segments` = deepest exchange + 2 (1 without exchange).

    Under the error policy `stop` there may be one more segment, without nodes: see `dbsp.steps.error_policy`. Properties that
    each step reads are computed once and cached. They are part neither of the plan's value nor of its bytes.
    """

    circuit: Circuit
    nodes: tuple[PlanNode, ...]
    exchanges: tuple[ExchangeSpec, ...]
    views: tuple[ViewSpec, ...]
    tables: tuple[Table, ...]
    segments: int
    fingerprint: str
    loops: tuple[LoopSpec, ...] = ()

    def loops_after(self, segment: int) -> tuple[LoopSpec, ...]:
        """Return the loops that run between this segment and the next one, in order."""
        return tuple(loop for loop in self.loops if loop.depth == segment)

    @property
    def watermarks(self) -> tuple[int, ...]:
        """Return the nodes that have a waterline."""
        return tuple(node.id for node in self.nodes if node.operator.watermark() is not None)

    @cached_property
    def event_times(self) -> Mapping[int, TableTime]:
        """Return the watermarks of tables, which have one waterline per input partition."""
        found = ((node.id, node.operator.watermark()) for node in self.nodes)
        return {
            number: watermark.time
            for number, watermark in found
            if watermark is not None and watermark.time is not None
        }

    def segment(self, index: int) -> tuple[PlanNode, ...]:
        """Return the nodes of one segment, in order."""
        return self._segments.get(index, ())

    @cached_property
    def _segments(self) -> Mapping[int, tuple[PlanNode, ...]]:
        found: dict[int, tuple[PlanNode, ...]] = {}
        for node in self.nodes:
            found[node.segment] = (*found.get(node.segment, ()), node)
        return found

    @cached_property
    def arrivals(self) -> Mapping[int, ExchangeSpec]:
        """Return the exchanges by the nodes that receive their rows."""
        return {spec.receiver: spec for spec in self.exchanges}

    @cached_property
    def state(self) -> Mapping[int, tuple[TraceSpec, ...]]:
        """Return the traces of each node: those that it adds to, and those of the views made of it."""
        views = [(view.node, view.trace) for view in self.views if view.integrates and view.trace is not None]
        return {node.id: (*node.own, *(trace for at, trace in views if at == node.id)) for node in self.nodes}

    def traces(self, segment: int) -> tuple[TraceSpec, ...]:
        """Return the traces that one segment writes: those of its nodes, of the views made in it, and of the loops before it."""
        return self._traces[segment]

    @cached_property
    def _traces(self) -> Sequence[tuple[TraceSpec, ...]]:
        return [self._traces_of(segment) for segment in range(self.segments)]

    def _traces_of(self, segment: int) -> tuple[TraceSpec, ...]:
        own = [trace for node in self.segment(segment) for trace in node.own]
        own += [trace for loop in self.loops_after(segment - 1) for trace in loop.body.all_traces()]
        views = [view for view in self.views if view.integrates and self.nodes[view.node].segment == segment]
        own += [view.trace for view in views if view.trace is not None]
        return tuple(sorted(own, key=lambda trace: trace.id))

    def shared(self, segment: int) -> Mapping[int, tuple[TraceSpec, ...]]:
        """Return the traces that a segment reads and other segments write, by the segment that writes them."""
        found: dict[int, dict[int, TraceSpec]] = {}
        for node in self.segment(segment):
            for trace, trace_owner in zip(node.traces, node.trace_owners, strict=False):
                if trace_owner is not None and self.nodes[trace_owner].segment != segment:
                    found.setdefault(self.nodes[trace_owner].segment, {})[trace.id] = trace
        return {of: tuple(traces.values()) for of, traces in sorted(found.items())}

    def all_exchanges(self) -> tuple[ExchangeSpec, ...]:
        """Return each exchange of the plan and of its loops."""
        return (*self.exchanges, *(spec for loop in self.loops for spec in loop.body.exchanges))

    def all_traces(self) -> tuple[TraceSpec, ...]:
        """Return each trace of the plan, by number."""
        return self._all_traces

    @cached_property
    def _all_traces(self) -> tuple[TraceSpec, ...]:
        found = [trace for index in range(self.segments) for trace in self.traces(index)]
        return tuple(sorted(found, key=lambda trace: trace.id))

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields without cached properties, so that equal plans have equal bytes."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

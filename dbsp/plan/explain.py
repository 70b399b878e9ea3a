"""Writes a plan as text: the nodes of each segment, their traces, and the exchanges of their rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePath
from types import MappingProxyType

from dbsp.plan.nodes import PlanNode
from dbsp.plan.plan import LoopSpec, Plan, ViewSpec
from dbsp.store import TraceSpec
from dbsp.zset.schema import Schema


def explain(plan: Plan) -> str:
    """Return the plan as text.

    Each node has a line with its number, its operator, its inputs and the user's line. Its traces and exchanges follow.

    **Example**

    >>> import dbsp
    >>> from dbsp.plan.planner import plan
    >>> t = dbsp.table("t", {"k": dbsp.STRING, "x": dbsp.INT64})
    >>> tall = dbsp.circuit("demo", {"tall": t.filter(dbsp.col("x") > 1).select("k")}, materialize=False)
    >>> print("\\n".join(line.split("  at ")[0] for line in explain(plan(tall)).splitlines()))
    plan demo: segments=1 exchanges=0 traces=0
    segment 0
      #0 source t (k: string, x: int64)
      #1 filter (x > 1); select k of #0 (k: string)
      view tall is #1
    """
    head = f"segments={plan.segments} exchanges={len(plan.exchanges)} traces={len(plan.all_traces())}"
    lines = [f"plan {plan.circuit.name}: {head}"]
    for segment in range(plan.segments):
        judges = "" if plan.segment(segment) else ": rows that failed before it end the step"
        lines.append(f"segment {segment}{judges}")
        for node in plan.segment(segment):
            lines.extend(f"  {line}" for line in _node(plan, node))
        for loop in plan.loops_after(segment):
            lines.extend(f"  {line}" for line in _loop(loop))
    return "\n".join(lines)


def _loop(loop: LoopSpec) -> Iterator[str]:
    """Yield the lines of a recursion: its inputs and outputs, and the nodes that run in each iteration."""
    yield f"loop {loop.id} of {', '.join(loop.views)}, at most {loop.max_rounds} rounds; each round:"
    enters = {inner: f"exchange {outer} in the first round" for outer, inner in loop.enters}
    leaves = {inner: f"    leaves by exchange {outer}" for inner, outer in loop.leaves}
    senders = {spec.sender: leaves[spec.id] for spec in loop.body.exchanges if spec.id in leaves}
    for segment in range(loop.body.segments):
        yield f"  segment {segment} of the loop"
        for node in loop.body.segment(segment):
            yield from (f"    {line}" for line in _node(loop.body, node, enters, f"@{loop.id}."))
            if node.id in senders:
                yield f"    {senders[node.id]}"


def _node(
    plan: Plan, node: PlanNode, enters: Mapping[int, str] = MappingProxyType({}), mark: str = "#"
) -> Iterator[str]:
    """Yield the node's line, then, indented, its traces, exchanges and views; `enters` names exchanges into a loop.

    Numbers begin with `mark`: `#3` is a node of the plan, `@0.3` is a node of the body of loop 0.
    """
    arrived = [enters.get(spec.id, f"exchange {spec.id}") for spec in plan.exchanges if spec.receiver == node.id]
    inputs = arrived or [f"{mark}{number}" for number in node.inputs]
    of = f" of {', '.join(inputs)}" if inputs else ""
    line = "" if node.source is None else f"  at {PurePath(node.source.file).name}:{node.source.line}"
    yield f"{mark}{node.id} {node.operator}{of} {_columns(node.schema)}{_facts(node)}{line}"
    closing = node.closing or (None,) * len(node.traces)
    for index, (trace, closed) in enumerate(zip(node.traces, closing, strict=True)):
        trace_owner = node.trace_owner(index)
        kept = (
            _trace(trace) if trace_owner is None else _borrowed(trace, f"{mark}{trace_owner}", trace_owner == node.id)
        )
        yield f"    {kept}{'' if closed is None else f' until {closed[0]} is closed'}"
    for exchange in plan.exchanges:
        if exchange.sender == node.id and exchange.local and exchange.depth >= 0:
            yield f"    exchange {exchange.id} into a loop"
        elif exchange.sender == node.id and not exchange.local:
            weights = f" weights={exchange.weights}" if exchange.weights > 1 else ""
            yield f"    exchange {exchange.id} by ({', '.join(exchange.key)}) to {mark}{exchange.receiver}{weights}"
    for view in plan.views:
        if view.node == node.id:
            yield f"view {view.name} is #{node.id}{_kept(view)}"


def _kept(view: ViewSpec) -> str:
    """Return the text that names the trace of a view's rows; empty if the view is not materialized."""
    if view.trace is None:
        return ""
    return f", {_trace(view.trace)}" if view.integrates else f", shown by trace {view.trace.id}"


def _facts(node: PlanNode) -> str:
    """Return the text of the facts known of all future rows: append-only, and the columns by which they close."""
    bounded = f" closes by {', '.join(node.bounded)}" if node.bounded else ""
    return (" append-only" if node.appends else "") + bounded


def _columns(schema: Schema) -> str:
    return "(" + ", ".join(f"{column.name}: {column.type}" for column in schema) + ")"


def _borrowed(trace: TraceSpec, trace_owner: str, itself: bool) -> str:
    """Return the text of a trace that another node adds to, or that this node has under another index."""
    if itself:
        return f"trace {trace.id} again"
    return f"trace {trace.id} of {trace_owner}, by ({', '.join(trace.arrangement.key)})"


def _trace(trace: TraceSpec) -> str:
    """Return the text of a trace: number, key, order, columns, weights per row."""
    arrangement = trace.arrangement
    order = "".join(f" order {by.column}{' desc' if by.descending else ''}" for by in arrangement.order[:1])
    rest = [name for name in arrangement.schema.names if name not in arrangement.key]
    values = f" with ({', '.join(rest)})" if rest else ""
    weights = f" weights={arrangement.weights}" if arrangement.weights > 1 else ""
    return f"trace {trace.id} by ({', '.join(arrangement.key)}){order}{values}{weights}"

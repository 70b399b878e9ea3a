"""A plan as text: the nodes of every segment, what they keep, where their rows go."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

from dbsp.operators.apply import Apply
from dbsp.operators.combine import Combine
from dbsp.operators.distinct_part import DistinctPart
from dbsp.operators.extreme_part import ExtremePart
from dbsp.operators.float_part import FloatForm, FloatPart
from dbsp.operators.group_by import GroupBy
from dbsp.operators.join import Join
from dbsp.operators.linear_part import LinearForm, LinearPart
from dbsp.operators.map_rows import MapRows
from dbsp.operators.operator import Operator
from dbsp.operators.part import Part
from dbsp.operators.source import Source
from dbsp.operators.top_k import TopK
from dbsp.operators.upsert import Upsert
from dbsp.operators.value_form import ValueForm
from dbsp.plan.plan import Plan, PlanNode, ViewSpec
from dbsp.store import TraceSpec
from dbsp.zset.schema import Schema


def explain(plan: Plan) -> str:
    """The plan, one line per node: number, what it does, its inputs, the user's line; below it its traces and exchanges.

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
        lines.append(f"segment {segment}")
        for node in plan.segment(segment):
            lines.extend(f"  {line}" for line in _node(plan, node))
    return "\n".join(lines)


def _node(plan: Plan, node: PlanNode) -> Iterator[str]:
    """The node's line, then what belongs to it, further in."""
    arrived = [f"exchange {exchange.id}" for exchange in plan.exchanges if exchange.receiver == node.id]
    inputs = arrived or [f"#{number}" for number in node.inputs]
    of = f" of {', '.join(inputs)}" if inputs else ""
    line = "" if node.source is None else f"  at {PurePath(node.source.file).name}:{node.source.line}"
    yield f"#{node.id} {describe(node.operator)}{of} {_columns(node.schema)}{line}"
    for trace in node.traces:
        yield f"    {_trace(trace)}"
    for exchange in plan.exchanges:
        if exchange.sender == node.id:
            weights = f" weights={exchange.weights}" if exchange.weights > 1 else ""
            yield f"    exchange {exchange.id} by ({', '.join(exchange.key)}) to #{exchange.receiver}{weights}"
    for view in plan.views:
        if view.node == node.id:
            yield f"view {view.name} is #{node.id}{_kept(view)}"


def _kept(view: ViewSpec) -> str:
    """Where a view's rows are kept."""
    if view.trace is None:
        return ""
    return f", {_trace(view.trace)}" if view.integrates else f", shown by trace {view.trace.id}"


def _columns(schema: Schema) -> str:
    return "(" + ", ".join(f"{column.name}: {column.type}" for column in schema) + ")"


def _trace(trace: TraceSpec) -> str:
    """A trace: number, key, order, columns, weights per row."""
    arrangement = trace.arrangement
    order = "".join(f" order {by.column}{' desc' if by.descending else ''}" for by in arrangement.order[:1])
    rest = [name for name in arrangement.schema.names if name not in arrangement.key]
    values = f" with ({', '.join(rest)})" if rest else ""
    weights = f" weights={arrangement.weights}" if arrangement.weights > 1 else ""
    return f"trace {trace.id} by ({', '.join(arrangement.key)}){order}{values}{weights}"


def describe(operator: Operator) -> str:  # noqa: PLR0911 (one case per operator)
    """An operator in a few words."""
    match operator:
        case Source():
            return f"source {operator.table}"
        case Apply():
            return "; ".join(map(str, operator.stages))
        case MapRows():
            return f"{'flat_map' if operator.function.flat else 'map'} {operator.function.name}"
        case Upsert():
            return f"upsert by ({', '.join(operator.key)})"
        case Join():
            pairs = zip(operator.left_on, operator.right_on, strict=True)
            return "join on " + ", ".join(a if a == b else f"{a} = {b}" for a, b in pairs)
        case Combine():
            return f"combine {_form(operator.form)}"
        case GroupBy():
            parts = "; ".join(text for part in operator.parts if (text := _part(part)))
            return f"group by ({', '.join(operator.keys.names)}) {parts}".rstrip()
        case TopK():
            order = ", ".join(f"{by.column}{' desc' if by.descending else ''}" for by in operator.order)
            return f"top {operator.k} by {order} per ({', '.join(operator.partition)})"
        case _:
            return str(getattr(operator, "kind", type(operator).__name__.lower()))


def _form(form: object) -> str:
    """What rows become before they travel."""
    match form:
        case LinearForm():
            sums = ", ".join(f"{'sum' if measure.limbs else 'count'}({measure.column})" for measure in form.measures)
            return f"count(*){', ' if sums else ''}{sums} by ({', '.join(form.keys.names)})"
        case FloatForm():
            return f"bins of {', '.join(form.columns)} by ({', '.join(form.keys.names)})"
        case ValueForm():
            return f"values of {form.column.name} by ({', '.join(form.keys.names)})"
        case _:
            return type(form).__name__


def _part(part: Part) -> str:
    """The aggregates of a part."""
    match part:
        case LinearPart():
            return ", ".join(f"{call.name} = {call.function}" for call in part.calls)
        case FloatPart():
            return ", ".join(f"{call.name} = {call.function}({part.bins.columns[call.column]})" for call in part.calls)
        case ExtremePart():
            return f"{part.name} = {'max' if part.descending else 'min'}({part.values.column.name})"
        case DistinctPart():
            return f"{part.name} = count_distinct({part.values.column.name})"
        case _:
            return ", ".join(part.names())

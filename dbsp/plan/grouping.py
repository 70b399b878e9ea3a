"""Plans a group-by: the parts that its aggregates need, and the forms in which their rows are exchanged.

The rows of each part are converted into its form, summed on each worker (`Combine`), sent to the owners of the groups and
stored there. Parts of the same form share it and its exchange. All forms of one group-by travel in one shuffle. Without keys,
a row for the one group travels with them in the first step (`Once`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dbsp.aggregates.kind import AggregateCall, Asked, VectorCall
from dbsp.diagnostics.source_lines import SourceLine
from dbsp.operators.groups import group_by as physical
from dbsp.operators.groups.combine import Combine, Form
from dbsp.operators.groups.ends_part import EndsPart
from dbsp.operators.groups.first_part import FirstPart
from dbsp.operators.groups.once import Once
from dbsp.operators.groups.part import AggregatePart
from dbsp.operators.groups.vectors import Vectors
from dbsp.plan.builder import Builder, Flow, Key
from dbsp.zset.schema import NO_COLUMNS, OrderBy, Schema


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouping:
    """The keys, aggregates and result of a group-by that is planned."""

    keys: Key
    aggregates: tuple[AggregateCall, ...]
    schema: Schema
    source: SourceLine | None


def group_flow(builder: Builder, flow: Flow, node: Grouping, needed: Key, appends: bool = False) -> Flow:
    """Return the flow of the groups, distributed by their keys; with `appends`, no row of the input is ever removed."""
    calls = [call for call in node.aggregates if call.name in needed]
    used = frozenset(node.keys).union(*(call.reads for call in calls))
    flow = builder.settle(flow.pick(tuple(name for name in flow.schema.names if name in used)), node.source)
    schema = node.schema.select(needed)
    asked = asked_by(calls, flow.schema.select(node.keys), flow.schema, schema, appends)
    linear, others = asked.parts()
    for vectors in asked.vectors:
        flow = _with_vectors(builder, flow, vectors, node)
    forms: dict[Form, tuple[OrderBy, ...]] = {}  # with the order in which the first part that has one keeps the rows
    for part in (linear, *others):
        form = part.form()
        forms[form] = forms.get(form, ()) or part.arrangements()[0].order
    asking = {form: [part for part in (linear, *others) if part.form() == form] for form in forms}
    combined = [
        _combined(builder, flow, Combine(form=form, order=order, firsts=_firsts(asking[form])), node)
        for form, order in forms.items()
    ]
    if not node.keys:
        combined.append(_once(builder, flow, node))
    arrived = builder.together(combined, [node.keys] * len(combined), node.source)
    at = {form: number for number, form in enumerate(forms)}
    streams = tuple(at[part.form()] for part in (linear, *others))
    operator = physical.GroupByOperator(keys=asked.keys, linear=linear, others=others, streams=streams, schema=schema)
    made = builder.add("group_by", operator, tuple(stream.node for stream in arrived), schema, node.source)
    return Flow(node=made, schema=schema, distribution=node.keys)


def asked_by(
    calls: Sequence[AggregateCall], keys: Schema, rows: Schema, result: Schema, appends: bool = False
) -> Asked:
    """Return the parts that some aggregates over such rows need."""
    asked = Asked(keys=keys, rows=rows, result=result, appends=appends)
    for call in calls:
        call.kind.add(call, asked)
    return asked


def _with_vectors(builder: Builder, flow: Flow, call: VectorCall, node: Grouping) -> Flow:
    """Return the flow with the vectors of a user's aggregate as further columns."""
    operator = Vectors(function=call.function, reads=call.reads, shown=call.shown, where=call.where,
                       names=call.names, rows=flow.schema)  # fmt: skip
    made = builder.add("vectors", operator, (flow.node,), operator.schema, node.source)
    return Flow(node=made, schema=operator.schema, distribution=flow.distribution)


def _once(builder: Builder, flow: Flow, node: Grouping) -> Flow:
    """Return the flow of the row for the one group, which each worker emits, in the segment of the rows."""
    made = builder.add("once", Once(), (), NO_COLUMNS, node.source)
    once = Flow(node=made, schema=NO_COLUMNS, distribution=None)
    return builder.distribute(once, (), node.source, builder.segment(flow))


def _firsts(parts: Sequence[AggregatePart]) -> tuple[OrderBy, ...]:
    """Return the first columns of the orders of parts that only read the first row; empty if a part reads more rows."""
    found: dict[OrderBy, None] = {}
    for part in parts:
        leads = part.leads if isinstance(part, FirstPart | EndsPart) else ()
        if not leads:
            return ()
        found.update(dict.fromkeys(leads))
    return tuple(found)


def _combined(builder: Builder, flow: Flow, operator: Combine, node: Grouping) -> Flow:
    """Return the flow of the rows in one form, summed on each worker."""
    arrangement = operator.form.arrangement()
    made = builder.add("combine", operator, (flow.node,), arrangement.schema, node.source)
    return Flow(node=made, schema=arrangement.schema, distribution=flow.distribution, weights=arrangement.weights)

"""Planning a group-by: which parts its aggregates need, and in which forms their rows travel."""

from __future__ import annotations

from dbsp.circuit.nodes import AggregateCall, GroupBy
from dbsp.errors import InternalError
from dbsp.operators import group_by as physical
from dbsp.operators.combine import Combine, Form
from dbsp.operators.linear_part import measures_of
from dbsp.operators.part import Part
from dbsp.plan.builder import Builder, Flow, Key
from dbsp.zset.schema import Schema


def group_by(builder: Builder, flow: Flow, node: GroupBy, needed: Key) -> Flow:
    """Combine the rows into each part's form, send them to the groups' owners, keep the groups there."""
    calls = [call for call in node.aggregates if call.name in needed]
    used = {call.column for call in calls if call.column is not None} | set(node.keys)
    flow = builder.settle(flow.pick(tuple(name for name in flow.schema.names if name in used)), node.source)
    keys = flow.schema.select(node.keys)
    schema = node.schema.select(needed)
    linear = measures_of(keys, [_described(call, flow.schema, schema) for call in calls])
    others: list[Part] = []
    forms: dict[Form, int] = {}
    for part in (linear, *others):
        forms.setdefault(part.form(), len(forms))
    combined = [_combined(builder, flow, form, node) for form in forms]
    arrived = builder.together(combined, [node.keys] * len(combined), node.source)
    operator = physical.GroupBy(
        keys=keys, linear=linear, others=tuple(others), streams=tuple(forms[part.form()] for part in (linear, *others)), schema=schema
    )
    made = builder.add("group_by", operator, tuple(f.node for f in arrived), schema, node.source)
    return Flow(node=made, schema=schema, distribution=node.keys)


def _combined(builder: Builder, flow: Flow, form: Form, node: GroupBy) -> Flow:
    """The rows in one form, summed where they are."""
    arrangement = form.arrangement()
    made = builder.add("combine", Combine(form=form), (flow.node,), arrangement.schema, node.source)
    return Flow(node=made, schema=arrangement.schema, distribution=flow.distribution, weights=arrangement.weights)


def _described(call: AggregateCall, schema: Schema, result: Schema):
    if call.column is None:
        return (call.name, call.function, None, None, False, result[call.name].type)
    column = schema[call.column]
    return (call.name, call.function, call.column, column.type, column.nullable, result[call.name].type)

"""Planning a group-by: which parts its aggregates need, and in which forms their rows travel.

Every part's rows are brought into its form and summed where they are (`Combine`), sent to the owners of the groups, and kept
there. Parts that ask for the same form share it, and its exchange; all forms of one group-by travel in one shuffle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from dbsp.operators import group_by as physical
from dbsp.operators.combine import Combine, Form
from dbsp.operators.distinct_part import DistinctPart
from dbsp.operators.extreme_part import ExtremePart
from dbsp.operators.float_part import FloatCall, FloatForm, FloatPart
from dbsp.operators.limbs import limbs_of
from dbsp.operators.linear_part import LinearCall, LinearForm, LinearPart, Measure
from dbsp.operators.part import Part
from dbsp.operators.value_form import ValueForm
from dbsp.plan.builder import Builder, Flow, Key
from dbsp.zset.schema import Schema

if TYPE_CHECKING:
    from dbsp.algebra.group_by import AggregateCall, GroupBy


def group_flow(builder: Builder, flow: Flow, node: GroupBy, needed: Key) -> Flow:
    """The flow of the groups, distributed by their keys."""
    calls = [call for call in node.aggregates if call.name in needed]
    used = {call.column for call in calls if call.column is not None} | set(node.keys)
    flow = builder.settle(flow.pick(tuple(name for name in flow.schema.names if name in used)), node.source)
    keys, schema = flow.schema.select(node.keys), node.schema.select(needed)
    linear = linear_part(keys, [call for call in calls if _is_linear(call, flow.schema)], flow.schema, schema)
    others = other_parts(keys, [call for call in calls if not _is_linear(call, flow.schema)], flow.schema)
    forms: dict[Form, int] = {}
    for part in (linear, *others):
        forms.setdefault(part.form(), len(forms))
    combined = [_combined(builder, flow, form, node) for form in forms]
    arrived = builder.together(combined, [node.keys] * len(combined), node.source)
    streams = tuple(forms[part.form()] for part in (linear, *others))
    operator = physical.GroupBy(keys=keys, linear=linear, others=others, streams=streams, schema=schema)
    made = builder.add("group_by", operator, tuple(stream.node for stream in arrived), schema, node.source)
    return Flow(node=made, schema=schema, distribution=node.keys)


def _combined(builder: Builder, flow: Flow, form: Form, node: GroupBy) -> Flow:
    """The rows in one form, summed where they are."""
    arrangement = form.arrangement()
    made = builder.add("combine", Combine(form=form), (flow.node,), arrangement.schema, node.source)
    return Flow(node=made, schema=arrangement.schema, distribution=flow.distribution, weights=arrangement.weights)


def _is_linear(call: AggregateCall, schema: Schema) -> bool:
    """Whether the aggregate is a sum of whole numbers per row."""
    if call.column is None or call.function == "count":
        return True
    return call.function in ("sum", "avg") and not pa.types.is_floating(schema[call.column].type)


def linear_part(keys: Schema, calls: list[AggregateCall], schema: Schema, result: Schema) -> LinearPart:
    """The part of the row count and the linear aggregates; equal measures are kept once."""
    measures: dict[Measure, None] = {}
    for call in calls:
        if call.column is not None:
            if schema[call.column].nullable:
                measures[Measure(call.column, 0)] = None
            if call.function != "count":
                measures[Measure(call.column, limbs_of(schema[call.column].type))] = None
    form = LinearForm(keys=keys, measures=tuple(measures))
    return LinearPart(rows=form, calls=tuple(_linear_call(call, form, schema, result) for call in calls))


def _linear_call(call: AggregateCall, form: LinearForm, schema: Schema, result: Schema) -> LinearCall:
    """Where an aggregate finds its sums."""
    type_ = result[call.name].type
    if call.column is None:
        return LinearCall(name=call.name, function="count", type=type_, count_slot=0)
    column = schema[call.column]
    count_slot = form.slot(Measure(call.column, 0)) if column.nullable else 0
    if call.function == "count":
        return LinearCall(name=call.name, function="count", type=type_, count_slot=count_slot)
    limbs = limbs_of(column.type)
    return LinearCall(
        name=call.name,
        function=call.function,
        type=type_,
        count_slot=count_slot,
        sum_slot=form.slot(Measure(call.column, limbs)),
        limbs=limbs,
        scale=column.type.scale if pa.types.is_decimal(column.type) else 0,
    )


def other_parts(keys: Schema, calls: list[AggregateCall], schema: Schema) -> tuple[Part, ...]:
    """The parts of the other aggregates: floats together, every other one alone."""
    parts: list[Part] = []
    floats: dict[str, int] = {}
    float_calls: list[FloatCall] = []
    for call in calls:
        if call.column is None:
            continue
        values = ValueForm(keys=keys, column=schema[call.column])
        match call.function:
            case "sum" | "avg":
                at = floats.setdefault(call.column, len(floats))
                float_calls.append(FloatCall(call.name, call.function, at))
            case "count_distinct":
                parts.append(DistinctPart(name=call.name, values=values))
            case _:
                parts.append(ExtremePart(name=call.name, values=values, descending=call.function == "max"))
    if float_calls:
        parts.insert(0, FloatPart(bins=FloatForm(keys=keys, columns=tuple(floats)), calls=tuple(float_calls)))
    return tuple(parts)

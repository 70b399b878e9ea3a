"""The plan of operations on sets: equal rows of all sides are brought to one worker."""

from __future__ import annotations

from dbsp.circuit.nodes import Node, Planning
from dbsp.operators.set_operation import SetOperation
from dbsp.plan.builder import Flow


def set_flow(planning: Planning, kind: str, node: Node) -> Flow:
    """Return the flow of a `SetOperation` of this kind over the node's inputs, distributed by all columns."""
    names = node.schema.names
    flows = [planning.input(child).pick(names) for child in node.children()]
    flows = planning.builder.together(flows, [names] * len(flows), node.source)
    operator = SetOperation(kind=kind, schema=node.schema)
    made = planning.builder.add(kind, operator, tuple(flow.node for flow in flows), node.schema, node.source)
    return Flow(node=made, schema=node.schema, distribution=names)

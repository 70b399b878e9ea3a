"""Union: the sum of Z-sets, SQL's UNION ALL.

**Law** linear: D(a + b) = Da + Db.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from dbsp.algebra.iterations import from_start_where_fixed
from dbsp.circuit.nodes import Need, Node, Planning
from dbsp.diagnostics.source_lines import SourceLine
from dbsp.expr.expression import Expression
from dbsp.operators import union as physical
from dbsp.operators.iterations.histories import with_iteration
from dbsp.plan.builder import Flow
from dbsp.stored import stored
from dbsp.zset.schema import Schema


@stored("Union")
@dataclass(frozen=True, slots=True, kw_only=True)
class Union(Node):
    """The sum of the inputs, which have equal schemas."""

    inputs: tuple[Node, ...]
    schema: Schema
    source: SourceLine | None = field(default=None, compare=False)

    INPUTS = ("inputs",)

    def children(self) -> tuple[Node, ...]:
        """Return all inputs."""
        return self.inputs

    def with_children(self, children: tuple[Node, ...]) -> Self:
        """Return the union of other inputs."""
        return replace(self, inputs=children)

    def __str__(self) -> str:
        """Return the node's text in `explain`."""
        return "union all"

    def carried(self, side: int, name: str) -> frozenset[str]:  # noqa: ARG002 (none is followed)
        """Return the empty set: a row may be from any input, so no column is followed."""
        return frozenset()

    def kept(self, need: Need) -> Need:
        """Return the needed columns alone."""
        return need

    def wanted(self, kept: Need) -> tuple[Need, ...]:
        """Return the kept columns for each input."""
        return tuple(kept for _ in self.inputs)

    def filtered(self, condition: Expression, over: Callable[[Node, Expression], Node]) -> Node | None:
        """Push the condition into each input."""
        return self.with_children(tuple(over(child, condition) for child in self.inputs))

    def appends(self, inputs: Sequence[bool]) -> bool:
        """Return whether all inputs are append-only."""
        return all(inputs)

    def refusal_in_recursion(self, varies: Sequence[bool]) -> None:
        """Return None: the node is linear."""

    def in_iterations(self, inputs: Sequence[Node], varies: Sequence[bool]) -> Node:
        """Return the union, with fixed inputs there from iteration 0 on."""
        return replace(self, inputs=from_start_where_fixed(inputs, varies), schema=with_iteration(self.schema))

    def plan(self, planning: Planning) -> Flow:
        """Lift the inputs to the segment of the last of them, and add the union there."""
        needed = planning.needed(self)
        flows = planning.builder.lifted([planning.input(child).pick(needed) for child in self.inputs], self.source)
        schema = self.schema.select(needed)
        made = planning.builder.add(
            "union", physical.UnionOperator(schema=schema), tuple(flow.node for flow in flows), schema, self.source
        )
        distributions = {flow.distribution for flow in flows}
        return Flow(node=made, schema=schema, distribution=distributions.pop() if len(distributions) == 1 else None)

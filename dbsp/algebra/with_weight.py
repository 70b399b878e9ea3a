"""With weight: each different row once, with its weight as a column."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from dbsp.circuit.nodes import Node, Planning
from dbsp.diagnostics.source_lines import SourceLine
from dbsp.expr.expression import Expression
from dbsp.operators import with_weight as physical
from dbsp.plan.builder import Flow
from dbsp.stored import stored
from dbsp.zset.schema import Schema


@stored("WithWeight", "name")
@dataclass(frozen=True, slots=True, kw_only=True)
class WithWeight(Node):
    """The different rows, and the column `name` with their weight."""

    input: Node
    name: str
    schema: Schema
    source: SourceLine | None = field(default=None, compare=False)

    def __str__(self) -> str:
        """Return the node's text in `explain`: the name of the weight column."""
        return f"with weight {self.name}"

    def carried(self, side: int, name: str) -> frozenset[str]:  # noqa: ARG002 (there is one input)
        """Return the set of the column's own name, if the node still has the column."""
        return frozenset([name]).intersection(self.schema.names)

    def filtered(self, condition: Expression, over: Callable[[Node, Expression], Node]) -> Node | None:
        """Push the condition below the node, unless it reads the weight."""
        if self.name in condition.columns():
            return None
        return replace(self, input=over(self.input, condition))

    def plan(self, planning: Planning) -> Flow:
        """Distribute the rows by all their columns and add the operator."""
        read = self.input.schema
        flow = planning.input(self.input).pick(read.names)
        flow = planning.builder.distribute(flow, read.names, self.source)
        operator = physical.WithWeightOperator(input=read, schema=self.schema)
        made = planning.builder.add("with_weight", operator, (flow.node,), self.schema, self.source)
        return Flow(node=made, schema=self.schema, distribution=read.names)

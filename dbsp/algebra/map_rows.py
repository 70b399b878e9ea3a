"""Map and flat map: a user function applied to each row.

**Law** linear, provided the function is pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from dbsp.circuit.nodes import Node, Planning
from dbsp.diagnostics.source_lines import SourceLine
from dbsp.expr.functions import CALLED, UserFunction
from dbsp.operators import map_rows as physical
from dbsp.plan.builder import Flow
from dbsp.stored import stored
from dbsp.zset.schema import Schema


@stored("MapRows", "function")
@dataclass(frozen=True, slots=True, kw_only=True)
class MapRows(Node):
    """A user function of rows or of batches."""

    input: Node
    function: UserFunction
    schema: Schema
    source: SourceLine | None = field(default=None, compare=False)

    def __str__(self) -> str:
        """Return the node's text in `explain`: the function and the schema of its result."""
        return f"{CALLED[self.function.kind]} {self.function.name} -> {self.schema}"

    def carried(self, side: int, name: str) -> frozenset[str]:  # noqa: ARG002 (none is followed)
        """Return the empty set: the function makes every column."""
        return frozenset()

    def appends(self, inputs: Sequence[bool]) -> bool:
        """Return whether the input is append-only: the node looks at one row alone."""
        return all(inputs)

    def plan(self, planning: Planning) -> Flow:
        """Add the operator without an exchange: each worker maps its own rows."""
        flow = planning.builder.settle(planning.input(self.input).pick(self.input.schema.names), self.source)
        operator = physical.MapRowsOperator(function=self.function)
        made = planning.builder.add("map", operator, (flow.node,), self.schema, self.source)
        return Flow(node=made, schema=self.schema, distribution=None)

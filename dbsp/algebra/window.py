"""Window functions: every row with values taken from the rows around it, in the order of its partition."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from dbsp.circuit.nodes import Need, Node
from dbsp.expr.expression import Expression
from dbsp.operators.order import window as physical
from dbsp.operators.order.window_calls import WindowCall
from dbsp.plan.builder import Flow
from dbsp.source_lines import SourceLine
from dbsp.zset.schema import OrderBy, Schema

if TYPE_CHECKING:
    from dbsp.plan.planning import Planning


@dataclass(frozen=True, slots=True, kw_only=True)
class Window(Node):
    """The input's columns, then one per call; ties in `order` are broken by all columns of the input."""

    input: Node
    partition: tuple[str, ...]
    order: tuple[OrderBy, ...]
    calls: tuple[WindowCall, ...]
    schema: Schema
    source: SourceLine | None = field(default=None, compare=False)

    def __str__(self) -> str:
        """The functions, by what, per what."""
        partition = f" per ({', '.join(self.partition)})" if self.partition else ""
        return f"window {', '.join(map(str, self.calls))} by {', '.join(map(str, self.order))}{partition}"

    def kept(self, need: Need) -> Need:
        """All of the input, which decides ties, and the functions that are needed."""
        return frozenset(self.input.schema.names) | (need & {call.name for call in self.calls})

    def wanted(self, kept: Need) -> tuple[Need, ...]:  # noqa: ARG002 (for others to use)
        """All of the input."""
        return (frozenset(self.input.schema.names),)

    def filtered(self, condition: Expression, over: Callable[[Node, Expression], Node]) -> Node | None:
        """Below, if it keeps or drops whole partitions."""
        if not condition.columns() <= set(self.partition):
            return None
        return replace(self, input=over(self.input, condition))

    def plan(self, planning: Planning) -> Flow:
        """The rows distributed by the partition; functions that nobody needs are left out."""
        needed, read = planning.needed(self), self.input.schema
        flow = planning.input(self.input).pick(read.names)
        calls = tuple(call for call in self.calls if call.name in needed)
        if not calls:
            return flow
        flow = planning.builder.distribute(flow, self.partition, self.source)
        schema = self.schema.select((*read.names, *(call.name for call in calls)))
        operator = physical.Window(input=read, partition=self.partition, order=self.order, calls=calls, schema=schema)
        made = planning.builder.add("window", operator, (flow.node,), schema, self.source)
        return Flow(node=made, schema=schema, distribution=self.partition)

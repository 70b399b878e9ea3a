"""Temporal filter: the rows whose span of time contains the logged clock.

**Law** at each step the output is {row : enters <= clock < leaves}.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from dbsp.circuit.nodes import Need, Node, Planning
from dbsp.diagnostics.source_lines import SourceLine, located
from dbsp.errors import CircuitError
from dbsp.expr.expression import Expression
from dbsp.operators.slots import SLOT, Slots
from dbsp.operators.time.temporal_filter import TemporalFilterOperator
from dbsp.plan.builder import Flow
from dbsp.stored import stored
from dbsp.zset.schema import Schema


@stored("InTime", "enters leaves")
@dataclass(frozen=True, slots=True, kw_only=True)
class TemporalFilter(Node):
    """The rows for which the clock has reached column `enters` and not yet column `leaves`.

    The output has neither of the two columns. None means at once for `enters`, and never for `leaves`.
    """

    input: Node
    enters: str | None
    leaves: str | None
    schema: Schema
    source: SourceLine | None = field(default=None, compare=False)

    def __str__(self) -> str:
        """Return the node's text in `explain`: the span of time."""
        return f"rows in time [{self.enters or 'always'}, {self.leaves or 'for ever'})"

    def carried(self, side: int, name: str) -> frozenset[str]:  # noqa: ARG002 (there is one input)
        """Return the set of the column's own name, if the node still has the column."""
        return frozenset([name]).intersection(self.schema.names)

    def kept(self, need: Need) -> Need:
        """Return the needed columns alone."""
        return need

    def wanted(self, kept: Need) -> tuple[Need, ...]:
        """Return the kept columns and those of the span."""
        return (kept | {name for name in (self.enters, self.leaves) if name is not None},)

    def filtered(self, condition: Expression, over: Callable[[Node, Expression], Node]) -> Node | None:
        """Push the condition below the node, which looks at one row alone."""
        return replace(self, input=over(self.input, condition))

    def appends(self, inputs: Sequence[bool]) -> bool:
        """Return whether rows never leave and the input is append-only."""
        return self.leaves is None and all(inputs)

    def plan(self, planning: Planning) -> Flow:
        """Distribute the rows over slots, each of which stores its rows in the order of time.

        Raise `CircuitError` inside a recursion.
        """
        builder = planning.builder
        if builder.prefix:
            with located(self.source):
                raise CircuitError(
                    "a filter over now() inside a recursion", "filter what the recursion reads, or its result"
                )
        schema = self.schema.select(planning.needed(self))
        span = tuple(name for name in (self.enters, self.leaves) if name is not None)
        flow = builder.settle(planning.input(self.input).pick((*schema.names, *span)), self.source)
        slots = Slots.over(flow.schema)
        made = builder.add("slots", slots, (flow.node,), slots.schema, self.source)
        flow = Flow(node=made, schema=slots.schema, distribution=None)
        flow = builder.distribute(flow, (SLOT,), self.source)
        operator = TemporalFilterOperator(input=slots.schema, enters=self.enters, leaves=self.leaves, schema=schema)
        made = builder.add("in_time", operator, (flow.node,), schema, self.source)
        return Flow(node=made, schema=schema, distribution=None)

"""Final: emits a row only when no later step can change it.

**Law** an emitted row is never retracted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from dbsp.circuit.nodes import Node, Planning
from dbsp.diagnostics.source_lines import SourceLine, located
from dbsp.errors import CircuitError
from dbsp.operators.slots import SLOT, Slots
from dbsp.operators.time import final as physical
from dbsp.plan.builder import Flow
from dbsp.stored import stored
from dbsp.zset.schema import Schema

HINT = (
    'give the table watermark={"at": dbsp.minutes(5)} and group by the window of that column:'
    ' .tumble("at", size).group_by("window_end")'
)


@stored("Final", "column")
@dataclass(frozen=True, slots=True, kw_only=True)
class FinalNode(Node):
    """The rows whose `column` lies below the bound that the waterline gives it.

    If `column` is None, the first column that has a bound is used.
    """

    input: Node
    column: str | None
    schema: Schema
    source: SourceLine | None = field(default=None, compare=False)

    def __str__(self) -> str:
        """Return the node's text in `explain`: the column."""
        return f"final by {self.column or 'the window'}"

    def carried(self, side: int, name: str) -> frozenset[str]:  # noqa: ARG002 (there is one input)
        """Return the set of the column's own name, if the node still has the column."""
        return frozenset([name]).intersection(self.schema.names)

    def appends(self, inputs: Sequence[bool]) -> bool:  # noqa: ARG002 (whatever they are)
        """Return True: an emitted row is never retracted, whatever the input does."""
        return True

    def plan(self, planning: Planning) -> Flow:
        """Distribute the rows over slots, each of which stores its rows in the order of the column.

        Raise `CircuitError` if no column has a bound that a waterline moves.
        """
        builder = planning.builder
        flow = builder.settle(planning.input(self.input).pick(self.schema.names), self.source)
        bounds = builder.monotone_bounds[flow.node]
        found = [name for name in self.schema.names if name in bounds and self.column in (None, name)]
        if not found:
            with located(self.source):
                what = f"column={self.column}" if self.column else f"columns={list(self.schema.names)}"
                raise CircuitError(f"no watermark says when a row is final: {what}", HINT)
        slots = Slots.over(flow.schema)
        made = builder.add("slots", slots, (flow.node,), slots.schema, self.source)
        flow = Flow(node=made, schema=slots.schema, distribution=None)
        flow = builder.distribute(flow, (SLOT,), self.source)
        operator = physical.FinalOperator(
            input=slots.schema, column=found[0], bound=bounds[found[0]], schema=self.schema
        )
        made = builder.add("final", operator, (flow.node,), self.schema, self.source)
        return Flow(node=made, schema=self.schema, distribution=None)

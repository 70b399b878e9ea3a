"""Hopping windows: one copy of a row per window that contains the row's time.

**Law** linear: hop(a + b) = hop(a) + hop(b).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from dbsp.circuit.nodes import Need, Node, Planning
from dbsp.diagnostics.source_lines import SourceLine
from dbsp.expr.expression import Expression
from dbsp.operators.time import hop as physical
from dbsp.plan.builder import Flow
from dbsp.stored import stored
from dbsp.zset.schema import Schema


@stored("Hop", "time size_us slide_us offset_us start end")
@dataclass(frozen=True, slots=True, kw_only=True)
class Hop(Node):
    """Rows with the `start` and the `end` of each window that contains their `time`.

    A window lasts `size_us` and begins at a multiple of `slide_us` past `offset_us`.
    """

    input: Node
    time: str
    size_us: int
    slide_us: int
    offset_us: int
    start: str
    end: str
    schema: Schema
    source: SourceLine | None = field(default=None, compare=False)

    def __str__(self) -> str:
        """Return the node's text in `explain`: the time column and the windows."""
        return f"hop {self.time} size={self.size_us}us slide={self.slide_us}us offset={self.offset_us}us"

    def carried(self, side: int, name: str) -> frozenset[str]:  # noqa: ARG002 (there is one input)
        """Return the set of the column's own name, if the node still has the column."""
        return frozenset([name]).intersection(self.schema.names)

    def kept(self, need: Need) -> Need:
        """Return the needed columns and the two ends of the window."""
        return need | {self.start, self.end}

    def wanted(self, kept: Need) -> tuple[Need, ...]:
        """Return the kept columns of the input, and the time."""
        return ((kept - {self.start, self.end}) | {self.time},)

    def filtered(self, condition: Expression, over: Callable[[Node, Expression], Node]) -> Node | None:
        """Push the condition below the node, unless it reads an end of the window."""
        if condition.columns() & {self.start, self.end}:
            return None
        return replace(self, input=over(self.input, condition))

    def appends(self, inputs: Sequence[bool]) -> bool:
        """Return whether the input is append-only: the node looks at one row alone."""
        return all(inputs)

    def plan(self, planning: Planning) -> Flow:
        """Add the operator without an exchange: each worker copies its own rows."""
        needed = planning.needed(self)
        names = tuple(name for name in needed if name not in (self.start, self.end))
        read = tuple(name for name in self.input.schema.names if name in {*names, self.time})
        flow = planning.builder.settle(planning.input(self.input).pick(read), self.source)
        schema = self.schema.select((*read, self.start, self.end))
        operator = physical.HopOperator(
            time=self.time, size_us=self.size_us, slide_us=self.slide_us, offset_us=self.offset_us,
            start=self.start, end=self.end, schema=schema,
        )  # fmt: skip
        made = planning.builder.add("hop", operator, (flow.node,), schema, self.source)
        return Flow(node=made, schema=schema, distribution=flow.distribution).pick(needed)

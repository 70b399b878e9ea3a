"""Watermark: says how late a row may be, by the time in one of its columns.

**Law** on rows in time, the identity.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dbsp.algebra.filter import Filter
from dbsp.algebra.select import Select
from dbsp.algebra.table import Table
from dbsp.circuit.nodes import Need, Node
from dbsp.errors import CircuitError
from dbsp.operators.time import watermark as physical
from dbsp.plan.builder import Flow
from dbsp.source_lines import SourceLine, located
from dbsp.stored import stored
from dbsp.zset.schema import Schema

if TYPE_CHECKING:
    from dbsp.plan.planning import Planning


@stored("Watermark", "column lateness_us")
@dataclass(frozen=True, slots=True, kw_only=True)
class Watermark(Node):
    """Rows whose `column` is at most `lateness_us` below the greatest seen before this step."""

    input: Node
    column: str
    lateness_us: int
    schema: Schema
    source: SourceLine | None = field(default=None, compare=False)

    def __str__(self) -> str:
        """The column and the lateness."""
        return f"watermark {self.column} lateness={self.lateness_us}us"

    def kept(self, need: Need) -> Need:
        """What is needed, and the time; as pushed, all columns, so that a dead letter shows the row."""
        return frozenset(self.schema.names) if isinstance(self.input, Table) else need | {self.column}

    def wanted(self, kept: Need) -> tuple[Need, ...]:
        """The same."""
        return (kept,)

    def appends(self, inputs: Sequence[bool]) -> bool:
        """It looks at one row alone."""
        return all(inputs)

    def plan(self, planning: Planning) -> Flow:
        """Rows of a table as they were pushed, where they are; others where equal rows meet, so that what is seen is certain."""
        builder, schema = planning.builder, self.schema.select(planning.needed(self))
        if builder.prefix:
            with located(self.source):
                raise CircuitError("a watermark inside a recursion", "put it on the tables that the recursion reads")
        flow = planning.input(self.input).pick(schema.names)
        pushed = _as_pushed(self.input)
        if not pushed and flow.distribution is None:
            flow = builder.distribute(flow, schema.names, self.source)
        flow = builder.settle(flow, self.source)
        operator = physical.Watermark(
            schema=schema, column=self.column, lateness_us=self.lateness_us, node=len(builder.nodes), pushed=pushed
        )
        made = builder.add("watermark", operator, (flow.node,), schema, self.source)
        return Flow(node=made, schema=schema, distribution=flow.distribution)


def _as_pushed(node: Node) -> bool:
    """Whether rows are those of a table without a key, seen one by one on the way."""
    while isinstance(node, Filter | Select | Watermark):
        node = node.input
    return isinstance(node, Table) and not node.primary_key

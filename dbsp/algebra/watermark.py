"""Watermark: declares how late a row may be, by the time in one of its columns.

**Law** on rows that are not late, the identity.

On a table, perhaps after filters and selects, each input partition has its own waterline. Any other stream has one waterline
for all rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from dbsp.algebra.filter import Filter
from dbsp.algebra.select import Select
from dbsp.algebra.table import Table
from dbsp.circuit.nodes import Need, Node, Planning
from dbsp.diagnostics.source_lines import SourceLine, located
from dbsp.errors import CircuitError
from dbsp.expr.expression import ColumnRef
from dbsp.operators.apply import Apply, Keep, Project, Stage
from dbsp.operators.time import watermark as physical
from dbsp.operators.time.event_time import EventTime
from dbsp.plan.builder import Flow, fused
from dbsp.stored import stored
from dbsp.zset.schema import Schema


@stored("Watermark", "column lateness_us")
@dataclass(frozen=True, slots=True, kw_only=True)
class Watermark(Node):
    """The rows whose `column` is at most `lateness_us` below the greatest value seen before this step."""

    input: Node
    column: str
    lateness_us: int
    schema: Schema
    source: SourceLine | None = field(default=None, compare=False)

    def __str__(self) -> str:
        """Return the node's text in `explain`: the column and the lateness."""
        return f"watermark {self.column} lateness={self.lateness_us}us"

    def carried(self, side: int, name: str) -> frozenset[str]:  # noqa: ARG002 (there is one input)
        """Return the set of the column's own name, if the node still has the column."""
        return frozenset([name]).intersection(self.schema.names)

    def kept(self, need: Need) -> Need:
        """Return the needed columns and the time; directly on a table, all columns, so that a dead letter shows the whole row."""
        return frozenset(self.schema.names) if isinstance(self.input, Table) else need | {self.column}

    def wanted(self, kept: Need) -> tuple[Need, ...]:
        """Return the kept columns."""
        return (kept,)

    def appends(self, inputs: Sequence[bool]) -> bool:
        """Return whether the input is append-only: the node looks at one row alone."""
        return all(inputs)

    def plan(self, planning: Planning) -> Flow:
        """Add the operator: for rows as pushed, on the worker that reads them; else where equal rows meet.

        Rows other than those of a table may be retracted in the step that adds them. They are distributed first, so that the
        greatest time seen is certain. Raise `CircuitError` inside a recursion.
        """
        builder, schema = planning.builder, self.schema.select(planning.needed(self))
        if builder.prefix:
            with located(self.source):
                raise CircuitError("a watermark inside a recursion", "put it on the tables that the recursion reads")
        flow = planning.input(self.input).pick(schema.names)
        pushed = _as_pushed(self.input)
        if not pushed and flow.distribution is None:
            flow = builder.distribute(flow, schema.names, self.source)
        flow = builder.settle(flow, self.source)
        operator = physical.WatermarkOperator(
            schema=schema, column=self.column, lateness_us=self.lateness_us, node=len(builder.nodes), pushed=pushed,
            event_time=self._event_time(),
        )  # fmt: skip
        made = builder.add("watermark", operator, (flow.node,), schema, self.source)
        return Flow(node=made, schema=schema, distribution=flow.distribution)

    def _event_time(self) -> EventTime | None:
        """Return how the time is read from a table's rows; None if there is more than filters and selects above one table."""
        node, stages, needed = self.input, list[Stage](), frozenset([self.column])
        while isinstance(node, Filter | Select | Watermark):
            if isinstance(node, Filter):
                stages.insert(0, Keep(predicate=node.predicate, schema=node.schema))
                needed |= node.predicate.columns()
            elif isinstance(node, Select):
                stages.insert(0, _narrowed(node, needed))
                needed = node.wanted(needed)[0]
            node = node.input
        if not isinstance(node, Table):
            return None
        if stages and isinstance(stages[-1], Keep):
            time = ((self.column, ColumnRef(self.column)),)
            stages.append(Project(columns=time, schema=stages[-1].schema.select((self.column,))))
        fused_ = fused(node.schema, tuple(stages))
        chain = Apply(stages=fused_, schema=fused_[-1].schema) if fused_ else None
        return EventTime(table=node.name, column=self.column, lateness_us=self.lateness_us, chain=chain)


def _narrowed(select: Select, needed: Need) -> Project:
    """Return the projection of a select, with the needed columns alone."""
    columns = tuple((name, value) for name, value in select.columns if name in needed)
    return Project(columns=columns, schema=select.schema.select(tuple(name for name, _ in columns)))


def _as_pushed(node: Node) -> bool:
    """Return whether the rows are those of one table without a key, perhaps after filters, selects and watermarks."""
    while isinstance(node, Filter | Select | Watermark):
        node = node.input
    return isinstance(node, Table) and not node.primary_key

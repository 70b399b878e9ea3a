"""Session windows: successive rows of a partition that are at most a gap apart share a window."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from dbsp.circuit.nodes import Need, Node, Planning
from dbsp.diagnostics.source_lines import SourceLine
from dbsp.expr.expression import Expression
from dbsp.operators.time import session as physical
from dbsp.plan.builder import Flow
from dbsp.stored import stored
from dbsp.zset.schema import Schema


@stored("Session", "time gap_us partition start end")
@dataclass(frozen=True, slots=True, kw_only=True)
class Session(Node):
    """Rows with the `start` and the `end` of their session: rows of one `partition` that are at most `gap_us` apart in `time`."""

    input: Node
    time: str
    gap_us: int
    partition: tuple[str, ...]
    start: str
    end: str
    schema: Schema
    source: SourceLine | None = field(default=None, compare=False)

    def __str__(self) -> str:
        """Return the node's text in `explain`: the time, the gap and the partition."""
        per = f" per ({', '.join(self.partition)})" if self.partition else ""
        return f"session {self.time} gap={self.gap_us}us{per}"

    def carried(self, side: int, name: str) -> frozenset[str]:  # noqa: ARG002 (there is one input)
        """Return the set of the column's own name, if the node still has the column."""
        return frozenset([name]).intersection(self.schema.names)

    def kept(self, need: Need) -> Need:
        """Return the needed columns and those that define sessions; no other column influences the result."""
        return need | {*self.partition, self.time, self.start, self.end}

    def wanted(self, kept: Need) -> tuple[Need, ...]:
        """Return the kept columns without the ends of the session, which the node adds."""
        return (kept - {self.start, self.end},)

    def filtered(self, condition: Expression, over: Callable[[Node, Expression], Node]) -> Node | None:
        """Push the condition below the node if it reads the partition alone, so that it keeps or drops whole partitions."""
        if not condition.columns() <= set(self.partition):
            return None
        return replace(self, input=over(self.input, condition))

    def plan(self, planning: Planning) -> Flow:
        """Distribute the rows by the partition and add the operator."""
        schema = self.schema.select(planning.needed(self))
        below = schema.select(tuple(name for name in schema.names if name not in (self.start, self.end)))
        flow = planning.builder.distribute(planning.input(self.input).pick(below.names), self.partition, self.source)
        operator = physical.SessionOperator(
            input=below, partition=self.partition, time=self.time, gap_us=self.gap_us, start=self.start, end=self.end,
            schema=schema,
        )  # fmt: skip
        made = planning.builder.add("session", operator, (flow.node,), schema, self.source)
        return Flow(node=made, schema=schema, distribution=self.partition)

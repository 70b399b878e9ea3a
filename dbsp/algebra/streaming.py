"""Nodes on the stream of changes itself (`dbsp.core`): what step s gives depends on the Z-sets of steps, not on tables.

**Law** with a[s] the Z-set of step s: delay(a)[s] = a[s - 1], integrate(a)[s] = a[0] + … + a[s],
differentiate(a)[s] = a[s] - a[s - 1]; a lifted operator is applied to each a[s] by itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from dbsp.algebra.join import Join
from dbsp.circuit.nodes import Node, Planning
from dbsp.operators import streaming as physical
from dbsp.operators.joins.join import Join as PhysicalJoin
from dbsp.operators.operator import Operator
from dbsp.plan.builder import Flow
from dbsp.source_lines import SourceLine
from dbsp.stored import stored
from dbsp.zset.schema import Schema


@stored("Streaming", "kind")
@dataclass(frozen=True, slots=True, kw_only=True)
class Streaming(Node):
    """`delay`, `integrate`, `differentiate`, or the lifted `distinct`."""

    input: Node
    kind: str
    schema: Schema
    source: SourceLine | None = field(default=None, compare=False)

    def __str__(self) -> str:
        """Which one."""
        return f"{self.kind} of the stream"

    def plan(self, planning: Planning) -> Flow:
        """The rows distributed by all columns, so that equal ones meet and a rescale can move them."""
        names = self.schema.names
        flow = planning.builder.distribute(planning.input(self.input).pick(names), names, self.source)
        operator = physical.Streaming(kind=self.kind, schema=self.schema)
        made = planning.builder.add(self.kind, operator, (flow.node,), self.schema, self.source)
        return Flow(node=made, schema=self.schema, distribution=names)


@stored("StepJoin", "left_on right_on columns")
@dataclass(frozen=True, slots=True, kw_only=True)
class StepJoin(Join):
    """The lifted join: pairs of rows that one step brings to both sides."""

    def __str__(self) -> str:
        """The keys."""
        return f"{Join.__str__(self)} within a step"

    def filtered(self, *_: object) -> None:
        """As it is written."""

    def unique_side(self) -> None:
        """None: nothing is kept."""

    def of(self, operator: PhysicalJoin) -> Operator:
        """The join, with nothing kept."""
        return physical.StepJoin(join=operator)

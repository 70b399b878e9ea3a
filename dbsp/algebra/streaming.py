"""Nodes on the stream of changes itself (`dbsp.core`): the output of step s depends on the Z-sets of steps, not on tables.

**Law** let a[s] be the Z-set of step s. Then delay(a)[s] = a[s - 1]; integrate(a)[s] = a[0] + … + a[s];
differentiate(a)[s] = a[s] - a[s - 1]. A lifted operator is applied to each a[s] by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from dbsp.algebra.join import Join
from dbsp.circuit.nodes import LoopRefusal, Node, Planning
from dbsp.diagnostics.source_lines import SourceLine
from dbsp.operators import streaming as physical
from dbsp.operators.joins.join import JoinOperator
from dbsp.operators.operator import Operator
from dbsp.plan.builder import Flow
from dbsp.stored import stored
from dbsp.zset.schema import Schema


@stored("Streaming", "kind")
@dataclass(frozen=True, slots=True, kw_only=True)
class Streaming(Node):
    """The operator `delay`, `integrate`, `differentiate`, or the lifted `distinct`, as `kind` names it."""

    input: Node
    kind: str
    schema: Schema
    source: SourceLine | None = field(default=None, compare=False)

    def __str__(self) -> str:
        """Return the node's text in `explain`: the kind of operator."""
        return f"{self.kind} of the stream"

    def carried(self, side: int, name: str) -> frozenset[str]:  # noqa: ARG002 (there is one input)
        """Return the set of the column's own name, if the node still has the column."""
        return frozenset([name]).intersection(self.schema.names)

    def plan(self, planning: Planning) -> Flow:
        """Distribute the rows by all columns, so that equal rows are on one worker and a rescale can move them."""
        names = self.schema.names
        flow = planning.builder.distribute(planning.input(self.input).pick(names), names, self.source)
        operator = physical.StreamingOperator(kind=self.kind, schema=self.schema)
        made = planning.builder.add(self.kind, operator, (flow.node,), self.schema, self.source)
        return Flow(node=made, schema=self.schema, distribution=names)


@stored("StepJoin", "left_on right_on columns")
@dataclass(frozen=True, slots=True, kw_only=True)
class StepJoin(Join):
    """The lifted join: pairs of rows that arrive on both sides in one step."""

    def __str__(self) -> str:
        """Return the node's text in `explain`: the keys."""
        return f"{Join.__str__(self)} within a step"

    def refusal_in_recursion(self, varies: Sequence[bool]) -> LoopRefusal:  # noqa: ARG002 (never)
        """Return a refusal: the join looks at one step alone."""
        return LoopRefusal()

    def filtered(self, *_: object) -> None:
        """Return None: a condition stays above this join."""

    def unique_side(self) -> None:
        """Return None: the join stores no rows that a unique key could save."""

    def of(self, operator: JoinOperator) -> Operator:
        """Return the join operator in the form that keeps no state."""
        return physical.StepJoinOperator(join=operator)

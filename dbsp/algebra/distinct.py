"""Distinct: each row with positive weight, once.

**Law** distinct(distinct(a)) = distinct(a); not linear.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from dbsp.algebra.iterations import set_by_iteration
from dbsp.algebra.set_flow import set_flow
from dbsp.circuit.nodes import Need, Node, Planning
from dbsp.diagnostics.source_lines import SourceLine
from dbsp.expr.expression import Expression
from dbsp.plan.builder import Flow
from dbsp.stored import stored
from dbsp.zset.schema import Schema


@stored("Distinct")
@dataclass(frozen=True, slots=True, kw_only=True)
class Distinct(Node):
    """Each row with positive weight, with weight 1."""

    input: Node
    schema: Schema
    source: SourceLine | None = field(default=None, compare=False)

    def __str__(self) -> str:
        """Return the node's text in `explain`."""
        return "distinct"

    def carried(self, side: int, name: str) -> frozenset[str]:  # noqa: ARG002 (there is one input)
        """Return the set of the column's own name, if the node still has the column."""
        return frozenset([name]).intersection(self.schema.names)

    def filtered(self, condition: Expression, over: Callable[[Node, Expression], Node]) -> Node | None:
        """Push the condition below the node: it reads one row alone."""
        return self.with_children((over(self.input, condition),))

    def appends(self, inputs: Sequence[bool]) -> bool:
        """Return whether the input is append-only: a distinct row then stays for ever."""
        return all(inputs)

    def unique(self, names: Need) -> bool:
        """Return whether the columns are all columns of the node, or are unique in its input."""
        return names.issuperset(self.schema.names) or self.input.unique(names)

    def refusal_in_recursion(self, varies: Sequence[bool]) -> None:
        """Return None: the output is a function of the iteration."""

    def in_iterations(self, inputs: Sequence[Node], varies: Sequence[bool]) -> Node:
        """Return the node that gives the distinct rows at each iteration."""
        return set_by_iteration("distinct", self, inputs, varies)

    def plan(self, planning: Planning) -> Flow:
        """Distribute the rows by all columns and add the set operation."""
        return set_flow(planning, "distinct", self)

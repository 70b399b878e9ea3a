"""Explode: one row per element of a list, SQL's UNNEST.

**Law** linear: explode(a + b) = explode(a) + explode(b).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from dbsp.circuit.nodes import Need, Node, Planning
from dbsp.diagnostics.source_lines import SourceLine
from dbsp.expr.expression import Expression
from dbsp.operators import explode as physical
from dbsp.operators.iterations.histories import with_iteration
from dbsp.plan.builder import Flow
from dbsp.stored import stored
from dbsp.zset.schema import Schema


@stored("Explode", "column position outer")
@dataclass(frozen=True, slots=True, kw_only=True)
class Explode(Node):
    """Replaces the list `column` by one of its elements, in one row per element.

    `position` names an added column with the element's position. With `outer`, a row without elements stays.
    """

    input: Node
    column: str
    position: str | None
    outer: bool
    schema: Schema
    source: SourceLine | None = field(default=None, compare=False)

    @property
    def element(self) -> str:
        """Return the name of the column that holds the element."""
        return self.schema.names[self.input.schema.names.index(self.column)]

    def __str__(self) -> str:
        """Return the node's text in `explain`: the list, and "outer" if rows without elements stay."""
        return f"{'outer ' if self.outer else ''}explode {self.column}"

    def carried(self, side: int, name: str) -> frozenset[str]:  # noqa: ARG002 (there is one input)
        """Return the set of the column's own name, if the node still has the column."""
        return frozenset([name]).intersection(self.schema.names)

    def kept(self, need: Need) -> Need:
        """Return the needed columns alone: the number of rows does not depend on the other columns."""
        return need

    def wanted(self, kept: Need) -> tuple[Need, ...]:
        """Return the list and the kept columns of the input."""
        own = kept - {self.element, self.position}
        return (own | {self.column},)

    def filtered(self, condition: Expression, over: Callable[[Node, Expression], Node]) -> Node | None:
        """Push the condition below the node, unless it reads the element or the position."""
        if condition.columns() & {self.element, self.position}:
            return None
        return replace(self, input=over(self.input, condition))

    def appends(self, inputs: Sequence[bool]) -> bool:
        """Return whether the input is append-only: the node looks at one row alone."""
        return all(inputs)

    def refusal_in_recursion(self, varies: Sequence[bool]) -> None:
        """Return None: the node is linear."""

    def in_iterations(self, inputs: Sequence[Node], varies: Sequence[bool]) -> Node:  # noqa: ARG002 (there is one)
        """Return the node with the iteration as one more column."""
        return replace(self, input=inputs[0], schema=with_iteration(self.schema))

    def plan(self, planning: Planning) -> Flow:
        """Add the operator without an exchange: each worker explodes its own rows."""
        needed = planning.needed(self)
        (wanted,) = self.wanted(frozenset(needed))
        names = tuple(name for name in self.input.schema.names if name in wanted)
        flow = planning.builder.settle(planning.input(self.input).pick(names), self.source)
        schema = self.schema.select(needed)
        operator = physical.ExplodeOperator(
            column=self.column, element=self.element, position=self.position, outer=self.outer, schema=schema
        )
        made = planning.builder.add("explode", operator, (flow.node,), schema, self.source)
        distribution = flow.distribution
        if distribution is not None and (self.column in distribution or not set(distribution) <= set(needed)):
            distribution = None
        return Flow(node=made, schema=schema, distribution=distribution)

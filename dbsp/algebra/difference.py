"""Difference: SQL's EXCEPT. Each row that is on the left and not on the right, once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from dbsp.algebra.iterations import set_by_iteration
from dbsp.algebra.set_flow import set_flow
from dbsp.circuit.nodes import LoopRefusal, Node, Planning
from dbsp.diagnostics.source_lines import SourceLine
from dbsp.expr.expression import Expression
from dbsp.plan.builder import Flow
from dbsp.stored import stored
from dbsp.zset.schema import Schema


@stored("Difference")
@dataclass(frozen=True, slots=True, kw_only=True)
class DifferenceNode(Node):
    """Each row with positive weight on the left and without positive weight on the right, with weight 1."""

    INPUTS: ClassVar[tuple[str, ...]] = ("left", "right")
    left: Node
    right: Node
    schema: Schema
    source: SourceLine | None = field(default=None, compare=False)

    def __str__(self) -> str:
        """Return the node's text in `explain`."""
        return "difference"

    def carried(self, side: int, name: str) -> frozenset[str]:  # noqa: ARG002 (none is followed)
        """Return the empty set: rows of both inputs decide the output, so no column is followed."""
        return frozenset()

    def filtered(self, condition: Expression, over: Callable[[Node, Expression], Node]) -> Node | None:
        """Push the condition into both inputs: it reads one row alone."""
        return self.with_children(tuple(over(child, condition) for child in self.children()))

    def refusal_in_recursion(self, varies: Sequence[bool]) -> LoopRefusal | None:
        """Return a refusal if the subtracted side depends on the loop: the iterations could then alternate for ever."""
        if not varies[1]:
            return None
        message = "a recursion subtracts what depends on itself: it may go back and forth for ever"
        return LoopRefusal(message, "subtract a fixed stream inside, or subtract from the result")

    def in_iterations(self, inputs: Sequence[Node], varies: Sequence[bool]) -> Node:
        """Return the node that gives the rows of the difference at each iteration."""
        return set_by_iteration("difference", self, inputs, varies)

    def plan(self, planning: Planning) -> Flow:
        """Distribute both sides by all columns and add the set operation."""
        return set_flow(planning, "difference", self)

"""Difference: SQL's EXCEPT, rows that are on the left and not on the right, once."""

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
    """Rows of positive weight on the left and none on the right, once."""

    INPUTS: ClassVar[tuple[str, ...]] = ("left", "right")
    left: Node
    right: Node
    schema: Schema
    source: SourceLine | None = field(default=None, compare=False)

    def __str__(self) -> str:
        """As a reader would say."""
        return "difference"

    def carried(self, side: int, name: str) -> frozenset[str]:  # noqa: ARG002 (none is followed)
        """Return none: rows come from several inputs."""
        return frozenset()

    def filtered(self, condition: Expression, over: Callable[[Node, Expression], Node]) -> Node | None:
        """On both sides: the condition looks at one row alone."""
        return self.with_children(tuple(over(child, condition) for child in self.children()))

    def refusal_in_recursion(self, varies: Sequence[bool]) -> LoopRefusal | None:
        """Return a refusal if the loop decides what is subtracted."""
        if not varies[1]:
            return None
        message = "a recursion subtracts what depends on itself: it may go back and forth for ever"
        return LoopRefusal(message, "subtract a fixed stream inside, or subtract from the result")

    def in_iterations(self, inputs: Sequence[Node], varies: Sequence[bool]) -> Node:
        """Return the rows that are there at each iteration."""
        return set_by_iteration("difference", self, inputs, varies)

    def plan(self, planning: Planning) -> Flow:
        """Both sides distributed by all columns."""
        return set_flow(planning, "difference", self)

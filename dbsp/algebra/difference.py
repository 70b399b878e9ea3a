"""Difference: SQL's EXCEPT, rows that are on the left and not on the right, once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

from dbsp.algebra.set_flow import set_flow
from dbsp.circuit.nodes import Node, Planning
from dbsp.expr.expression import Expression
from dbsp.plan.builder import Flow
from dbsp.source_lines import SourceLine
from dbsp.stored import stored
from dbsp.zset.schema import Schema


@stored("Difference")
@dataclass(frozen=True, slots=True, kw_only=True)
class Difference(Node):
    """Rows of positive weight on the left and none on the right, once."""

    INPUTS: ClassVar[tuple[str, ...]] = ("left", "right")
    left: Node
    right: Node
    schema: Schema
    source: SourceLine | None = field(default=None, compare=False)

    def __str__(self) -> str:
        """As a reader would say."""
        return "difference"

    def filtered(self, condition: Expression, over: Callable[[Node, Expression], Node]) -> Node | None:
        """On both sides: the condition looks at one row alone."""
        return self.with_children(tuple(over(child, condition) for child in self.children()))

    def plan(self, planning: Planning) -> Flow:
        """Both sides distributed by all columns."""
        return set_flow(planning, "difference", self)

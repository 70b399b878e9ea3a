"""Set pairs: SQL's INTERSECT, INTERSECT ALL and EXCEPT ALL of two streams."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

from dbsp.algebra.set_flow import set_flow
from dbsp.circuit.nodes import Node, Planning
from dbsp.diagnostics.source_lines import SourceLine
from dbsp.expr.expression import Expression
from dbsp.plan.builder import Flow
from dbsp.stored import stored
from dbsp.zset.schema import Schema


@stored("SetPair", "kind")
@dataclass(frozen=True, slots=True, kw_only=True)
class SetPair(Node):
    """The pair operation `intersect`, `intersect all` (the lesser weight) or `difference all` (the remaining weight)."""

    INPUTS: ClassVar[tuple[str, ...]] = ("left", "right")
    kind: str
    left: Node
    right: Node
    schema: Schema
    source: SourceLine | None = field(default=None, compare=False)

    def __str__(self) -> str:
        """Return the node's text in `explain`: the kind of operation."""
        return self.kind

    def carried(self, side: int, name: str) -> frozenset[str]:  # noqa: ARG002 (none is followed)
        """Return the empty set: rows of both inputs decide the output, so no column is followed."""
        return frozenset()

    def filtered(self, condition: Expression, over: Callable[[Node, Expression], Node]) -> Node | None:
        """Push the condition into both inputs: it reads one row alone."""
        return self.with_children(tuple(over(child, condition) for child in self.children()))

    def plan(self, planning: Planning) -> Flow:
        """Distribute both sides by all columns and add the set operation."""
        return set_flow(planning, self.kind, self)

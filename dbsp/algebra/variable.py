"""Variable: a view at the place where its own definition reads it.

**Law** its rows are those of the view as of the iteration before (`dbsp.algebra.recursive`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from dbsp.circuit.nodes import Node, Planning
from dbsp.diagnostics.source_lines import SourceLine
from dbsp.plan.builder import Flow
from dbsp.stored import stored
from dbsp.zset.schema import Schema


class LoopId:
    """Identifies a loop while a circuit is built; it has no influence on the result of the loop."""

    __slots__ = ()

    def token(self) -> str:
        """Return the same token for all loops: the identity is no part of the fingerprint."""
        return "loop"


@stored("Variable", "name loop")
@dataclass(frozen=True, slots=True, kw_only=True)
class Variable(Node):
    """A view inside its own definition, with its rows as of the iteration before."""

    INPUTS: ClassVar[tuple[str, ...]] = ()
    name: str
    loop: LoopId
    schema: Schema
    source: SourceLine | None = field(default=None, compare=False)

    def __str__(self) -> str:
        """Return the node's text in `explain`: the view's name."""
        return f"{self.name} of the round before"

    def carried(self, side: int, name: str) -> frozenset[str]:  # noqa: ARG002 (none is followed)
        """Return the empty set: the node has no input."""
        return frozenset()

    def plan(self, planning: Planning) -> Flow:
        """Return the flow that the loop made for this variable."""
        return planning.input(self)

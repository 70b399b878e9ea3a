"""Variable: a view where its own definition reads it.

**Law** its rows are those of the view as of the round before (`dbsp.algebra.recursive`).
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
    """Tells the loops of a circuit apart while it is built; says nothing about what they compute."""

    __slots__ = ()

    def token(self) -> str:
        """The same for all."""
        return "loop"


@stored("Variable", "name loop")
@dataclass(frozen=True, slots=True, kw_only=True)
class Variable(Node):
    """A view inside its own definition: its rows as of the round before."""

    INPUTS: ClassVar[tuple[str, ...]] = ()
    name: str
    loop: LoopId
    schema: Schema
    source: SourceLine | None = field(default=None, compare=False)

    def __str__(self) -> str:
        """The view's name."""
        return f"{self.name} of the round before"

    def carried(self, side: int, name: str) -> frozenset[str]:  # noqa: ARG002 (none is followed)
        """Return none: it has no input."""
        return frozenset()

    def plan(self, planning: Planning) -> Flow:
        """The loop makes it."""
        return planning.input(self)

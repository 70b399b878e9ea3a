"""The empty Z-set: no rows, no columns, and no table that is read.

A node over it is constant: an aggregate without keys always has its one row.

**Law** D(0) = 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from dbsp.circuit.nodes import Need, Node, Planning
from dbsp.diagnostics.source_lines import SourceLine
from dbsp.operators.nothing import NothingOperator
from dbsp.plan.builder import Flow
from dbsp.stored import stored
from dbsp.zset.schema import NO_COLUMNS, Schema


@stored("Nothing")
@dataclass(frozen=True, slots=True, kw_only=True)
class Nothing(Node):
    """No rows and no columns."""

    INPUTS: ClassVar[tuple[str, ...]] = ()
    schema: Schema = NO_COLUMNS
    source: SourceLine | None = field(default=None, compare=False)

    def __str__(self) -> str:
        """Return the node's text in `explain`."""
        return "nothing"

    def carried(self, side: int, name: str) -> frozenset[str]:  # noqa: ARG002 (none is followed)
        """Return the empty set: the node has no input."""
        return frozenset()

    def appends(self, inputs: Sequence[bool]) -> bool:  # noqa: ARG002 (there are none)
        """Return True: there is no row to take away."""
        return True

    def unique(self, names: Need) -> bool:  # noqa: ARG002 (there are no rows)
        """Return True: there are no two rows."""
        return True

    def plan(self, planning: Planning) -> Flow:
        """Add an operator without inputs."""
        made = planning.builder.add("nothing", NothingOperator(), (), self.schema, self.source)
        return Flow(node=made, schema=self.schema, distribution=())

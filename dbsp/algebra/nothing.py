"""Nothing: the Z-set of no rows and no columns, which reads no table.

What hangs on it is constant: an aggregate over it has its one row, always.

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
    """No rows."""

    INPUTS: ClassVar[tuple[str, ...]] = ()
    schema: Schema = NO_COLUMNS
    source: SourceLine | None = field(default=None, compare=False)

    def __str__(self) -> str:
        """As it is."""
        return "nothing"

    def carried(self, side: int, name: str) -> frozenset[str]:  # noqa: ARG002 (none is followed)
        """Return none: it has no input."""
        return frozenset()

    def appends(self, inputs: Sequence[bool]) -> bool:  # noqa: ARG002 (there are none)
        """No row ever goes."""
        return True

    def unique(self, names: Need) -> bool:  # noqa: ARG002 (there are no rows)
        """No two rows are alike."""
        return True

    def plan(self, planning: Planning) -> Flow:
        """An operator without inputs."""
        made = planning.builder.add("nothing", NothingOperator(), (), self.schema, self.source)
        return Flow(node=made, schema=self.schema, distribution=())

"""Filter: the rows for which a condition is true.

**Law** linear: filter(a + b) = filter(a) + filter(b).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from dbsp.algebra.window import Window
from dbsp.circuit.nodes import Need, Node, Planning
from dbsp.expr.expression import Expression, conjuncts
from dbsp.operators.apply import Keep
from dbsp.plan.builder import Flow
from dbsp.source_lines import SourceLine
from dbsp.stored import stored
from dbsp.zset.schema import Schema


@stored("Filter", "predicate")
@dataclass(frozen=True, slots=True, kw_only=True)
class Filter(Node):
    """Rows for which the predicate is true (not null, not false)."""

    input: Node
    predicate: Expression
    schema: Schema
    source: SourceLine | None = field(default=None, compare=False)

    def __str__(self) -> str:
        """The condition."""
        return f"filter {self.predicate}"

    def kept(self, need: Need) -> Need:
        """What is needed, no more."""
        return need

    def wanted(self, kept: Need) -> tuple[Need, ...]:
        """The same columns, and those of the condition."""
        return (kept | self.predicate.columns(),)

    def appends(self, inputs: Sequence[bool]) -> bool:
        """It looks at one row alone."""
        return all(inputs)

    def keyed(self, names: tuple[str, ...]) -> Node | None:
        """It leaves rows out."""
        return self.input.keyed(names)

    def unique(self, names: Need) -> bool:
        """As its input is; or by the partition of which it leaves one row number."""
        return self.input.unique(names) or (
            isinstance(self.input, Window)
            and any(self.input.leaves_one(part, names) for part in conjuncts(self.predicate))
        )

    def plan(self, planning: Planning) -> Flow:
        """A stage that waits to be fused with its neighbours."""
        flow = planning.input(self.input)
        return flow.then(Keep(predicate=self.predicate, schema=flow.schema), flow.distribution).pick(
            planning.needed(self)
        )

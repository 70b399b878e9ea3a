"""Filter: the rows for which a condition is true.

**Law** linear: filter(a + b) = filter(a) + filter(b).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from dbsp.algebra.window import WindowNode
from dbsp.circuit.nodes import Need, Node, Planning
from dbsp.diagnostics.source_lines import SourceLine
from dbsp.expr.expression import Expression, conjuncts
from dbsp.operators.apply import Keep
from dbsp.operators.iterations.histories import with_iteration
from dbsp.plan.builder import Flow
from dbsp.stored import stored
from dbsp.zset.schema import Schema


@stored("Filter", "predicate")
@dataclass(frozen=True, slots=True, kw_only=True)
class Filter(Node):
    """The rows for which the predicate is true: neither null nor false."""

    input: Node
    predicate: Expression
    schema: Schema
    source: SourceLine | None = field(default=None, compare=False)

    def __str__(self) -> str:
        """Return the node's text in `explain`: the condition."""
        return f"filter {self.predicate}"

    def carried(self, side: int, name: str) -> frozenset[str]:  # noqa: ARG002 (there is one input)
        """Return the set of the column's own name, if the node still has the column."""
        return frozenset([name]).intersection(self.schema.names)

    def kept(self, need: Need) -> Need:
        """Return the needed columns alone."""
        return need

    def wanted(self, kept: Need) -> tuple[Need, ...]:
        """Return the kept columns and those that the condition reads."""
        return (kept | self.predicate.columns(),)

    def appends(self, inputs: Sequence[bool]) -> bool:
        """Return whether the input is append-only: the node looks at one row alone."""
        return all(inputs)

    def keyed(self, names: tuple[str, ...]) -> Node | None:
        """Return the keyed table of the input: a filter only leaves rows out."""
        return self.input.keyed(names)

    def unique(self, names: Need) -> bool:
        """Return whether the columns are unique in the input, or the filter keeps one row number of each partition they name."""
        return self.input.unique(names) or (
            isinstance(self.input, WindowNode)
            and any(self.input.leaves_one(part, names) for part in conjuncts(self.predicate))
        )

    def refusal_in_recursion(self, varies: Sequence[bool]) -> None:
        """Return None: the node is linear."""

    def in_iterations(self, inputs: Sequence[Node], varies: Sequence[bool]) -> Node:  # noqa: ARG002 (there is one)
        """Return the node with the iteration as one more column."""
        return replace(self, input=inputs[0], schema=with_iteration(self.schema))

    def plan(self, planning: Planning) -> Flow:
        """Add a stage to the flow; the planner fuses it with its neighbours."""
        flow = planning.input(self.input)
        return flow.then(Keep(predicate=self.predicate, schema=flow.schema), flow.distribution).pick(
            planning.needed(self)
        )

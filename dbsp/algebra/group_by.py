"""Group-by: one row per group of equal keys, with aggregates over its rows.

**Law** a group's row changes only if one of its rows does; linear aggregates are sums that commute with the exchange.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from dbsp.aggregates.kind import AggregateCall
from dbsp.algebra.iterations import CAN, INSTEAD, RESULT, ExtremesByIteration
from dbsp.circuit.nodes import LoopRefusal, Need, Node, Planning
from dbsp.diagnostics.source_lines import SourceLine
from dbsp.expr.expression import Expression
from dbsp.operators.iterations.extremes import IterationExtreme
from dbsp.operators.iterations.histories import with_iteration
from dbsp.plan.builder import Flow
from dbsp.plan.grouping import Grouping, group_flow
from dbsp.stored import stored
from dbsp.zset.schema import Schema


@stored("GroupBy", "keys aggregates")
@dataclass(frozen=True, slots=True, kw_only=True)
class GroupBy(Node):
    """One row per group of `keys` (null is a group): the keys, then the aggregates. No keys: one group, there also when empty."""

    input: Node
    keys: tuple[str, ...]
    aggregates: tuple[AggregateCall, ...]
    schema: Schema
    source: SourceLine | None = field(default=None, compare=False)

    def __str__(self) -> str:
        """Keys and aggregates."""
        keys = f"by ({', '.join(self.keys)}) " if self.keys else ""
        return f"aggregate {keys}{', '.join(map(str, self.aggregates))}".rstrip()

    def carried(self, side: int, name: str) -> frozenset[str]:  # noqa: ARG002 (there is one input)
        """Return the column, if it is a key."""
        return frozenset([name]).intersection(self.keys)

    def kept(self, need: Need) -> Need:
        """The keys decide the identity of rows."""
        return need | frozenset(self.keys)

    def wanted(self, kept: Need) -> tuple[Need, ...]:
        """The keys, and the arguments of the aggregates that are kept."""
        return (frozenset(self.keys).union(*(call.reads for call in self.aggregates if call.name in kept)),)

    def filtered(self, condition: Expression, over: Callable[[Node, Expression], Node]) -> Node | None:
        """Below, if it keeps or drops whole groups."""
        if not condition.columns() <= set(self.keys):
            return None
        return replace(self, input=over(self.input, condition))

    def unique(self, names: Need) -> bool:
        """By its keys; of one group over everything in any case."""
        return names.issuperset(self.keys)

    def refusal_in_recursion(self, varies: Sequence[bool]) -> LoopRefusal | None:  # noqa: ARG002 (the input varies)
        """Return a refusal of all aggregates but min and max."""
        for call in self.aggregates:
            if call.function not in ("min", "max"):
                message = f"{call.function} cannot stand inside a recursion: aggregate={call}"
                return LoopRefusal(message, f"{INSTEAD.get(call.function, RESULT)}; {CAN}")
        return None

    def in_iterations(self, inputs: Sequence[Node], varies: Sequence[bool]) -> Node:  # noqa: ARG002 (there is one)
        """Return the extremes of the groups as functions of the iteration."""
        extremes = tuple(
            IterationExtreme(name=call.name, column=str(call.column), descending=call.function == "max")
            for call in self.aggregates
        )
        schema = with_iteration(self.schema)
        return ExtremesByIteration(
            input=inputs[0], keys=self.keys, extremes=extremes, schema=schema, source=self.source
        )

    def plan(self, planning: Planning) -> Flow:
        """Rows summed where they are, then at the owners of the groups."""
        appends = planning.appends(self.input)
        asked = Grouping(keys=self.keys, aggregates=self.aggregates, schema=self.schema, source=self.source)
        return group_flow(planning.builder, planning.input(self.input), asked, planning.needed(self), appends)

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
    """Rows of the keys and aggregates, one row per group of `keys` (null is a group).

    Without keys there is one group, which has a row also when the input is empty.
    """

    input: Node
    keys: tuple[str, ...]
    aggregates: tuple[AggregateCall, ...]
    schema: Schema
    source: SourceLine | None = field(default=None, compare=False)

    def __str__(self) -> str:
        """Return the node's text in `explain`: the keys and the aggregates."""
        keys = f"by ({', '.join(self.keys)}) " if self.keys else ""
        return f"aggregate {keys}{', '.join(map(str, self.aggregates))}".rstrip()

    def carried(self, side: int, name: str) -> frozenset[str]:  # noqa: ARG002 (there is one input)
        """Return the set of the column's own name, if the column is a key."""
        return frozenset([name]).intersection(self.keys)

    def kept(self, need: Need) -> Need:
        """Return the needed columns and the keys, which decide the identity of rows."""
        return need | frozenset(self.keys)

    def wanted(self, kept: Need) -> tuple[Need, ...]:
        """Return the keys and the columns that the kept aggregates read."""
        return (frozenset(self.keys).union(*(call.reads for call in self.aggregates if call.name in kept)),)

    def filtered(self, condition: Expression, over: Callable[[Node, Expression], Node]) -> Node | None:
        """Push the condition below the node if it reads keys alone, so that it keeps or drops whole groups."""
        if not condition.columns() <= set(self.keys):
            return None
        return replace(self, input=over(self.input, condition))

    def unique(self, names: Need) -> bool:
        """Return whether the columns include all keys; without keys there is one row, so always True."""
        return names.issuperset(self.keys)

    def refusal_in_recursion(self, varies: Sequence[bool]) -> LoopRefusal | None:  # noqa: ARG002 (the input varies)
        """Return a refusal for the first aggregate that is neither min nor max."""
        for call in self.aggregates:
            if call.function not in ("min", "max"):
                message = f"{call.function} cannot be inside a recursion: aggregate={call}"
                return LoopRefusal(message, f"{INSTEAD.get(call.function, RESULT)}; {CAN}")
        return None

    def in_iterations(self, inputs: Sequence[Node], varies: Sequence[bool]) -> Node:  # noqa: ARG002 (there is one)
        """Return the node that gives the extremes of the groups as functions of the iteration."""
        extremes = tuple(
            IterationExtreme(name=call.name, column=str(call.column), descending=call.function == "max")
            for call in self.aggregates
        )
        schema = with_iteration(self.schema)
        return ExtremesByIteration(
            input=inputs[0], keys=self.keys, extremes=extremes, schema=schema, source=self.source
        )

    def plan(self, planning: Planning) -> Flow:
        """Aggregate the rows on each worker where the aggregates allow it, then at the owners of the groups."""
        appends = planning.appends(self.input)
        asked = Grouping(keys=self.keys, aggregates=self.aggregates, schema=self.schema, source=self.source)
        return group_flow(planning.builder, planning.input(self.input), asked, planning.needed(self), appends)

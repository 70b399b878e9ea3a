"""Group-by: one row per group of equal keys, with aggregates over its rows.

**Law** a group's row changes only if one of its rows does; linear aggregates are sums that commute with the exchange.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from dbsp.aggregates.kind import AggregateCall
from dbsp.circuit.nodes import Need, Node, Planning
from dbsp.expr.expression import Expression
from dbsp.plan.builder import Flow
from dbsp.plan.grouping import Grouping, group_flow
from dbsp.source_lines import SourceLine
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

    def plan(self, planning: Planning) -> Flow:
        """Rows summed where they are, then at the owners of the groups."""
        appends = planning.appends(self.input)
        asked = Grouping(keys=self.keys, aggregates=self.aggregates, schema=self.schema, source=self.source)
        return group_flow(planning.builder, planning.input(self.input), asked, planning.needed(self), appends)

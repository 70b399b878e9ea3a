"""Top-k: the first rows of each partition, in an order that leaves nothing to chance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from dbsp.circuit.nodes import Node, SourceLine
from dbsp.expr.expression import Expression
from dbsp.operators import top_k as physical
from dbsp.plan.builder import Flow
from dbsp.zset.schema import OrderBy, Schema

if TYPE_CHECKING:
    from dbsp.plan.planning import Planning


@dataclass(frozen=True, slots=True, kw_only=True)
class TopK(Node):
    """The first k rows per partition by `order`, ties broken by all columns; `rank` names an added int64 column 1..k."""

    input: Node
    partition: tuple[str, ...]
    order: tuple[OrderBy, ...]
    k: int
    rank: str | None
    schema: Schema
    source: SourceLine | None = field(default=None, compare=False)

    def __str__(self) -> str:
        """How many, by what, per what."""
        partition = f" per ({', '.join(self.partition)})" if self.partition else ""
        rank = f" rank {self.rank}" if self.rank else ""
        return f"top {self.k} by {', '.join(map(str, self.order))}{partition}{rank}"

    def filtered(self, condition: Expression, over: Callable[[Node, Expression], Node]) -> Node | None:
        """Below, if it keeps or drops whole partitions."""
        if not condition.columns() <= set(self.partition):
            return None
        return replace(self, input=over(self.input, condition))

    def plan(self, planning: Planning) -> Flow:
        """The rows distributed by the partition."""
        schema = self.input.schema
        flow = planning.input(self.input).pick(schema.names)
        flow = planning.builder.distribute(flow, self.partition, self.source)
        operator = physical.TopK(
            input=schema, partition=self.partition, order=self.order, k=self.k, rank=self.rank, schema=self.schema
        )
        made = planning.builder.add("top_k", operator, (flow.node,), self.schema, self.source)
        return Flow(node=made, schema=self.schema, distribution=self.partition)

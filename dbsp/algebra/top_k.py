"""Top-k: the first rows of each partition, in a total order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from dbsp.circuit.nodes import Need, Node, Planning
from dbsp.diagnostics.source_lines import SourceLine
from dbsp.expr.expression import Expression
from dbsp.operators.order import scatter
from dbsp.operators.order import top_k as physical
from dbsp.plan.builder import Flow
from dbsp.stored import stored
from dbsp.zset.schema import OrderBy, Schema


@stored("TopK", "partition order k rank offset")
@dataclass(frozen=True, slots=True, kw_only=True)
class TopK(Node):
    """The first `k` rows of each partition by `order`, after the first `offset` rows.

    All columns break ties. `rank` names an added int64 column that counts places from 1.
    """

    input: Node
    partition: tuple[str, ...]
    order: tuple[OrderBy, ...]
    k: int
    rank: str | None
    schema: Schema
    offset: int = 0
    source: SourceLine | None = field(default=None, compare=False)

    def __str__(self) -> str:
        """Return the node's text in `explain`: the number of rows, the order, the partition and the rank."""
        partition = f" per ({', '.join(self.partition)})" if self.partition else ""
        rank = f" rank {self.rank}" if self.rank else ""
        offset = f" offset {self.offset}" if self.offset else ""
        return f"top {self.k}{offset} by {', '.join(map(str, self.order))}{partition}{rank}"

    def carried(self, side: int, name: str) -> frozenset[str]:  # noqa: ARG002 (there is one input)
        """Return the set of the column's own name, if the node still has the column."""
        return frozenset([name]).intersection(self.schema.names)

    def filtered(self, condition: Expression, over: Callable[[Node, Expression], Node]) -> Node | None:
        """Push the condition below the node if it reads the partition alone, so that it keeps or drops whole partitions."""
        if not condition.columns() <= set(self.partition):
            return None
        return replace(self, input=over(self.input, condition))

    def unique(self, names: Need) -> bool:
        """Return whether the columns are unique in the input, or include the partition and, unless k is 1, the rank."""
        placed = self.k == 1 or self.rank in names
        return (placed and names.issuperset(self.partition)) or self.input.unique(names)

    def plan(self, planning: Planning) -> Flow:
        """Distribute the rows by the partition and add the operator.

        Without a partition one worker would receive all rows. Therefore the rows are first spread by a part of their hash. Each
        part passes on its own first rows, and only these meet on one worker. A row may be retracted on another worker than the
        one on which it arrived, if another partition of its table is read there. So rows must meet their retractions before the
        first rows of a part are known: the first stage cannot run where the rows arrive.
        """
        schema = self.input.schema
        flow = planning.input(self.input).pick(schema.names)
        if not self.partition:
            flow = self._of_parts(planning, flow)
        flow = planning.builder.distribute(flow, self.partition, self.source)
        operator = physical.TopKOperator(
            input=schema, partition=self.partition, order=self.order, k=self.k, offset=self.offset, rank=self.rank,
            schema=self.schema, appends=planning.appends(self.input) and bool(self.partition),
        )  # fmt: skip
        made = planning.builder.add("top_k", operator, (flow.node,), self.schema, self.source)
        return Flow(node=made, schema=self.schema, distribution=self.partition)

    def _of_parts(self, planning: Planning, flow: Flow) -> Flow:
        """Return the flow of the first `k + offset` rows of each part."""
        builder = planning.builder
        flow = builder.settle(flow, self.source)
        part = scatter.part_column(flow.schema)
        schema = Schema((*flow.schema.columns, part))
        made = builder.add("scatter", scatter.Scatter(schema=schema), (flow.node,), schema, self.source)
        spread = Flow(node=made, schema=schema, distribution=None)
        spread = builder.distribute(spread, (part.name,), self.source)
        first = physical.TopKOperator(
            input=schema,
            partition=(part.name,),
            order=self.order,
            k=self.k + self.offset,
            rank=None,
            schema=schema,
            appends=planning.appends(self.input),
        )
        made = builder.add("top_k", first, (spread.node,), schema, self.source)
        return Flow(node=made, schema=schema, distribution=(part.name,)).pick(flow.schema.names)

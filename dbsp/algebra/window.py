"""Window functions: each row with values computed from the rows around it, in the order of its partition."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from dbsp.algebra.top_k import TopK
from dbsp.circuit.nodes import Need, Node, Planning
from dbsp.diagnostics.source_lines import SourceLine
from dbsp.expr.expression import Call, ColumnRef, Expression, Function, Literal
from dbsp.operators.order import window as physical
from dbsp.operators.order.window_calls import WindowCall
from dbsp.plan.builder import Flow
from dbsp.stored import stored
from dbsp.zset.schema import OrderBy, Schema

PLACES_MAX = 1 << 10
"""The greatest k that a row number's filter makes a top-k: in a partition that changes, a top-k reads all its k rows."""
_MIRRORED = {
    "equal": "equal",
    "less": "greater",
    "less_equal": "greater_equal",
    "greater": "less",
    "greater_equal": "less_equal",
}


def places(condition: Expression, name: str) -> range | None:
    """Return the row numbers for which the condition on the column `name` is true; None if they have no end or are empty.

    Return None too if the condition has another form than a comparison of the column with an integer.

    >>> from dbsp.expr.logic import EQUAL, GREATER, LESS
    >>> [places(Call(each, (ColumnRef("n"), Literal(3))), "n") for each in (LESS, EQUAL, GREATER)]
    [range(1, 3), range(3, 4), None]
    """
    match condition:
        case Call(function=Function(name=kind), args=(ColumnRef(name=found), Literal(value=int(limit)))):
            pass
        case Call(function=Function(name=mirrored), args=(Literal(value=int(limit)), ColumnRef(name=found))):
            kind = _MIRRORED.get(mirrored, "")
        case _:
            return None
    ends = {"less": (1, limit), "less_equal": (1, limit + 1), "equal": (limit, limit + 1)}.get(kind)
    return range(*ends) if found == name and ends is not None and 1 <= ends[0] < ends[1] else None


@stored("Window", "partition order calls")
@dataclass(frozen=True, slots=True, kw_only=True)
class WindowNode(Node):
    """The input's columns, then one column per call; all columns of the input break ties in `order`."""

    input: Node
    partition: tuple[str, ...]
    order: tuple[OrderBy, ...]
    calls: tuple[WindowCall, ...]
    schema: Schema
    source: SourceLine | None = field(default=None, compare=False)

    def __str__(self) -> str:
        """Return the node's text in `explain`: the functions, the order and the partition."""
        partition = f" per ({', '.join(self.partition)})" if self.partition else ""
        return f"window {', '.join(map(str, self.calls))} by {', '.join(map(str, self.order))}{partition}"

    def carried(self, side: int, name: str) -> frozenset[str]:  # noqa: ARG002 (there is one input)
        """Return the set of the column's own name, if the node still has the column."""
        return frozenset([name]).intersection(self.schema.names)

    def kept(self, need: Need) -> Need:
        """Return all columns of the input, which decide ties, and the needed functions."""
        return frozenset(self.input.schema.names) | (need & {call.name for call in self.calls})

    def wanted(self, kept: Need) -> tuple[Need, ...]:  # noqa: ARG002 (for others to use)
        """Return all columns of the input, which decide ties."""
        return (frozenset(self.input.schema.names),)

    def filtered(self, condition: Expression, over: Callable[[Node, Expression], Node]) -> Node | None:
        """Push a condition on the partition below the node; turn the node into a top-k if the first row numbers are wanted."""
        if condition.columns() <= set(self.partition):
            return replace(self, input=over(self.input, condition))
        return self._first(condition)

    def _first(self, condition: Expression) -> TopK | None:
        """Return the top-k node that numbers only the rows that the condition keeps; None if the condition has another form.

        Unlike a window, a top-k does not renumber the rows after a change.
        """
        if [call.function for call in self.calls] != ["row_number"]:
            return None
        found = places(condition, self.calls[0].name)
        if found is None or found.stop - 1 > PLACES_MAX:
            return None
        return TopK(
            input=self.input, partition=self.partition, order=self.order, k=len(found), offset=found.start - 1,
            rank=self.calls[0].name, schema=self.schema, source=self.source,
        )  # fmt: skip

    def unique(self, names: Need) -> bool:
        """Return whether the columns are unique in the input, or include the partition and a row number."""
        numbers = {call.name for call in self.calls if call.function == "row_number"}
        return (not numbers.isdisjoint(names) and names.issuperset(self.partition)) or self.input.unique(names)

    def leaves_one(self, condition: Expression, names: Need) -> bool:
        """Return whether the condition keeps one row of each partition, and these columns include the partition."""
        numbers = [call.name for call in self.calls if call.function == "row_number"]
        chosen = [places(condition, name) for name in numbers]
        return names.issuperset(self.partition) and any(found is not None and len(found) == 1 for found in chosen)

    def plan(self, planning: Planning) -> Flow:
        """Distribute the rows by the partition and add the operator, without the functions that no node reads."""
        needed, read = planning.needed(self), self.input.schema
        flow = planning.input(self.input).pick(read.names)
        calls = tuple(call for call in self.calls if call.name in needed)
        if not calls:
            return flow
        flow = planning.builder.distribute(flow, self.partition, self.source)
        schema = self.schema.select((*read.names, *(call.name for call in calls)))
        operator = physical.WindowOperator(
            input=read, partition=self.partition, order=self.order, calls=calls, schema=schema
        )
        made = planning.builder.add("window", operator, (flow.node,), schema, self.source)
        return Flow(node=made, schema=schema, distribution=self.partition)

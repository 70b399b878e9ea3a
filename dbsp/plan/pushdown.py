"""Pushes filters down, so that rows which a filter would drop later are not joined, grouped, sent or stored.

Each kind of node states whether a condition may pass below it (`Node.filtered`). A condition passes below a join to the side
whose columns it reads, below a group-by if it reads keys alone, and so on. Only conditions that cannot fail on any row are
pushed, so no row fails that did not fail before. They are pushed only below nodes that have no other reader.

**Law** the filtered output stays the same Z-set: filters are linear, and commute with each of these nodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import reduce

from dbsp.algebra.filter import Filter
from dbsp.circuit.graph import in_order
from dbsp.circuit.nodes import Node
from dbsp.diagnostics.source_lines import SourceLine
from dbsp.expr.expression import Call, Expression, conjuncts
from dbsp.expr.logic import AND
from dbsp.expr.walking import in_order as in_order_of

_LOGIC = ("and", "or", "not", "is_null", "is_not_null", "is_in")
_COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")


def pushed_down(roots: Sequence[Node]) -> tuple[Node, ...]:
    """Return the same roots with each filter as low as possible."""
    readers = Counter(id(child) for node in in_order(roots) for child in node.children())
    readers.update(id(node) for node in roots)
    pushing = _Pushing()
    made: dict[int, Node] = {}
    for node in in_order(roots):
        inputs = tuple(made[id(child)] for child in node.children())
        same = all(a is b for a, b in zip(inputs, node.children(), strict=True))
        moved = node if same else node.with_children(inputs)
        if isinstance(moved, Filter):
            moved = pushing.filter(moved)
        made[id(node)] = moved
        if readers[id(node)] > 1:
            pushing.shared.append(moved)
    return tuple(made[id(root)] for root in roots)


def is_total(expression: Expression) -> bool:
    """Return whether an expression has a value on each row: it calls only logical operators and comparisons."""
    total = (*_LOGIC, *_COMPARISONS)
    return all(node.function.name in total for node in in_order_of(expression) if isinstance(node, Call))


@dataclass(slots=True)
class _Pushing:
    """The rewrite that pushes conditions down. It never filters a node of `shared`, because that node has other readers."""

    shared: list[Node] = field(default_factory=list)

    def filter(self, node: Filter) -> Node:
        """Push each condition of a filter below its input if possible; keep the filter for the other conditions."""
        below: Node = node.input
        kept: list[Expression] = []
        for condition in conjuncts(node.predicate):
            moved = self._below(below, condition, node.source)
            below, kept = (below, [*kept, condition]) if moved is None else (moved, kept)
        if not kept:
            return below
        if below is node.input:
            return node
        predicate = reduce(lambda left, right: Call(AND, (left, right)), kept)
        return replace(node, input=below, predicate=predicate)

    def _over(self, node: Node, condition: Expression, source: SourceLine | None) -> Node:
        """Return the node with the condition pushed down, or with a filter on top if it cannot be pushed down."""
        moved = self._below(node, condition, source)
        if moved is not None:
            return moved
        return Filter(input=node, predicate=condition, schema=node.schema, source=source)

    def _below(self, node: Node, condition: Expression, source: SourceLine | None) -> Node | None:
        """Return the node with the condition pushed below it; None if the condition must stay above."""
        read = condition.columns()
        if not read or not is_total(condition) or any(node is other for other in self.shared):
            return None
        return node.filtered(condition, lambda child, moved: self._over(child, moved, source))

"""Columns written `stream["x"]` where several streams have an x: after a join the column may be called `x_right`.

**Law** The expression `stream["x"]` denotes the column x of that stream wherever it was passed on under one name. After
a join of two streams that both have an x, `left["x"]` and `right["x"]` are two columns. Three cases are refused. The
first is a column that has several names here. The second is the key of a side that an outer join may lack. The third is
a column that reached the node through the right side of a join and cannot be followed. Any other column that cannot be
followed is taken by its name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from dbsp.aggregates.aggregate import Aggregate
from dbsp.circuit.nodes import Node, carried_by_pairs
from dbsp.errors import CircuitError
from dbsp.expr.expression import ColumnRef, Expression, OwnedColumn, rebuilt

Pairs = tuple[tuple[int, str, str], ...]
Called = Callable[[OwnedColumn], frozenset[str]]


def owned(expression: Expression, owner: Node) -> Expression:
    """Return the expression with its columns marked as those of a stream."""
    return rebuilt(expression, lambda leaf: OwnedColumn(leaf.name, owner) if isinstance(leaf, ColumnRef) else leaf)


def placed(expression: Expression, node: Node) -> Expression:
    """Return the expression with owned columns replaced by the node's own names.

    Raise `CircuitError` for a column that reached the node only through right sides of joins, where its name is unknown.
    """

    def called(column: OwnedColumn) -> frozenset[str]:
        names = _called(column, node)
        if not names and column.name in node.schema and _only_behind_joins(column.owner, node):
            hint = f'use its name after the join, such as dbsp.col("{column.name}_right")'
            raise CircuitError(f"a column of a joined stream cannot be traced to its name here: column={column}", hint)
        return names

    return _renamed(expression, called)


def placed_in_aggregate(aggregate: Aggregate, node: Node) -> Aggregate:
    """Return the aggregate with owned columns replaced by the node's own names."""
    condition = None if aggregate.condition is None else placed(aggregate.condition, node)
    order = tuple(replace(by, expression=placed(by.expression, node)) for by in aggregate.order)
    arguments = tuple(placed(a, node) for a in aggregate.arguments)
    return replace(aggregate, arguments=arguments, condition=condition, order=order)


def placed_in_pairs(
    expression: Expression, left: Node, right: Node, pairs: Pairs, keys: Mapping[str, str]
) -> Expression:
    """Return the expression with owned columns replaced by the names in pairs of rows.

    A pair's columns are (side, input name, output name); a right key has the name of its left one.
    """
    return _renamed(expression, lambda column: _of_sides(column, left, right, pairs, keys))


def _renamed(expression: Expression, called: Called) -> Expression:
    def own(leaf: Expression) -> Expression:
        if not isinstance(leaf, OwnedColumn):
            return leaf
        names = called(leaf)
        if len(names) > 1:
            either = " or ".join(f'dbsp.col("{name}")' for name in sorted(names))
            raise CircuitError(f"several columns come from this one: column={leaf}", f"write {either}")
        return ColumnRef(next(iter(names), leaf.name))

    return rebuilt(expression, own)


def _called(column: OwnedColumn, node: Node) -> frozenset[str]:
    """Return the names of an owner's column in the rows of a node; empty if the column cannot be followed."""
    if node is column.owner:
        return frozenset([column.name])
    found: set[str] = set()
    for side, child in enumerate(node.children()):
        for name in _called(column, child):
            if node.ambiguous(side, name):
                hint = 'mark the rows of one side before, .with_columns(found=dbsp.lit(True)), and look at dbsp.col("found")'
                raise CircuitError(f"the key of an outer join is that of either side: column={column}", hint)
            found |= node.carried(side, name)
    return frozenset(found)


def _only_behind_joins(owner: object, node: Node) -> bool:
    """Return whether the owner's rows reach the node through right sides of joins only."""
    return _reaches(owner, node, right=True) and not _reaches(owner, node, right=False)


def _reaches(owner: object, node: Node, *, right: bool) -> bool:
    """Return whether the owner is an ancestor of the node; right sides of joins are followed if `right` is set."""
    waiting, seen = [node], {id(node)}
    while waiting:
        found = waiting.pop()
        if found is owner:
            return True
        children = found.children() if right or found.INPUTS[:1] != ("left",) else found.children()[:1]
        waiting += [child for child in children if id(child) not in seen]
        seen |= {id(child) for child in children}
    return False


def _of_sides(column: OwnedColumn, left: Node, right: Node, pairs: Pairs, keys: Mapping[str, str]) -> frozenset[str]:
    """Return the names of an owned column in pairs of rows; a right key has the left key's name."""
    names = ((side, name) for side, node in enumerate((left, right)) for name in _called(column, node))
    return frozenset().union(*(carried_by_pairs(pairs, keys, side, name) for side, name in names))

"""Columns written `stream["x"]` where several streams have an x: after a join the column may be called `x_right`.

**Law** The expression `stream["x"]` denotes the column x of that stream wherever it was passed on under one name. After
a join of two streams that both have an x, `left["x"]` and `right["x"]` are two columns. Three cases are refused. The
first is a column that may be either; the second is the key of a side that an outer join may lack. The third is a column
that reached the node through the right side of a join and cannot be followed. Any other column that cannot be followed
is taken by its name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from dbsp.aggregates.aggregate import Aggregate
from dbsp.algebra.group_by import GroupBy
from dbsp.algebra.join import Join
from dbsp.algebra.map_rows import MapRows
from dbsp.algebra.select import Select
from dbsp.algebra.side_join import AsofJoin, LookupJoin, SideJoin
from dbsp.circuit.nodes import Node
from dbsp.errors import CircuitError
from dbsp.expr.expression import ColumnRef, Expression, OwnedColumn, rebuilt

Pairs = tuple[tuple[int, str, str], ...]
Called = Callable[[OwnedColumn], frozenset[str]]


def owned(expression: Expression, owner: Node) -> Expression:
    """Return the expression with its columns marked as those of a stream."""
    return rebuilt(expression, lambda leaf: OwnedColumn(leaf.name, owner) if isinstance(leaf, ColumnRef) else leaf)


def placed(expression: Expression, node: Node) -> Expression:
    """Return the expression with owned columns replaced by the node's own names.

    Refuse a column that reached the node through right sides of joins only, and cannot be followed.
    """

    def called(column: OwnedColumn) -> frozenset[str]:
        names = _called(column, node)
        if not names and column.name in node.schema and _only_behind_joins(column.owner, node):
            hint = f'name it by what it is called there, such as dbsp.col("{column.name}_right")'
            raise CircuitError(f"a column of a joined stream cannot be followed to here: column={column}", hint)
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
    match node:
        case Join() | SideJoin() | AsofJoin() | LookupJoin():
            keys = dict(zip(node.right_on, node.left_on, strict=True))
            names = _of_sides(column, node.left, node.right, node.columns, keys)
            for side, own in enumerate((node.left_on, node.right_on)):
                if side in _absent(node) and _called(column, (node.left, node.right)[side]) & set(own):
                    hint = 'mark the rows of one side before, .with_columns(found=dbsp.lit(True)), and look at dbsp.col("found")'
                    raise CircuitError(f"the key of an outer join is that of either side: column={column}", hint)
            return names
        case Select():
            same = {name for name, value in node.columns if value == ColumnRef(name)}
            return _called(column, node.input) & same
        case GroupBy():
            return _called(column, node.input) & set(node.keys)
        case MapRows():
            return frozenset()
    passed = [_called(column, child) for child in node.children() if node.INPUTS == ("input",)]
    return frozenset().union(*passed) & set(node.schema.names)


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


def _absent(node: Join | SideJoin | AsofJoin | LookupJoin) -> tuple[int, ...]:
    """Return the sides of a join whose row may be absent: 0 for the left, 1 for the right."""
    match node:
        case SideJoin():
            return {"left": (1,), "right": (0,), "full": (0, 1)}.get(node.how, ())
        case AsofJoin() | LookupJoin():
            return (1,) if node.outer else ()
    return ()


def _of_sides(column: OwnedColumn, left: Node, right: Node, pairs: Pairs, keys: Mapping[str, str]) -> frozenset[str]:
    """Return the names of an owned column in pairs of rows; a right key has the left key's name."""
    found: set[str] = set()
    for side, node in enumerate((left, right)):
        for name in _called(column, node):
            found |= {out for of, own, out in pairs if of == side and own == name}
            if side and name in keys:
                found.add(keys[name])
    return frozenset(found)

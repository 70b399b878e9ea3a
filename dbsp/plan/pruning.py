"""Column pruning: which columns of each logical node somebody above it needs.

Need flows from the views down. What decides the identity of rows is always needed: all columns of a distinct, a difference
and a top-k (ties are broken by all columns), all columns a user function reads, the keys of joins, groups and tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from dbsp.circuit.graph import in_order, inputs_of
from dbsp.circuit.nodes import (
    Difference,
    Distinct,
    Filter,
    GroupBy,
    Join,
    MapRows,
    Node,
    Select,
    Table,
    TopK,
    Union,
)

Need = frozenset[str]


def needed_columns(views: Sequence[Node]) -> dict[int, Need]:
    """By `id(node)`, the columns that are needed of it; a view needs all its columns."""
    need: dict[int, Need] = {id(node): frozenset() for node in in_order(views)}
    for node in views:
        need[id(node)] |= frozenset(node.schema.names)
    for node in reversed(in_order(views)):
        need[id(node)] = kept = _kept(node, need[id(node)])
        for child, wanted in zip(inputs_of(node), _of_inputs(node, kept), strict=True):
            need[id(child)] |= wanted
    return need


def _kept(node: Node, need: Need) -> Need:
    """What the node gives: what is needed, and what it cannot do without."""
    match node:
        case Table():
            return need | frozenset(node.primary_key)
        case GroupBy():
            return need | frozenset(node.keys)
        case MapRows() | Distinct() | Difference() | TopK():
            return frozenset(node.schema.names)
        case Select() | Filter() | Join() | Union():
            return need
        case _:
            assert_never(node)


def _of_inputs(node: Node, need: Need) -> tuple[Need, ...]:
    """What the node needs of each input to give `need`."""
    match node:
        case Table():
            return ()
        case Select():
            used = (value.columns() for name, value in node.columns if name in need)
            return (frozenset[str]().union(*used),)
        case Filter():
            return (need | node.predicate.columns(),)
        case Join():
            sides = [frozenset(name for of, name, out in node.columns if of == side and out in need) for side in (0, 1)]
            return sides[0] | frozenset(node.left_on), sides[1] | frozenset(node.right_on)
        case GroupBy():
            return (
                frozenset(node.keys) | {c.column for c in node.aggregates if c.column is not None and c.name in need},
            )
        case Union():
            return tuple(need for _ in node.inputs)
        case MapRows() | Distinct() | TopK():
            return (frozenset(node.input.schema.names),)
        case Difference():
            return frozenset(node.left.schema.names), frozenset(node.right.schema.names)
        case _:
            assert_never(node)

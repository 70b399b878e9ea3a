"""Column pruning: which columns of each logical node somebody above it needs.

Need flows from the views down. What decides the identity of rows is always needed, and each kind of node says what that is
(`Node.kept`, `Node.wanted`): all columns of a distinct, a difference and a top-k (ties are broken by all columns), all columns
a user function reads, the keys of joins, groups and tables.
"""

from __future__ import annotations

from collections.abc import Sequence

from dbsp.circuit.graph import in_order
from dbsp.circuit.nodes import Need, Node


def needed_columns(views: Sequence[Node]) -> dict[int, Need]:
    """By `id(node)`, the columns that are needed of it; a view needs all its columns."""
    need: dict[int, Need] = {id(node): frozenset() for node in in_order(views)}
    for node in views:
        need[id(node)] |= frozenset(node.schema.names)
    for node in reversed(in_order(views)):
        need[id(node)] = kept = node.kept(need[id(node)])
        for child, wanted in zip(node.children(), node.wanted(kept), strict=True):
            need[id(child)] |= wanted
    return need

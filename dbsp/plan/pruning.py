"""Column pruning: the columns of each logical node that a node or view above it needs.

Need propagates from the views down. The columns that decide the identity of rows are always needed; each kind of node states
them (`Node.kept`, `Node.wanted`). They are:

- all columns of a distinct, a difference and a top-k, in which all columns break ties;
- all columns that a user function reads;
- the keys of joins, groups and tables.
"""

from __future__ import annotations

from collections.abc import Sequence

from dbsp.circuit.graph import in_order
from dbsp.circuit.nodes import Need, Node


def needed_columns(views: Sequence[Node]) -> dict[int, Need]:
    """Return the needed columns by `id(node)`; a view needs all its columns."""
    need: dict[int, Need] = {id(node): frozenset() for node in in_order(views)}
    for node in views:
        need[id(node)] |= frozenset(node.schema.names)
    for node in reversed(in_order(views)):
        need[id(node)] = kept = node.kept(need[id(node)])
        for child, wanted in zip(node.children(), node.wanted(kept), strict=True):
            need[id(child)] |= wanted
    return need

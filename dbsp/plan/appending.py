"""Finds the logical nodes that only ever gain rows: a fact derived from the tables declared `append_only`.

Each kind of node states whether it preserves the fact (`Node.appends`). An operator over such an input stores only the rows
that can still reach its output. A row that another one has beaten never moves up again.
"""

from __future__ import annotations

from collections.abc import Sequence

from dbsp.circuit.graph import in_order
from dbsp.circuit.nodes import Node


def appending(views: Sequence[Node]) -> frozenset[int]:
    """Return the `id(node)` of each node from which no step takes a row away."""
    found: set[int] = set()
    for node in in_order(views):
        if node.appends([id(child) in found for child in node.children()]):
            found.add(id(node))
    return frozenset(found)

"""Which logical nodes only ever gain rows: a fact that flows from the tables declared `append_only` to the views.

Each kind of node says whether it keeps the fact (`Node.appends`). An operator over such an input keeps only what an answer can
still be made of: a row that was beaten will never move up again.
"""

from __future__ import annotations

from collections.abc import Sequence

from dbsp.circuit.graph import in_order
from dbsp.circuit.nodes import Node


def appending(views: Sequence[Node]) -> frozenset[int]:
    """The `id(node)` of every node that no step takes a row away from."""
    found: set[int] = set()
    for node in in_order(views):
        if node.appends([id(child) in found for child in node.children()]):
            found.add(id(node))
    return frozenset(found)

"""Writes a logical circuit as text, one line per node.

The inputs of a node follow it, indented. A node that is read twice is written once.
"""

from __future__ import annotations

from dbsp.algebra.table import Table
from dbsp.circuit.graph import CircuitGraph
from dbsp.circuit.nodes import Node


def explain_node(node: Node) -> str:
    """Return the text of a node and of everything below it."""
    return "\n".join(_Writer([node]).lines(node, 0))


def explain_circuit(circuit: CircuitGraph) -> str:
    """Return the text of all views of a circuit with the nodes below them."""
    writer = _Writer([node for _, node in circuit.views])
    lines, ordered = [f"circuit {circuit.name}"], dict(circuit.sorted_by)
    for name, node in circuit.views:
        kept = " (materialized)" if name in circuit.materialized else ""
        if name in ordered:
            kept = f" (materialized, sorted by {', '.join(ordered[name])})"
        lines.append(f"view {name}{kept} {node.schema}")
        lines.extend(writer.lines(node, 1))
    return "\n".join(lines)


class _Writer:
    """Writes nodes depth first; a node that is read again gets a number, which later readers refer to."""

    def __init__(self, roots: list[Node]) -> None:
        self.shared = _shared(roots)
        self.numbers: dict[int, int] = {}
        self.tables: set[int] = set()

    def lines(self, root: Node, depth: int) -> list[str]:
        """Return the lines of a node and of the nodes below it, indented."""
        lines = []
        waiting = [(depth, root)]
        while waiting:
            depth, node = waiting.pop()
            again = id(node) in self.numbers or id(node) in self.tables
            lines.append("  " * depth + self._line(node, again))
            if not again:
                waiting.extend((depth + 1, child) for child in reversed(node.children()))
        return lines

    def _line(self, node: Node, again: bool) -> str:
        if isinstance(node, Table):
            self.tables.add(id(node))
            return f"table {node.name}" if again else str(node)
        if id(node) not in self.shared:
            return str(node)
        number = self.numbers.setdefault(id(node), len(self.numbers) + 1)
        return f"#{number} again" if again else f"{node!s} #{number}"


def _shared(roots: list[Node]) -> set[int]:
    """Return the identities of the nodes that are read more than once."""
    met: set[int] = set()
    shared: set[int] = set()
    waiting = list(roots)
    while waiting:
        node = waiting.pop()
        if id(node) in met:
            shared.add(id(node))
            continue
        met.add(id(node))
        waiting.extend(node.children())
    return shared

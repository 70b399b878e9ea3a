"""Draws a circuit as a Mermaid flow chart, tables left, views right; GitHub, GitLab and notebooks display such charts."""

from __future__ import annotations

from dbsp.algebra.table import Table
from dbsp.circuit.graph import CircuitGraph, nodes_of

LABEL_LENGTH_MAX = 60


def drawing(circuit: CircuitGraph) -> str:
    """Return Mermaid text: a box per node, a cylinder per table, a stadium per view.

    **Example**

    >>> import dbsp
    >>> t = dbsp.table("t", {"x": dbsp.INT64})
    >>> print(dbsp.drawing(dbsp.circuit("demo", {"big": t.filter(dbsp.col("x") > 1)})))
    flowchart LR
      n0[("table t")]
      n1["filter (x &gt; 1)"]
      v0(["big"])
      n0 --> n1
      n1 --> v0
    """
    nodes = nodes_of(circuit)
    numbers = {id(node): index for index, node in enumerate(nodes)}
    lines = ["flowchart LR"]
    for node in nodes:
        number = numbers[id(node)]
        lines.append(
            f'  n{number}[("table {node.name}")]' if isinstance(node, Table) else f'  n{number}["{_label(str(node))}"]'
        )
    lines.extend(f'  v{index}(["{_label(name)}"])' for index, (name, _) in enumerate(circuit.views))
    for node in nodes:
        lines.extend(f"  n{numbers[id(child)]} --> n{numbers[id(node)]}" for child in node.children())
    lines.extend(f"  n{numbers[id(node)]} --> v{index}" for index, (_, node) in enumerate(circuit.views))
    return "\n".join(lines)


def _label(text: str) -> str:
    """Shorten and escape a text for Mermaid's double quotes."""
    short = text if len(text) <= LABEL_LENGTH_MAX else text[: LABEL_LENGTH_MAX - 1] + "…"
    return (
        short.replace("&", "&amp;")
        .replace('"', "&quot;")
        .replace("<", "&lt;")
        .replace(">", "&gt;")
        .replace("#", "&num;")
    )

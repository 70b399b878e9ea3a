"""The nodes of a circuit as a graph: their order, and one object for equal nodes.

Nodes compare by structure, which takes time exponential in the depth of a graph that shares nodes. So everything here proceeds
from the inputs up, and compares a node only by its own parameters and the identity of its inputs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

from dbsp.algebra.table import Table
from dbsp.circuit.nodes import Node


@dataclass(frozen=True, slots=True, kw_only=True)
class CircuitGraph:
    """The data of a circuit: named views, their tables, the materialized views, and the error policy for failing rows.

    `sorted_by` has the columns by which the rows of some materialized views are stored.
    """

    name: str
    views: tuple[tuple[str, Node], ...]
    tables: tuple[Table, ...]
    materialized: frozenset[str]
    error_policy: str = "dead-letter"
    sorted_by: tuple[tuple[str, tuple[str, ...]], ...] = ()


def parameters_of(node: Node) -> tuple[tuple[str, Any], ...]:
    """Return the (field, value) pairs of a node without its inputs, its schema and its source line."""
    others = (*node.INPUTS, "schema", "source")
    return tuple((field.name, getattr(node, field.name)) for field in fields(node) if field.name not in others)  # type: ignore[arg-type]


def in_order(roots: Iterable[Node]) -> tuple[Node, ...]:
    """Return each node reachable from the roots, once per object, with inputs before their readers."""
    done: dict[int, Node] = {}
    for root in roots:
        waiting = [root]
        while waiting:
            node = waiting[-1]
            missing = [child for child in node.children() if id(child) not in done]
            if missing and id(node) not in done:
                waiting.extend(reversed(missing))
            else:
                done.setdefault(id(node), waiting.pop())
    return tuple(done.values())


def nodes_of(circuit: CircuitGraph) -> tuple[Node, ...]:
    """Return the nodes of a circuit, inputs first; equal nodes are one object."""
    return in_order(node for _, node in circuit.views)


def shared(roots: Iterable[Node]) -> tuple[Node, ...]:
    """Return the roots rebuilt so that equal nodes are one object."""
    roots = tuple(roots)
    chosen: dict[int, Node] = {}
    known: dict[tuple[Any, ...], Node] = {}
    for node in in_order(roots):
        inputs = tuple(chosen[id(child)] for child in node.children())
        key = (type(node), parameters_of(node), node.schema, tuple(map(id, inputs)))
        if key not in known:
            same = all(a is b for a, b in zip(inputs, node.children(), strict=True))
            known[key] = node if same else node.with_children(inputs)
        chosen[id(node)] = known[key]
    return tuple(chosen[id(root)] for root in roots)

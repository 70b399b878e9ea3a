"""The nodes of a circuit as a graph: inputs, order, and one object for equal nodes.

Nodes compare by structure, which takes time exponential in the depth of a graph that shares nodes; so everything here
goes bottom up and
compares a node only by its own parameters and the identity of its inputs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace
from typing import Any, assert_never

from dbsp.circuit.nodes import (
    Circuit,
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

_INPUTS = frozenset(["input", "inputs", "left", "right", "source"])


def inputs_of(node: Node) -> tuple[Node, ...]:
    """The nodes it reads."""
    match node:
        case Table():
            return ()
        case Select() | Filter() | MapRows() | GroupBy() | Distinct() | TopK():
            return (node.input,)
        case Join() | Difference():
            return (node.left, node.right)
        case Union():
            return node.inputs
        case _:
            assert_never(node)


def with_inputs(node: Node, inputs: tuple[Node, ...]) -> Node:
    """The same node reading other inputs."""
    match node:
        case Table():
            return node
        case Select() | Filter() | MapRows() | GroupBy() | Distinct() | TopK():
            return replace(node, input=inputs[0])
        case Join() | Difference():
            return replace(node, left=inputs[0], right=inputs[1])
        case Union():
            return replace(node, inputs=inputs)
        case _:
            assert_never(node)


def in_order(roots: Iterable[Node]) -> tuple[Node, ...]:
    """Every node reachable from the roots, once per object, inputs before what reads them."""
    done: dict[int, Node] = {}
    for root in roots:
        waiting = [root]
        while waiting:
            node = waiting[-1]
            missing = [child for child in inputs_of(node) if id(child) not in done]
            if missing and id(node) not in done:
                waiting.extend(reversed(missing))
            else:
                done.setdefault(id(node), waiting.pop())
    return tuple(done.values())


def nodes_of(circuit: Circuit) -> tuple[Node, ...]:
    """The nodes of a circuit, inputs first; equal nodes are one object."""
    return in_order(node for _, node in circuit.views)


def shared(roots: Iterable[Node]) -> tuple[Node, ...]:
    """The roots rebuilt so that equal nodes are one object."""
    roots = tuple(roots)
    chosen: dict[int, Node] = {}
    known: dict[tuple[Any, ...], Node] = {}
    for node in in_order(roots):
        inputs = tuple(chosen[id(child)] for child in inputs_of(node))
        parameters = tuple(getattr(node, field.name) for field in fields(node) if field.name not in _INPUTS)
        key = (type(node), parameters, tuple(map(id, inputs)))
        if key not in known:
            same = all(a is b for a, b in zip(inputs, inputs_of(node), strict=True))
            known[key] = node if same else with_inputs(node, inputs)
        chosen[id(node)] = known[key]
    return tuple(chosen[id(root)] for root in roots)

"""Flattening of nested recursions: the views of an inner recursion become further views of the outer one.

**Law** (Bekić's lemma) if definitions are monotone, a nested least fixpoint equals the least fixpoint of both at once.
Set semantics with select, filter, join, union, distinct and a difference from a fixed stream are monotone. Min and max are
not, so they cannot be part of a nested recursion.
"""

from __future__ import annotations

from collections.abc import Sequence

from dbsp.algebra.group_by import GroupBy
from dbsp.algebra.recursive import Recursion, RecursiveView, inside
from dbsp.algebra.variable import LoopId, Variable
from dbsp.circuit.graph import in_order
from dbsp.circuit.nodes import Node
from dbsp.errors import CircuitError


def flattened(names: Sequence[str], bodies: Sequence[Node], loop: LoopId) -> tuple[tuple[str, ...], tuple[Node, ...]]:
    """Return the names and definitions of a loop, extended by those of the inner recursions that depend on it.

    An inner view gets its own name and the number of its recursion, such as `path_1`.
    """
    within = inside(bodies, loop)
    inner = [node for node in in_order(bodies) if isinstance(node, Recursion) and id(node) in within]
    if not inner:
        return tuple(names), tuple(bodies)
    _refuse_extremes([*bodies, *(body for node in inner for body in node.bodies)], {loop, *(n.loop for n in inner)})
    loops = {node.loop: number for number, node in enumerate(inner, 1)}
    made: dict[int, Node] = {}
    for node in in_order(bodies):
        made[id(node)] = _rewritten(node, made, loops, loop)
    more = [
        (f"{name}_{loops[node.loop]}", body)
        for node in inner
        for name, body in zip(node.names, node.bodies, strict=True)
    ]
    return (
        (*names, *(name for name, _ in more)),
        tuple(made[id(body)] for body in (*bodies, *(body for _, body in more))),
    )


def _rewritten(node: Node, made: dict[int, Node], loops: dict[LoopId, int], loop: LoopId) -> Node:
    """Return the node with each read of an inner recursion's view replaced by a read of a view of the outer loop."""
    match node:
        case Variable() if node.loop in loops:
            return Variable(name=f"{node.name}_{loops[node.loop]}", loop=loop, schema=node.schema, source=node.source)
        case Recursion() if node.loop in loops:
            return node
        case RecursiveView(input=Recursion() as recursion) if recursion.loop in loops:
            name = f"{node.name}_{loops[recursion.loop]}"
            return Variable(name=name, loop=loop, schema=node.schema, source=node.source)
        case _:
            children = tuple(made[id(child)] for child in node.children())
            same = all(a is b for a, b in zip(children, node.children(), strict=True))
            return node if same else node.with_children(children)


def _refuse_extremes(bodies: Sequence[Node], loops: set[LoopId]) -> None:
    within = frozenset[int]().union(*(inside(bodies, loop) for loop in loops))
    for node in in_order(bodies):
        if isinstance(node, GroupBy) and id(node) in within:
            line = "" if node.source is None else f" at={node.source}"
            raise CircuitError(
                f"min and max cannot be in a recursion that contains another one: node={node}{line}",
                "write the inner recursion's views as further views of the outer one, in one dbsp.recursive",
            )

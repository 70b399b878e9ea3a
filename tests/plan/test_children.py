"""A logical node that reads a tuple of nodes says so twice: what it reads, and itself with other inputs."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

import dbsp.algebra
from dbsp.circuit.nodes import Node


def kinds(of: type[Node] = Node) -> Iterator[type[Node]]:
    for module in pkgutil.iter_modules(dbsp.algebra.__path__):
        importlib.import_module(f"dbsp.algebra.{module.name}")
    for kind in of.__subclasses__():
        yield kind
        yield from kinds(kind)


def half(kind: type[Node]) -> bool:
    """Whether only one of the pair is its own: then a rebuilt node would hold an input in place of its tuple."""
    own = [getattr(kind, name) is not getattr(Node, name) for name in ("children", "with_children")]
    return own[0] and not own[1]


def test_every_node_can_be_rebuilt() -> None:
    found = set(kinds())
    assert len(found) > 30
    assert [kind.__name__ for kind in found if half(kind)] == []


def test_half_a_pair_is_noticed() -> None:
    planted = type("Planted", (), {"children": lambda self: (), "with_children": Node.with_children})
    assert half(planted)  # type: ignore[arg-type]  # it has what is looked at

"""Walks over sqlglot's trees without a generator for each node; a query of 10,000 terms is walked some ten times."""

from __future__ import annotations

from typing import Any

from sqlglot import exp


def children(node: Any) -> list[Any]:
    """Return the direct child nodes of a node, in the order of its arguments."""
    found: list[Any] = []
    for value in node.args.values():
        if isinstance(value, exp.Expr):
            found.append(value)
        elif isinstance(value, list):
            found += [each for each in value if isinstance(each, exp.Expr)]
    return found


def parts(root: Any, closed: type | tuple[type, ...] = ()) -> list[Any]:
    """Return all nodes of a tree, each level before the next; nodes inside a `closed` node below the root are left out."""
    found = [root]
    for node in found:  # the list grows while it is walked: a queue
        if node is root or not isinstance(node, closed):
            found += children(node)
    return found

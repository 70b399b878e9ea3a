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


_LAMBDA = "lambda"


def number_lambda(node: Any, number: int) -> None:
    """Give a lambda, or a use of its parameter, the number of the lambda in its statement; copies keep it."""
    node.meta[_LAMBDA] = number


def lambda_of(node: Any) -> int | None:
    """Return the number of a lambda, or of the lambda whose parameter this node uses; None for any other node."""
    found: int | None = node.meta_get(_LAMBDA)
    return found


def is_parameter(node: Any) -> bool:
    """Return whether the node is a use of a parameter of a lambda."""
    return isinstance(node, exp.Identifier) and lambda_of(node) is not None

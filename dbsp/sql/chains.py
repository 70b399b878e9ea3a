"""Chains of binary operators such as `a + b + c`, which the parser nests to the left, as deep as the chain is long."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlglot import exp

from dbsp.sql.intervals import SPANS

_CHAINS = frozenset([
    *(exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.And, exp.Or, exp.DPipe, exp.EQ, exp.NEQ, exp.LT, exp.LTE),
    *(exp.GT, exp.GTE, exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseXor, exp.BitwiseLeftShift, exp.BitwiseRightShift, exp.Pow),
])  # fmt: skip


def spine(node: Any, known: Callable[[Any], bool]) -> list[Any]:
    """Return the left operands of a chain, innermost first, so that their values can be computed without recursion.

    A node that is already `known` ends the chain. A product with an interval is left out, because it has no value by
    itself.
    """
    found: list[Any] = []
    while type(node) in _CHAINS and not known(node.this):
        node = node.this
        if type(node) in _CHAINS:
            found.append(node)
    if not found:
        return []
    found.reverse()
    span = _holds_span(found[0].this)
    values: list[Any] = []
    for part in found:
        span = isinstance(part, exp.Mul) and (span or _holds_span(part.expression))
        values += [] if span else [part]
    return values


def _holds_span(node: Any) -> bool:
    return node.find(*SPANS) is not None

"""Monotone bounds: for some columns of a stream, a bound below which the stream never changes again.

A watermark gives such a bound for its time column: no row below the waterline passes. A non-decreasing
function of the time, such as the end of its window, is bounded by the same function of the waterline.
A bound is the least of several such functions, so that a join of two streams has a bound too. Operators drop state that is below
a bound.

Source: design record 0006.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from dbsp.expr.expression import Call, ColumnRef, Expression, Literal
from dbsp.expr.rows import ROW_ERRORS
from dbsp.steps.timing import Waterline
from dbsp.stored import stored
from dbsp.trace.retention import RetentionBound
from dbsp.zset.order import order_codes
from dbsp.zset.schema import OrderBy

WATERLINE_COLUMN = "__waterline"
_RISING = ("bucket", "truncate", "epoch", "cast")
_MOVED = ("add", "subtract")


@stored("Edge", "node type value")
@dataclass(frozen=True, slots=True, kw_only=True)
class BoundTerm:
    """A non-decreasing function of a watermark's waterline; `type` is the type of the watermark's time column."""

    node: int
    type: pa.DataType
    value: Expression


Bound = tuple[BoundTerm, ...]
MonotoneBounds = Mapping[str, Bound]


@dataclass(frozen=True, slots=True)
class _Waterline:
    """A table of one row and one column, the waterline, on which a bound's expression is evaluated."""

    value: pa.Array

    def column(self, name: str) -> pa.Array:  # noqa: ARG002 (there is one)
        """Return the waterline column."""
        return self.value

    def __len__(self) -> int:
        """Return 1, the number of rows."""
        return 1


def watermark_bound(node: int, type_: pa.DataType) -> Bound:
    """Return the bound of a watermark's own time column."""
    return (BoundTerm(node=node, type=type_, value=ColumnRef(WATERLINE_COLUMN)),)


def bound_of(expression: Expression, monotone_bounds: MonotoneBounds) -> Bound | None:
    """Return the bound of a column computed from others; None if no bound is known."""
    rising = _rising(expression)
    if rising is None or rising not in monotone_bounds:
        return None
    return tuple(
        BoundTerm(node=edge.node, type=edge.type, value=expression.substitute({rising: edge.value}))
        for edge in monotone_bounds[rising]
    )


def _rising(expression: Expression) -> str | None:
    """Return the column of which an expression is a non-decreasing function; None if there is no such column."""
    inner: Expression | None = expression
    while isinstance(inner, Call):
        inner = _rising_argument(inner)
    return inner.name if isinstance(inner, ColumnRef) else None


def _rising_argument(call: Call) -> Expression | None:
    """Return the argument in which a call is non-decreasing; None if there is no such argument."""
    if not call.args:
        return None
    first, *rest = call.args
    name = call.function.name
    if name == "cast" and not pa.types.is_date(call.options[0]) | pa.types.is_timestamp(call.options[0]):
        return None
    if name in _RISING and not rest:
        return first
    if name in _MOVED and len(rest) == 1 and isinstance(rest[0], Literal) and rest[0].value is not None:
        return first
    if name == "add" and len(rest) == 1 and isinstance(first, Literal) and first.value is not None:
        return rest[0]
    return None


def common(several: Sequence[MonotoneBounds]) -> MonotoneBounds:
    """Return the least bound of each column that has a bound in all of `several`."""
    if not several:
        return {}
    names = set(several[0]).intersection(*several[1:])
    return {name: merged([monotone_bounds[name] for monotone_bounds in several]) for name in sorted(names)}


def merged(bounds: Sequence[Bound]) -> Bound:
    """Return the least of several bounds."""
    return tuple(dict.fromkeys(edge for bound in bounds for edge in bound))


def code_of(bound: Bound, waterlines: Mapping[int, int]) -> int | None:
    """Return the order code of a bound at the given waterlines, by node; None if a waterline is missing or evaluation fails."""
    codes: list[int] = []
    for edge in bound:
        at = waterlines.get(edge.node)
        if at is None:
            return None
        try:
            value = edge.value.evaluate(_Waterline(pa.array([at], pa.int64()).cast(edge.type)))
        except ROW_ERRORS:
            return None
        codes.append(int(order_codes(value, OrderBy("bound"))[0]))
    return min(codes)


def retention_bound(column: str, bound: Bound, waterlines: Sequence[Waterline]) -> RetentionBound | None:
    """Return the bound below which a trace may drop rows in a step; None while a waterline is missing."""
    code = code_of(bound, {line.node: line.now_us for line in waterlines})
    return None if code is None else RetentionBound(column=column, code=code)

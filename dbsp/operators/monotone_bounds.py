"""Monotone bounds: for some columns of a stream, a bound below which it never changes again.

A watermark says so of its time column: no row below the waterline passes it. What is computed from the column by a function
that never falls, such as the end of its window, has a bound, too: the function of the waterline. A bound is the least of a few
such functions, so that a join of two streams has one. Operators whose groups lie below a bound let go of them.

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
    """A function that never falls of the waterline of a watermark; `type` is that of its time column."""

    node: int
    type: pa.DataType
    value: Expression


Bound = tuple[BoundTerm, ...]
MonotoneBounds = Mapping[str, Bound]


@dataclass(frozen=True, slots=True)
class _Waterline:
    """One row: the waterline."""

    value: pa.Array

    def column(self, name: str) -> pa.Array:  # noqa: ARG002 (there is one)
        """The waterline."""
        return self.value

    def __len__(self) -> int:
        """One."""
        return 1


def watermark_bound(node: int, type_: pa.DataType) -> Bound:
    """The bound of a watermark's own column."""
    return (BoundTerm(node=node, type=type_, value=ColumnRef(WATERLINE_COLUMN)),)


def bound_of(expression: Expression, monotone_bounds: MonotoneBounds) -> Bound | None:
    """The bound of a column computed from others; None where none is known."""
    rising = _rising(expression)
    if rising is None or rising not in monotone_bounds:
        return None
    return tuple(
        BoundTerm(node=edge.node, type=edge.type, value=expression.substitute({rising: edge.value}))
        for edge in monotone_bounds[rising]
    )


def _rising(expression: Expression) -> str | None:
    """The column of which an expression is a function that never falls."""
    inner: Expression | None = expression
    while isinstance(inner, Call):
        inner = _rising_argument(inner)
    return inner.name if isinstance(inner, ColumnRef) else None


def _rising_argument(call: Call) -> Expression | None:
    """Return the argument with which a call never falls."""
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
    """Of columns that all have, the least of their bounds."""
    if not several:
        return {}
    names = set(several[0]).intersection(*several[1:])
    return {name: merged([monotone_bounds[name] for monotone_bounds in several]) for name in sorted(names)}


def merged(bounds: Sequence[Bound]) -> Bound:
    """The least of several bounds."""
    return tuple(dict.fromkeys(edge for bound in bounds for edge in bound))


def code_of(bound: Bound, waterlines: Mapping[int, int]) -> int | None:
    """The order code of a bound where the waterlines stand; None while one of them is not there."""
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
    """What a trace may drop in a step."""
    code = code_of(bound, {line.node: line.now_us for line in waterlines})
    return None if code is None else RetentionBound(column=column, code=code)

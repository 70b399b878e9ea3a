"""Ordering columns, as users write them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dbsp.diagnostics.source_lines import located, user_line
from dbsp.expr.build import BEFORE, Expr, column_name
from dbsp.expr.expression import ColumnRef, Expression
from dbsp.expr.methods.applied import unwrap
from dbsp.zset.schema import OrderBy


@dataclass(frozen=True, slots=True)
class ComputedOrder:
    """An order by an expression.

    If the expression is no column, it becomes a column below the operator that sorts.
    """

    expression: Expression
    descending: bool = False
    nulls_first: bool = False


One = str | OrderBy | ComputedOrder | Expr
Order = One | Sequence[One] | None
"""The form in which a user gives an aggregate's order: one column or expression, or a sequence of them."""


def _by(column: str | Expr, descending: bool, nulls_first: bool) -> OrderBy | ComputedOrder:
    with located(user_line()):
        # A column of a stream is an Expr too: it is known by its stream, not by its name alone.
        if isinstance(column, Expr) and type(unwrap(column)) is not ColumnRef:
            return ComputedOrder(unwrap(column), descending, nulls_first)
        return OrderBy(column_name(column, BEFORE), descending, nulls_first)


def asc(column: str | Expr, nulls_first: bool = False) -> OrderBy | ComputedOrder:
    """Return ascending order, with nulls last unless `nulls_first`."""
    return _by(column, False, nulls_first)


def desc(column: str | Expr, nulls_first: bool = False) -> OrderBy | ComputedOrder:
    """Return descending order, with nulls last unless `nulls_first`."""
    return _by(column, True, nulls_first)

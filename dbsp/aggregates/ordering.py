"""Ordering columns, as users write them."""

from __future__ import annotations

from typing import Any

from dbsp.circuit.source_lines import located, user_line
from dbsp.expr.build import BEFORE, Expr, column_name
from dbsp.zset.schema import OrderBy


def _column(column: Any) -> str:
    with located(user_line()):
        return column_name(column, BEFORE)


def asc(column: str | Expr, nulls_first: bool = False) -> OrderBy:
    """Ascending order, nulls last unless asked otherwise."""
    return OrderBy(_column(column), False, nulls_first)


def desc(column: str | Expr, nulls_first: bool = False) -> OrderBy:
    """Descending order, nulls last unless asked otherwise."""
    return OrderBy(_column(column), True, nulls_first)

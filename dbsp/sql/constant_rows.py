"""Constant rows: a query without FROM, VALUES, and lists in FROM that read no table.

They derive from the one row that an aggregate over an empty input has. So they appear once, in the first step, and
stay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlglot import exp

from dbsp.aggregates import count
from dbsp.algebra.nothing import Nothing
from dbsp.expr.build import Expr
from dbsp.expr.expression import Literal
from dbsp.sql.errors import about, refuse, understood
from dbsp.sql.expressions import lowered
from dbsp.sql.folding import folded, reads_nothing
from dbsp.sql.scope import QueryRows, Scope
from dbsp.stream.stream import Stream
from dbsp.zset.schema import list_of, struct_of


def one_row(node: Any, tables: Mapping[str, QueryRows]) -> Scope:
    """Return a scope of exactly one row without visible columns: the input of a query without FROM."""
    with about(node):
        return Scope(tables, Stream(Nothing()).aggregate(__one=count()), ())


def rows_of_values(node: Any, tables: Mapping[str, QueryRows]) -> QueryRows:
    """Return the rows of VALUES, in columns `col0`, `col1`, …, each of the common type of all its values."""
    understood(node, ("expressions", "alias", "order", "limit", "offset"))
    scope = one_row(node, tables)
    hint = "compute from columns and now() in a query that reads a table"
    rows = [_cells(row) for row in node.expressions]
    for row, cells in zip(node.expressions, rows, strict=True):
        if len(cells) != len(rows[0]):
            refuse(
                row,
                f"the rows of VALUES have different numbers of values: first={len(rows[0])} this={len(cells)}",
                "write as many",
            )
    columns = [
        folded([_value(cell, scope, "VALUES takes constants", hint) for cell in cells], cells)
        for cells in zip(*rows, strict=True)
    ]
    row = struct_of({f"col{at}": type_ for at, (type_, _) in enumerate(columns)})
    held = tuple(zip(*(values for _, values in columns), strict=True))
    with about(node):
        made = scope.stream.explode(Expr(Literal(held, list_of(row))), "__row").unnest("__row")
        return QueryRows(made.select(*(field.name for field in row)), one=len(rows) == 1)


def constant_value(node: Any) -> Any:
    """Return the Python value of the constant of a DEFAULT; None for NULL."""
    refusal, hint = "a default is a constant", "write one, such as 0, 'new' or date '2024-05-31'"
    if isinstance(node, exp.Null):
        return None
    if node.find(exp.Query):
        refuse(node, refusal, hint)
    value = _value(node, one_row(node, {}), refusal, hint)
    _, (found,) = folded([value], [node])
    return found


def _cells(row: Any) -> Sequence[Any]:
    return row.expressions if isinstance(row, exp.Tuple) else [row.this if isinstance(row, exp.Paren) else row]


def _value(node: Any, scope: Scope, refusal: str, hint: str) -> Expr:
    with about(node):
        value = lowered(node, scope)
    if not reads_nothing(value):
        refuse(node, refusal, hint)
    return value

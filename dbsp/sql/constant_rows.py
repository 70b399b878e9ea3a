"""Rows that are constants: a query without FROM, VALUES, and lists in FROM that no table is read for.

They hang on the one row that an aggregate over nothing has: so they come once, with the first step, and stay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlglot import exp

from dbsp.aggregates import count
from dbsp.algebra.table import Table
from dbsp.circuit.nodes import Node
from dbsp.expr.build import Expr, lit
from dbsp.expr.expression import Literal
from dbsp.sql.errors import about, refuse, understood
from dbsp.sql.expressions import lowered
from dbsp.sql.folding import folded, reads_nothing
from dbsp.sql.scope import Rows, Scope
from dbsp.stream.stream import Stream
from dbsp.zset.schema import list_of, struct_of

_LATERAL = "join the tables, and compute from the columns of both"


def one_row(node: Any, tables: Mapping[str, Rows]) -> Scope:
    """One row, without columns: what a query without FROM selects from."""
    table = next((found for rows in tables.values() if (found := _table_of(rows.stream.node)) is not None), None)
    if table is None:
        refuse(node, "a query that reads no table takes no steps", "give a table of the circuit beside it")
    with about(node):
        return Scope(tables, Stream(table).filter(lit(False)).aggregate(__one=count()), ())


def _table_of(node: Node) -> Table | None:
    """A table that the node reads."""
    if isinstance(node, Table):
        return node
    return next((found for child in node.children() if (found := _table_of(child)) is not None), None)


def rows_of_values(node: Any, tables: Mapping[str, Rows]) -> Rows:
    """VALUES: columns called `col0`, `col1`, …, each of a type in which all rows meet."""
    understood(node, ("expressions", "alias", "order", "limit", "offset", "with_"))
    scope = one_row(node, tables)
    rows = [_cells(row) for row in node.expressions]
    for row, cells in zip(node.expressions, rows, strict=True):
        if len(cells) != len(rows[0]):
            refuse(row, f"rows of other numbers of values: first={len(rows[0])} this={len(cells)}", "write as many")
    columns = [folded([_value(cell, scope) for cell in cells], cells) for cells in zip(*rows, strict=True)]
    row = struct_of({f"col{at}": type_ for at, (type_, _) in enumerate(columns)})
    held = tuple(zip(*(values for _, values in columns), strict=True))
    with about(node):
        made = scope.stream.explode(Expr(Literal(held, list_of(row))), "__row").unnest("__row")
        return Rows(made.select(*(field.name for field in row)), one=len(rows) == 1)


def _cells(row: Any) -> Sequence[Any]:
    return row.expressions if isinstance(row, exp.Tuple) else [row.this if isinstance(row, exp.Paren) else row]


def _value(node: Any, scope: Scope) -> Expr:
    with about(node):
        value = lowered(node, scope)
    if not reads_nothing(value):
        refuse(node, "VALUES takes constants", _LATERAL)
    return value

"""Common schemas for streams that are added or subtracted: columns matched by name, nullable where one input's column
is.
"""

from __future__ import annotations

from collections.abc import Sequence

from dbsp.algebra.select import Select
from dbsp.circuit.nodes import Node
from dbsp.diagnostics.source_lines import SourceLine
from dbsp.errors import CircuitError
from dbsp.expr.cast import castable
from dbsp.expr.expression import ColumnRef
from dbsp.expr.type_names import spelled
from dbsp.zset.schema import Column, Schema


def aligned(nodes: Sequence[Node], source: SourceLine | None) -> tuple[Node, ...]:
    """Return the nodes with one common schema: the first node's columns in its order, nullable where any node's column is.

    Raise `CircuitError` if the nodes differ in names or types of columns.
    """
    first = nodes[0].schema
    for node in nodes[1:]:
        _check_alike(first, node.schema)
    columns = tuple(Column(c.name, c.type, any(node.schema[c.name].nullable for node in nodes)) for c in first)
    wanted = Schema(columns)
    return tuple(_widened(node, wanted, source) for node in nodes)


def _widened(node: Node, schema: Schema, source: SourceLine | None) -> Node:
    if node.schema == schema:
        return node
    return Select(
        input=node, columns=tuple((name, ColumnRef(name)) for name in schema.names), schema=schema, source=source
    )


def _check_alike(first: Schema, other: Schema) -> None:
    if set(first.names) != set(other.names):
        missing = [name for name in first.names if name not in other]
        extra = [name for name in other.names if name not in first]
        raise CircuitError(
            f"columns differ: missing={missing} extra={extra}", "bring them in line with .select or .rename"
        )
    for column in first:
        type_ = other[column.name].type
        if type_ != column.type:
            cast = f'.with_columns({column.name}=dbsp.col("{column.name}").cast({spelled(column.type)}))'
            hint = f"write {cast} on the second stream" if castable(type_, column.type) else "use another column"
            raise CircuitError(f"column types differ: column={column.name} types={column.type} and {type_}", hint)

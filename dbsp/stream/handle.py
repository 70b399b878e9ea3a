"""The base class of streams: a thin handle on a logical node, with a schema. The families of methods derive from it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn, Self

from dbsp.algebra.filter import Filter
from dbsp.algebra.select import Select
from dbsp.circuit.explain import explain_node
from dbsp.circuit.nodes import Node
from dbsp.diagnostics.source_lines import SourceLine, located, user_line
from dbsp.errors import CircuitError
from dbsp.expr.answering import Answering, lacking, no_attribute
from dbsp.expr.build import Expr, column_name
from dbsp.expr.expression import ColumnRef, Expression
from dbsp.expr.methods.applied import unwrap
from dbsp.expr.names import missing_column, nearest
from dbsp.expr.resolving import resolve
from dbsp.expr.struct_functions import path_of
from dbsp.stored import stored_name
from dbsp.stream.owners import owned, placed
from dbsp.zset.schema import BOOL, Column, Schema


@dataclass(frozen=True, slots=True)
class Handle(Answering):
    """A logical node, as users hold it."""

    _CALLED: ClassVar[str] = "a Stream"
    _OTHERS: ClassVar[tuple[str, ...]] = ("stream",)

    node: Node

    @property
    def schema(self) -> Schema:
        """Return the names, types and nullability of the columns."""
        return self.node.schema

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the names of the columns, in order."""
        return self.node.schema.names

    def __getitem__(self, name: str) -> Expr:
        """Return the column of this name as an expression; an unknown name raises `CircuitError` at once.

        **Law** After a join with a stream that has a column of the same name, the expression still denotes this
        stream's column.

        **Example**

        >>> import dbsp
        >>> t = dbsp.table("t", {"id": dbsp.INT64, "at": dbsp.INT64})
        >>> u = dbsp.table("u", {"id": dbsp.INT64, "at": dbsp.INT64})
        >>> print(t.join(u, on="id").filter(t["at"] < u["at"]).explain().splitlines()[0])
        filter (at < at_right)
        """
        with located(user_line()):
            if not isinstance(name, str):
                hint = "write .filter(condition) for rows, .select(…) for columns"
                raise CircuitError(f"a column is named by a text: got={name!r}", hint)
            meant = ColumnRef(name) if name in self.schema else path_of(name, self.schema)
            if meant is None:
                raise missing_column(name, self.schema)
        return Expr(owned(meant, self.node))

    def __getattr__(self, name: str) -> NoReturn:
        """Raise `AttributeError` with a hint: how to write a column, or what other libraries' methods are called here."""
        if name != "node" and not name.startswith("_") and name in self.columns:
            hint = f'write stream["{name}"] or dbsp.col("{name}") for the column'
            raise lacking(f"a Stream has no attribute {name!r}; {hint}")
        raise no_attribute(self._CALLED, type(self), name, self._OTHERS)

    def __repr__(self) -> str:
        """Return the kind of the node and its schema."""
        return f"Stream({stored_name(type(self.node))} {self.schema})"

    def explain(self) -> str:
        """Return the query as indented text, inputs below the operators that read them.

        **Example**

        >>> import dbsp
        >>> t = dbsp.table("t", {"x": dbsp.INT64})
        >>> print(t.filter(dbsp.col("x") > 1).explain())
        filter (x > 1)
          table t (x: int64)
        """
        return explain_node(self.node)

    def _made(self, node: Node) -> Self:
        """Return a stream of this node; the families of methods return whatever class they are part of."""
        return type(self)(node)

    def _name(self, column: Any, hint: str | None = None) -> str:
        """Return the name of a column given as text or as a bare column expression."""
        return column_name(Expr(placed(unwrap(column), self.node)) if isinstance(column, Expr) else column, hint)

    def _selected(self, pairs: Sequence[tuple[str, Any]], source: SourceLine | None) -> Self:
        """Return a selection of (name, column or value) pairs."""
        if not pairs:
            raise CircuitError("a selection needs at least one column", "name one")
        resolved = tuple(
            (name, resolve(placed(_column_or_value(value, self.schema), self.node), self.schema))
            for name, value in pairs
        )
        columns = tuple(Column(name, value.type(self.schema), value.nullable(self.schema)) for name, value in resolved)
        return self._made(Select(input=self.node, columns=resolved, schema=Schema(columns), source=source))

    def _filtered(self, predicate: Expression, source: SourceLine | None) -> Self:
        """Return the rows for which a condition over the node's own names is true."""
        condition = resolve(predicate, self.schema)
        if condition.type(self.schema) != BOOL:
            hint = f"write a comparison, such as ({condition}) != 0"
            raise CircuitError(f"filter takes a condition: got={condition} type={condition.type(self.schema)}", hint)
        return self._made(Filter(input=self.node, predicate=condition, schema=self.schema, source=source))


def _column_or_value(value: Any, schema: Schema) -> Expression:
    """Return the expression of a selected value: text names a column, anything else is an expression or a constant."""
    if not isinstance(value, str):
        return unwrap(value)
    if value == "*" and value not in schema:
        hint = "write .with_columns(x=…) for all columns and some more, .drop(…) for all but some"
        raise CircuitError("a selection names its columns: got='*'", hint)
    if value not in schema and path_of(value, schema) is None:
        hint = f'{nearest(value, schema.names)}; for the text itself write dbsp.lit("{value}")'
        raise CircuitError(f'no such column: column="{value}"', hint)
    return ColumnRef(value)


def check_streams(what: str, others: Iterable[Any]) -> None:
    """Refuse arguments that are not streams; `what` names the method in the error."""
    for other in others:
        if not isinstance(other, Handle):
            raise CircuitError(
                f"{what} takes streams: got={type(other).__name__}", "give what dbsp.table or a method of it returned"
            )

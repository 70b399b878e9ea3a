"""What names mean in one SELECT: fields of its relations, each a column of one stream.

A scope is built up clause by clause: joins and subqueries add columns to its stream, a GROUP BY gives it another one. Columns
that queries add have names that begin with two underscores, and are shown by no `*`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlglot import exp

from dbsp.expr.build import Expr, col
from dbsp.expr.expression import Expression
from dbsp.expr.names import nearest
from dbsp.sql.errors import refuse
from dbsp.stream.stream import Stream
from dbsp.zset.schema import Schema, is_struct


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a query or table, columns called as they are seen; `one`: it has one row, always."""

    stream: Stream
    one: bool = False


@dataclass(frozen=True, slots=True)
class Field:
    """A name that a query can use, the relation it is of, and the stream's column; `hidden` ones are not part of `*`."""

    name: str
    of: str
    column: str
    hidden: bool = False

    def called(self, name: str, of: str | None) -> bool:
        """Whether this is meant; names have no case."""
        same = self.name.casefold() == name.casefold()
        return same and (not self.hidden if of is None else self.of.casefold() == of.casefold())


@dataclass(slots=True)
class Scope:
    """A stream, the names of its columns, and what stands for parts of the query that are computed already."""

    tables: Mapping[str, Rows]
    stream: Stream
    fields: tuple[Field, ...]
    made: dict[int, Expr] = field(default_factory=dict)
    aliases: Mapping[str, Any] = field(default_factory=dict)
    before: Scope | None = None
    groups: dict[Expression, str] = field(default_factory=dict)
    aggregates: dict[str, Expr] = field(default_factory=dict)
    expanding: tuple[str, ...] = ()

    @property
    def schema(self) -> Schema:
        """The stream's columns."""
        return self.stream.schema

    def fresh(self, name: str) -> str:
        """A name that no column has, for one that the query does not see."""
        number = 0
        while (found := f"__{name}_{number}" if number else f"__{name}") in self.schema:
            number += 1
        return found

    def holding(self, value: Expr, name: str) -> str:
        """The column that holds a value, a new one unless it is one."""
        made = self.fresh(name)
        self.stream = self.stream.with_columns(**{made: value})
        return made

    def knows(self, column: Any) -> bool:
        """Whether a column is one of these relations'."""
        return bool(self._matches(column))

    def names_alias(self, column: Any) -> bool:
        """Whether a column is what SELECT calls an expression, and not one of these relations'."""
        return not column.table and column.name.casefold() in self.aliases and not self.knows(column)

    def meant(self, node: Any) -> Any:
        """The expression that SELECT calls so, or the node itself."""
        return self.aliases[node.name.casefold()] if isinstance(node, exp.Column) and self.names_alias(node) else node

    def column(self, node: Any) -> Expr:
        """The value of a column of the query, or of a field inside one."""
        matches = self._matches(node)
        columns = {column for column, _ in matches}
        if len(columns) > 1:
            owners = sorted({f.of for f in self.fields if f.column in columns})
            hint = " or ".join(f"{owner}.{node.name}" for owner in owners if owner)
            refuse(node, f"several columns have this name: column={node.name}", f"write {hint}")
        if not matches:
            self._missing(node)
        column, inside = matches[0]
        value = col(column)
        for name in inside:
            value = value.field(name)
        return value

    def _matches(self, node: Any) -> list[tuple[str, tuple[str, ...]]]:
        """The columns that may be meant, each with the fields of structs inside it."""
        parts = [part.name for part in node.parts]
        found: list[tuple[str, tuple[str, ...]]] = []
        if len(parts) > 1:
            found = [(f.column, tuple(parts[2:])) for f in self.fields if f.called(parts[1], parts[0])]
        if not found:
            found = [
                (f.column, tuple(parts[1:]))
                for f in self.fields
                if f.called(parts[0], None) and (len(parts) == 1 or is_struct(self.schema[f.column].type))
            ]
        return found

    def _missing(self, node: Any) -> None:
        """Refuse a column that is not there."""
        of = node.table
        known = [f.name for f in self.fields if not of or f.of.casefold() == of.casefold()]
        if of and not known:
            names = dict.fromkeys(f.of for f in self.fields if f.of)
            refuse(node, f"no such table here: table={of}", nearest(of, names))
        refuse(node, f"no such column: column={node.name}", nearest(node.name, dict.fromkeys(known)))


def relation(tables: Mapping[str, Rows], rows: Rows, alias: str) -> Scope:
    """The rows under a name."""
    return Scope(tables, rows.stream, tuple(Field(name, alias, name) for name in rows.stream.columns))

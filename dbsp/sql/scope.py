"""What names mean in one SELECT: fields of its relations, each a column of one stream.

A scope is built up clause by clause: joins and subqueries add columns to its stream, a GROUP BY gives it another one. Columns
that queries add have names that begin with two underscores, and are shown by no `*`.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlglot import exp

from dbsp.expr.build import Expr, col
from dbsp.expr.expression import Expression
from dbsp.expr.names import nearest
from dbsp.sql.errors import refuse
from dbsp.sql.walks import children
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """Whether a node holds columns, holds calls over several rows, holds columns of its own scope alone; and its size."""

    columns: bool
    calls: bool
    own: bool
    size: int


@dataclass(slots=True)
class Memo:
    """The values of nodes, valid while the scope's state is this."""

    state: tuple[Any, ...] = ()
    made: int = 0
    values: dict[tuple[int, tuple[str, ...]], tuple[Any, Expr]] = field(default_factory=dict)


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
    memo: Memo = field(default_factory=Memo, init=False)
    index: tuple[Any, dict[str, list[Field]]] = field(default=(None, {}), init=False)
    known: dict[int, tuple[Any, Fact]] = field(default_factory=dict, init=False)

    def remembered(self) -> dict[tuple[int, tuple[str, ...]], tuple[Any, Expr]]:
        """Return the nodes and their values, by the nodes' ids; they are forgotten when a name changes its meaning."""
        state = (self.schema, self.fields, self.before, self.aggregates, self.aliases, self.made)
        if len(self.memo.state) != len(state) or not all(map(operator.is_, state, self.memo.state)):
            self.memo.state, self.memo.values = state, {}
        if self.memo.made != len(self.made):
            self.memo.made, self.memo.values = len(self.made), {}
        return self.memo.values

    def fact(self, node: Any) -> Fact:
        """Return what a node has in it; each node is looked at once."""
        waiting = [node]
        while waiting:
            part = waiting[-1]
            if id(part) in self.known:
                waiting.pop()
                continue
            inner = children(part)
            missing = [each for each in inner if id(each) not in self.known]
            if missing:
                waiting.extend(missing)
                continue
            self.known[id(part)] = part, self._fact(part, [self.known[id(each)][1] for each in inner])
            waiting.pop()
        return self.known[id(node)][1]

    def _fact(self, node: Any, inner: list[Fact]) -> Fact:
        is_column = isinstance(node, exp.Column)
        return Fact(
            columns=is_column or any(fact.columns for fact in inner),
            calls=isinstance(node, exp.AggFunc | exp.Window | exp.Query) or any(fact.calls for fact in inner),
            own=self.knows(node) if is_column else all(fact.own for fact in inner),
            size=1 + sum(fact.size for fact in inner),
        )

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

    def _named(self) -> dict[str, list[Field]]:
        """Return the fields by their names without case."""
        if self.index[0] is not self.fields:
            found: dict[str, list[Field]] = {}
            for each in self.fields:
                found.setdefault(each.name.casefold(), []).append(each)
            self.index = self.fields, found
        return self.index[1]

    def _matches(self, node: Any) -> list[tuple[str, tuple[str, ...]]]:
        """The columns that may be meant, each with the fields of structs inside it."""
        if node.args.get("table") is None and isinstance(node, exp.Column):
            name = node.name
            return [(f.column, ()) for f in self._named().get(name.casefold(), ()) if not f.hidden]
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

"""The meaning of names in one SELECT: fields of its relations, each a column of one stream.

A scope is built up clause by clause: joins and subqueries add columns to its stream, GROUP BY replaces the stream.
Columns that lowering adds have names with two leading underscores, and no `*` shows them.
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
from dbsp.sql.walks import children, is_parameter, parts
from dbsp.stream.stream import Stream
from dbsp.zset.schema import Schema, is_struct


@dataclass(frozen=True, slots=True)
class QueryRows:
    """The rows of a query or table, under their visible column names; `one` says that there is always exactly one row."""

    stream: Stream
    one: bool = False


@dataclass(frozen=True, slots=True)
class Field:
    """A name that a query can use, its relation, and its column in the stream; a hidden field is no part of `*`."""

    name: str
    of: str
    column: str
    hidden: bool = False

    def called(self, name: str, of: str | None) -> bool:
        """Return whether a name, with its relation or without (None), denotes this field; case is ignored.

        A hidden field is only found with its relation.
        """
        same = self.name.casefold() == name.casefold()
        return same and (not self.hidden if of is None else self.of.casefold() == of.casefold())


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """Facts about a node: whether it contains columns, contains calls, and uses columns of its scope alone; and its size.

    A call is an aggregate, a window or a query; the size counts nodes. The facts show which values GROUP BY has
    computed already.
    """

    columns: bool
    calls: bool
    own: bool
    size: int


@dataclass(slots=True)
class Memo:
    """The expressions of the syntax nodes that a scope has lowered, valid while the scope's state is `state`."""

    state: tuple[Any, ...] = ()
    made: int = 0
    values: dict[tuple[int, tuple[str, ...]], tuple[Any, Expr]] = field(default_factory=dict)


@dataclass(slots=True)
class Scope:
    """A stream, the names of its columns, and the expressions for parts of the query that are already computed.

    While a query is lowered, `made` maps nodes (by id) to their columns. After GROUP BY `before` is the scope under it,
    `groups` maps keys to columns, and `aggregates` maps calls, by their text, to columns.
    """

    tables: Mapping[str, QueryRows]
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
        """Return the lowered nodes, by id and by the aliases under expansion.

        All are dropped when a name changes its meaning.
        """
        state = (self.schema, self.fields, self.before, self.aggregates, self.aliases, self.made)
        if len(self.memo.state) != len(state) or not all(map(operator.is_, state, self.memo.state)):
            self.memo.state, self.memo.values = state, {}
        if self.memo.made != len(self.made):
            self.memo.made, self.memo.values = len(self.made), {}
        return self.memo.values

    def fact(self, node: Any) -> Fact:
        """Return the facts about a node; each node is visited once, without recursion."""
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
        if isinstance(node, exp.Lambda):  # its own parameters are no reason against it as a whole
            own = all(self.knows(part) for part in parts(node) if isinstance(part, exp.Column))
        else:
            own = self.knows(node) if is_column else all(fact.own for fact in inner)
        return Fact(
            columns=is_column or any(fact.columns for fact in inner),
            calls=isinstance(node, exp.AggFunc | exp.Window | exp.Query) or any(fact.calls for fact in inner),
            own=own and not is_parameter(node),
            size=1 + sum(fact.size for fact in inner),
        )

    @property
    def schema(self) -> Schema:
        """Return the schema of the scope's stream."""
        return self.stream.schema

    def fresh(self, name: str) -> str:
        """Return a column name that the stream does not have, with two leading underscores."""
        number = 0
        while (found := f"__{name}_{number}" if number else f"__{name}") in self.schema:
            number += 1
        return found

    def holding(self, value: Expr, name: str) -> str:
        """Add a column for a value to the stream, and return its name."""
        made = self.fresh(name)
        self.stream = self.stream.with_columns(**{made: value})
        return made

    def knows(self, column: Any) -> bool:
        """Return whether a column belongs to one of the scope's relations."""
        return bool(self._matches(column))

    def names_alias(self, column: Any) -> bool:
        """Return whether a name is an alias of SELECT, and no column of the scope's relations."""
        return not column.table and column.name.casefold() in self.aliases and not self.knows(column)

    def meant(self, node: Any) -> Any:
        """Return the expression that an alias of SELECT denotes, and any other node unchanged."""
        return self.aliases[node.name.casefold()] if isinstance(node, exp.Column) and self.names_alias(node) else node

    def column(self, node: Any) -> Expr:
        """Return the expression of a column, or of a field inside a struct column; refuse an ambiguous or unknown name."""
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
        """Return the fields by their lower-case names; the index is rebuilt when the scope's fields change."""
        if self.index[0] is not self.fields:
            found: dict[str, list[Field]] = {}
            for each in self.fields:
                found.setdefault(each.name.casefold(), []).append(each)
            self.index = self.fields, found
        return self.index[1]

    def _matches(self, node: Any) -> list[tuple[str, tuple[str, ...]]]:
        """Return the columns that a name may denote, each with the path of struct fields inside it."""
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
        """Refuse a column that no relation has, with the nearest known name."""
        of = node.table
        known = [f.name for f in self.fields if not of or f.of.casefold() == of.casefold()]
        if of and not known:
            names = dict.fromkeys(f.of for f in self.fields if f.of)
            refuse(node, f"no such table here: table={of}", nearest(of, names))
        refuse(node, f"no such column: column={node.name}", nearest(node.name, dict.fromkeys(known)))


def relation(tables: Mapping[str, QueryRows], rows: QueryRows, alias: str) -> Scope:
    """Return a scope of the rows alone, under an alias."""
    return Scope(tables, rows.stream, tuple(Field(name, alias, name) for name in rows.stream.columns))

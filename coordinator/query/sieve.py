"""Apply the WHERE, ORDER BY and LIMIT of a SELECT to a view piece by piece, so that no process holds the whole view.

**Law** DuckDB gives the same result over the rows that a sieve keeps as over the whole view. It applies the statement as it is
to them.

1. A sieve belongs to a SELECT that is the only reader of its view, as the conditions of `pushdown` do.
2. WHERE counts if it is made of the view's columns, constants and functions that depend on their arguments alone.
3. LIMIT and OFFSET count for the statement itself, if each row of the view that WHERE keeps is a row of the result. Without
   ORDER BY the read ends there; with it the first rows of all pieces so far are kept. Which of equal rows are among
   them is open, as it is in the statement.
4. A sieve that fails on a piece keeps this and all further pieces: the statement itself says what is wrong.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeAlias

import duckdb
import numpy as np
import pyarrow as pa

Tree: TypeAlias = Mapping[str, Any]

PLAIN = frozenset(
    {
        "COLUMN_REF", "VALUE_CONSTANT", "FUNCTION", "OPERATOR_CAST", "CASE_EXPR", "COLLATE", "COMPARE_BETWEEN", "COMPARE_EQUAL",
        "COMPARE_NOTEQUAL", "COMPARE_LESSTHAN", "COMPARE_LESSTHANOREQUALTO", "COMPARE_GREATERTHAN",
        "COMPARE_GREATERTHANOREQUALTO", "COMPARE_DISTINCT_FROM", "COMPARE_NOT_DISTINCT_FROM", "COMPARE_IN",
        "COMPARE_NOT_IN", "CONJUNCTION_AND", "CONJUNCTION_OR", "OPERATOR_NOT", "OPERATOR_IS_NULL",
        "OPERATOR_IS_NOT_NULL", "OPERATOR_COALESCE", "ARRAY_EXTRACT", "STRUCT_EXTRACT", "ARRAY_SLICE",
    }
)  # fmt: skip
"""Kinds of expressions whose value depends on one row alone, provided that the values of their parts do."""
CLOCKS = frozenset({"age"})
"""Functions that DuckDB does not call volatile, although their form with fewer arguments reads the clock."""
PLACE = "place of the row"
"""The name of the column that is added to a piece: the row's place."""
RESIFTED_ROWS = 65_536
"""For ORDER BY with LIMIT: the rows that may be kept beyond the limit before they are sorted and cut again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sieve:
    """The statement that keeps rows of each piece of a view: `sql` is a SELECT of their places.

    `columns` are the names that it reads, in lower case. `first` is the number of rows that are needed at most, those in
    front by the order if it is `ordered`.
    """

    sql: str
    columns: Sequence[str]
    first: int | None = None
    ordered: bool = False

    def described(self) -> str:
        """Return in words what happens to each piece.

        >>> Sieve(sql='SELECT "place of the row" FROM v WHERE (a > 1)', columns=["a"], first=3).described()
        'each piece is filtered: FROM v WHERE (a > 1), until there are 3 rows'
        """
        _, _, shown = self.sql.partition(f'SELECT "{PLACE}" ')
        shown = shown if len(shown) <= _SHOWN else f"{shown[: _SHOWN - 1]}…"
        if self.first is None:
            return f"each piece is filtered: {shown}"
        return (
            f"each piece is filtered: {shown}, {'the first' if self.ordered else 'until there are'} {self.first} rows"
        )


_SHOWN = 300


def sieves_of(statement: Tree, selects: Mapping[str, Tree], connection: duckdb.DuckDBPyConnection) -> dict[str, Sieve]:
    """Return the sieve of each view that has one; `selects` are the SELECTs that are the only readers of their views."""
    found: dict[str, Sieve] = {}
    for view, node in selects.items():
        aliases = {str(each.get("alias")).lower() for each in node.get("select_list") or ()} - {""}
        where, table = node.get("where_clause"), node["from_table"]
        called = str(table.get("alias") or table.get("table_name")).lower()
        names = _names(where, called) if where else frozenset()
        if names is None or names & aliases:
            continue  # a name in WHERE may be one of SELECT
        first, orders = _first(statement) if node is statement else (None, [])
        read = [_names(order["expression"], called) for order in orders]
        if None in read:
            first, orders, read = None, [], []
        if not where and not orders:
            continue  # a limit alone needs no statement for each piece: see `pushdown`
        sql = _written(table, where, orders, connection)
        all_names = names.union(*(each for each in read if each is not None))
        found[view] = Sieve(sql=sql, columns=sorted(all_names), first=first, ordered=bool(orders))
    return found


def _names(tree: Any, called: str) -> frozenset[str] | None:
    """Return the columns that an expression reads; None if its value may depend on more than a row of the table `called`."""
    found: set[str] = set()
    for node in _expressions(tree):
        kind = str(node.get("type"))
        if kind not in PLAIN or (kind == "FUNCTION" and not _is_pure(node)):
            return None
        if kind == "COLUMN_REF":
            *table, name = [str(part).lower() for part in node.get("column_names") or [""]]
            if table not in ([], [called]) or name == "rowid":
                return None
            found.add(name)
    return frozenset(found)


def _expressions(tree: Any) -> Iterator[Tree]:
    """Yield every expression and query of a tree, without the types of casts."""
    stack = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, list):
            stack.extend(node)
        elif isinstance(node, Mapping):
            if "class" in node or str(node.get("type")).endswith("_NODE"):
                yield node
            stack.extend(value for key, value in node.items() if key != "type_expr")


def _is_pure(node: Tree) -> bool:
    """Return whether a call gives the same value for the same arguments, one for each row."""
    name = str(node.get("function_name")).lower()
    plain = not node.get("schema") and not node.get("filter") and not node.get("distinct")
    return plain and name not in CLOCKS and name in _pure_functions()


@cache
def _pure_functions() -> frozenset[str]:
    """Return the scalar functions of DuckDB with no form that is volatile, and one at least that depends on arguments alone."""
    with duckdb.connect(":memory:") as connection:
        rows = connection.execute(
            "SELECT function_name FROM duckdb_functions() GROUP BY ALL HAVING bool_and(function_type = 'scalar')"
            " AND bool_or(stability = 'CONSISTENT') AND NOT bool_or(stability = 'VOLATILE')"
        ).fetchall()
    return frozenset(str(name) for (name,) in rows)


def _first(statement: Tree) -> tuple[int | None, list[dict[str, Any]]]:
    """Return how many rows of its view a statement needs at most, and their order; None if it may need all rows."""
    groups = [statement.get(name) for name in ("group_expressions", "group_sets", "having", "qualify")]
    columns = statement.get("select_list") or []
    modifiers = {str(each.get("type")): each for each in statement.get("modifiers") or []}
    limit = modifiers.pop("LIMIT_MODIFIER", None)
    order = modifiers.pop("ORDER_MODIFIER", None)
    stars = [each for each in columns if each.get("type") == "STAR" and not each.get("replace_list")]
    others = [each for each in columns if not any(each is star for star in stars)]
    if any(groups) or modifiers or limit is None or not all(_is_of_a_row(each) for each in others):
        return None, []
    first = rows_needed(limit)
    if first is None or order is None:
        return first, []
    orders = [_meant(each, columns, bool(stars)) for each in order.get("orders") or []]
    found = [each for each in orders if each is not None]
    return (first, found) if found and len(found) == len(orders) else (None, [])


def _is_of_a_row(column: Tree) -> bool:
    return all(
        node.get("type") in PLAIN and (node.get("type") != "FUNCTION" or _is_pure(node))
        for node in _expressions(column)
    )


def _meant(order: Tree, columns: Sequence[Tree], has_star: bool) -> dict[str, Any] | None:
    """Return a part of ORDER BY over the view's columns: of an alias or a number, the column of SELECT; None if unknown."""
    expression = order["expression"]
    if expression.get("type") == "VALUE_CONSTANT":
        literal = expression.get("literal") or {}
        number = int(str(literal.get("text"))) if literal.get("kind") == "INTEGER" else 0
        if has_star or not 1 <= number <= len(columns):
            return None
        return {**order, "expression": {**columns[number - 1], "alias": ""}}
    aliased = {str(each.get("alias")).lower(): each for each in columns if each.get("alias")}
    names = [str(part).lower() for part in expression.get("column_names") or ()]
    if expression.get("type") == "COLUMN_REF" and len(names) == 1 and names[0] in aliased:
        return {**order, "expression": {**aliased[names[0]], "alias": ""}}
    inner = {
        str(node.get("column_names", [""])[-1]).lower()
        for node in _expressions(expression)
        if node.get("type") == "COLUMN_REF"
    }
    return None if inner & aliased.keys() else dict(order)


def rows_needed(limit: Tree) -> int | None:
    """Return LIMIT and OFFSET together; None if they are no plain numbers."""
    if limit.get("limit_type", "ROW_COUNT") != "ROW_COUNT" or limit.get("limit") is None:
        return None
    numbers = [_number(limit.get(name)) for name in ("limit", "offset") if limit.get(name) is not None]
    return None if None in numbers else sum(number for number in numbers if number is not None)


def _number(node: Any) -> int | None:
    literal = node.get("literal") if isinstance(node, Mapping) and node.get("type") == "VALUE_CONSTANT" else None
    text = str((literal or {}).get("text"))
    return int(text) if (literal or {}).get("kind") == "INTEGER" and text.isdecimal() else None


def _written(table: Tree, where: Any, orders: Sequence[Tree], connection: duckdb.DuckDBPyConnection) -> str:
    """Return `SELECT place FROM table WHERE … ORDER BY …` as text."""
    ((text,),) = connection.execute("SELECT json_serialize_sql(?)", [f'SELECT "{PLACE}"']).fetchall()
    tree = json.loads(text)
    modifiers = [{"type": "ORDER_MODIFIER", "orders": list(orders)}] if orders else []
    tree["statements"][0]["node"] |= {"from_table": table, "where_clause": where, "modifiers": modifiers}
    ((sql,),) = connection.execute("SELECT json_deserialize_sql(?::JSON)", [json.dumps(tree)]).fetchall()
    return str(sql)


@dataclass(slots=True)
class Sifting:
    """The rows of a view that are kept so far; the tables have no weights: each row occurs as often as it counts."""

    view: str
    sieve: Sieve
    connection: duckdb.DuckDBPyConnection
    kept: list[pa.Table] = field(default_factory=list)
    failed: bool = False

    def add(self, piece: pa.Table) -> bool:
        """Keep the needed rows of a piece; return whether further pieces are needed."""
        if self.failed:
            self.kept.append(piece)
            return True
        try:
            self.kept.append(self._sifted(piece))
        except duckdb.Error:
            self.failed = True
            self.kept.append(piece)
            return True
        first, rows = self.sieve.first, sum(map(len, self.kept))
        if first is None or (self.sieve.ordered and rows <= first + RESIFTED_ROWS):
            return True
        if self.sieve.ordered:
            self.kept = [self._sifted(pa.concat_tables(self.kept))]
            return True
        return rows < first

    @property
    def size(self) -> int:
        """Return the bytes of the kept rows."""
        return sum(each.nbytes for each in self.kept)

    def table(self) -> pa.Table:
        """Return the kept rows."""
        return pa.concat_tables(self.kept)

    def _sifted(self, rows: pa.Table) -> pa.Table:
        limit = "" if self.sieve.first is None else f" LIMIT {self.sieve.first}"
        self.connection.register(self.view, rows.append_column(PLACE, pa.array(np.arange(len(rows)))))
        try:
            places = self.connection.sql(f"{self.sieve.sql}{limit}").to_arrow_table().column(0)
        finally:
            self.connection.unregister(self.view)
        return rows.take(places)

"""SELECT, set operations and WITH: a query becomes rows, lowered clause by clause in the order that SQL defines."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import groupby
from typing import Any

from sqlglot import exp

from dbsp.aggregates.ordering import asc, desc
from dbsp.expr.build import Expr, col, lit
from dbsp.expr.expression import ColumnRef, Literal
from dbsp.expr.methods.applied import unwrap
from dbsp.expr.names import nearest
from dbsp.expr.resolving import resolve
from dbsp.sql.constant_rows import rows_of_values
from dbsp.sql.errors import about, refuse, understood
from dbsp.sql.expressions import lowered
from dbsp.sql.grouping import aggregates_in, grouped, key_sets, text_of
from dbsp.sql.joining import conditions_of
from dbsp.sql.relations import Tables, with_names
from dbsp.sql.scope import QueryRows, Scope
from dbsp.sql.subqueries import attached, opened, restricted
from dbsp.sql.types import common, constant, is_constant
from dbsp.sql.walks import parts
from dbsp.sql.windows import windowed, windows_in
from dbsp.stream.recursion import recursive
from dbsp.stream.stream import Stream

BINARY_MAX = 512
"""A chain of more set operations of one kind becomes one node, a shorter one a node per operation.

Version 0.1.0 made a node per operation of shorter chains, and the circuits that it stored must stay equal.
"""
_ENDS = ("order", "limit", "offset")
_OPERATION = ("this", "expression", "distinct", *_ENDS, "with_")
_ORDER = "write order by, so that the rows are always the same"


@dataclass(frozen=True, slots=True)
class Item:
    """A column of SELECT: its name, and its expression; a column from a star has `column` instead of `node`."""

    name: str
    node: Any
    column: str = ""


def rows_of(node: Any, tables: Tables) -> QueryRows:
    """Return the rows of a query: a SELECT, a set operation, VALUES, or any of them in brackets."""
    tables = _with(node, tables)
    if isinstance(node, exp.Subquery):
        inside = rows_of(node.this, tables)
        return _cut(node, inside)
    if isinstance(node, exp.SetOperation):
        return _cut(node, _combined(node, tables))
    if isinstance(node, exp.Select):
        return _selected(node, tables)
    if isinstance(node, exp.Values):
        return _cut(node, rows_of_values(node, tables))
    what = type(node).__name__.lower()
    return refuse(node, f"not a query: what={what}", "write select … from …")


def _with(node: Any, tables: Tables) -> Tables:
    """Return the tables extended by the queries of WITH; each query is lowered once."""
    clause = node.args.get("with_")
    if clause is None:
        return tables
    known, named = dict(tables), set[str]()
    for query in clause.expressions:
        understood(query, ("this", "alias", "materialized"))
        if query.alias.casefold() in named:
            refuse(
                query, f"two queries of one name in WITH: name={query.alias}", "give each query of WITH its own name"
            )
        named.add(query.alias.casefold())
        names = query.args["alias"].columns
        if clause.args.get("recursive") and _calls(query.this, query.alias):
            made = _recursive(query, known, names)
        else:
            made = with_names(query, rows_of(query.this, known), names)
        known = _naming(known, query.alias, made)
    return known


def _naming(tables: Tables, name: str, rows: QueryRows) -> dict[str, QueryRows]:
    """Return the tables extended by one more, which hides a table of the same name."""
    return {**{other: each for other, each in tables.items() if other.casefold() != name.casefold()}, name: rows}


def _calls(node: Any, name: str) -> bool:
    return any(table.name.casefold() == name.casefold() for table in node.find_all(exp.Table))


def _recursive(query: Any, tables: Tables, names: Sequence[Any]) -> QueryRows:
    """Return the rows of a recursive query: its start, and all that its last part derives until nothing new appears."""
    whole = query.this
    if not isinstance(whole, exp.Union) or _calls(whole.this, query.alias):
        refuse(
            query,
            "a recursive query is a start, UNION, and a part that reads the query itself",
            "name it in the last part alone",
        )
    if not whole.args.get("distinct"):
        refuse(whole, "recursion by UNION ALL may never end", "write union")
    start = with_names(query, rows_of(whole.this, tables), names)

    def further(stream: Stream) -> Stream:
        found = rows_of(whole.expression, _naming(tables, query.alias, QueryRows(stream)))
        return _alike(whole, start.stream, found.stream)[1]

    with about(query):
        return QueryRows(recursive(start.stream, further))


def _combined(node: Any, tables: Tables) -> QueryRows:
    """Return the rows of UNION, EXCEPT and INTERSECT; columns are matched by position.

    The parser nests a chain of set operations to the left; a loop unwinds it, so that its length needs no deep
    recursion.
    """
    chain = [(node, tables)]
    while isinstance(node.this, exp.SetOperation) and not any(node.this.args.get(key) for key in _ENDS):
        node = node.this
        chain.append((node, _with(node, chain[-1][1])))
    chain.reverse()
    rows = rows_of(node.this, chain[0][1])
    for together in _runs(chain):
        rows = _together(together, rows) if len(together) > BINARY_MAX else _one_by_one(together, rows)
    return rows


def _runs(chain: Sequence[tuple[Any, Tables]]) -> list[list[tuple[Any, Tables]]]:
    """Return the operations of a chain in runs: consecutive ones of the same kind, all with DISTINCT or all without."""
    runs = groupby(chain, key=lambda each: (type(each[0]), bool(each[0].args.get("distinct"))))
    return [list(run) for _, run in runs]


def _one_by_one(chain: Sequence[tuple[Any, Tables]], rows: QueryRows) -> QueryRows:
    """Return the rows of a run as a chain of operators with two inputs each."""
    for node, tables in chain:
        rows = _of_two(node, rows, rows_of(node.expression, tables))
    return rows


def _together(chain: Sequence[tuple[Any, Tables]], rows: QueryRows) -> QueryRows:
    """Return the rows of a long run of unions as one operator, whose depth does not grow with their number.

    Runs of EXCEPT and INTERSECT stay chains of operators with two inputs.
    """
    if not isinstance(chain[0][0], exp.Union):
        return _one_by_one(chain, rows)
    streams = [rows.stream]
    for node, tables in chain:
        understood(node, _OPERATION)
        streams.append(rows_of(node.expression, tables).stream)
        _check_counts(node, streams[0], streams[-1])
    node = chain[-1][0]
    types = [
        reduce(
            lambda one, other: _meeting(node, name, one, other), (stream.schema.columns[at].type for stream in streams)
        )
        for at, name in enumerate(streams[0].columns)
    ]
    first, *others = (_as_types(stream, streams[0].columns, types) for stream in streams)
    with about(node):
        return QueryRows(first.union(*others, distinct=bool(node.args.get("distinct"))))


def _of_two(node: Any, left_rows: QueryRows, right_rows: QueryRows) -> QueryRows:
    """Return the rows of one set operation on two inputs."""
    understood(node, _OPERATION)
    left, right = _alike(node, left_rows.stream, right_rows.stream)
    all_ = not node.args.get("distinct")
    with about(node):
        if isinstance(node, exp.Union):
            return QueryRows(left.union(right, distinct=not all_))
        made = left.intersect(right, all=all_) if isinstance(node, exp.Intersect) else left.difference(right, all=all_)
        return QueryRows(made)


def _alike(node: Any, left: Stream, right: Stream) -> tuple[Stream, Stream]:
    """Return both sides with the left side's column names, and each column in the common type."""
    _check_counts(node, left, right)
    types = [
        _meeting(node, name, left.schema[name].type, right.schema[source].type)
        for name, source in zip(left.columns, right.columns, strict=True)
    ]
    return _as_types(left, left.columns, types), _as_types(right, left.columns, types)


def _check_counts(node: Any, left: Stream, right: Stream) -> None:
    """Refuse a set operation whose sides differ in their number of columns."""
    if len(left.columns) != len(right.columns):
        counts = f"left={len(left.columns)} right={len(right.columns)}"
        refuse(node, f"a set operation of other numbers of columns: {counts}", "select as many columns on both sides")


def _meeting(node: Any, name: str, left: Any, right: Any) -> Any:
    """Return the common type of one column of both sides; refuse types that have none."""
    found = common(left, right)
    if found is None:
        shown = f"column={name} left={left} right={right}"
        refuse(
            node, f"columns of these types cannot be combined: {shown}", "cast one of them, such as cast(x as bigint)"
        )
    return found


def _as_types(stream: Stream, names: Sequence[str], types: Sequence[Any]) -> Stream:
    """Return the stream with these column names, and casts to these types where they differ."""
    columns = {
        name: col(own) if stream.schema[own].type == type_ else col(own).cast(type_)
        for name, own, type_ in zip(names, stream.columns, types, strict=True)
    }
    return _only(stream, columns)


def _only(stream: Stream, columns: Mapping[str, Expr]) -> Stream:
    """Return the stream with exactly these columns; the stream itself if it has them already."""
    same = [name for name, value in columns.items() if unwrap(value) == ColumnRef(name)]
    return stream if same == list(stream.columns) and len(columns) == len(same) else stream.select(**columns)


def _selected(select: Any, tables: Tables) -> QueryRows:
    """Return the rows of a SELECT, clause by clause: FROM and WHERE, GROUP BY, HAVING, windows, QUALIFY, then the columns."""
    scope = opened(select, None, tables, rows_of).scope
    items = _items(select, scope)
    nodes = [item.node for item in items if item.node is not None]
    having, qualify, order, distinct = (select.args.get(key) for key in ("having", "qualify", "order", "distinct"))
    shown = [*nodes, *([by.this for by in order.expressions] if order is not None else [])]
    shown += distinct.args["on"].expressions if distinct is not None and distinct.args.get("on") else []
    later = [*shown, *(part.this for part in (having, qualify) if part is not None)]
    named = {
        c.name.casefold(): None
        for part in later
        for c in parts(part)
        if isinstance(c, exp.Column) and scope.names_alias(c)
    }
    later += [scope.aliases[name] for name in named]
    aggregates = [found for node in later for found in aggregates_in(node)]
    sets = key_sets(select, [item.node if item.node is not None else exp.column(item.column) for item in items])
    windows = [window for node in later for window in windows_in(node)]
    several = sets is not None or aggregates or windows
    names = {text_of(node): item.name for item in items if several and (node := item.node) is not None}
    # HAVING, QUALIFY and LIMIT may drop the row: the conditions below account for them
    one = select.args.get("from_") is None and select.args.get("where") is None
    if sets is not None or aggregates:
        attached(scope, [*aggregates, *(key for keys in sets or [] for key in keys)], rows_of)
        scope = grouped(scope, sets or [[]], aggregates, names)
        one = sets is None and having is None
        items = [_behind(item, scope, select) for item in items]
    if having is not None:
        if scope.before is None:
            refuse(having, "HAVING without groups", "write where")
        restricted(scope, conditions_of(having), rows_of)
    attached(scope, [*shown, *windows, *(select.args.get("windows") or [])], rows_of)
    if windows:
        windowed(scope, windows, select, names)
    if qualify is not None:
        restricted(scope, conditions_of(qualify), rows_of)
    lists = [
        found for node in nodes for found in node.find_all(exp.Explode) if found.find_ancestor(exp.Query) is select
    ]
    _exploded(scope, lists)
    return _shown(select, scope, items, one=one and qualify is None and not lists)


def _exploded(scope: Scope, nodes: Sequence[Any]) -> None:
    """Expand the list that SELECT unnests to one row for each element; refuse a second list."""
    if len(nodes) > 1:
        refuse(nodes[1], "only one list can be unnested in SELECT", "unnest them in FROM, one after the other")
    for node in nodes:
        with about(node):
            list_ = scope.holding(lowered(node.this, scope), "list")
            element = scope.fresh("element")
            scope.stream = scope.stream.explode(list_, element)
            scope.made[id(node)] = col(element)


def _behind(item: Item, scope: Scope, select: Any) -> Item:
    """Return an item of SELECT after GROUP BY: a column from a star becomes its key; refuse one that is no key."""
    if item.node is None:
        key = scope.groups.get(ColumnRef(item.column))
        if key is None:
            refuse(select, f"neither grouped by nor inside an aggregate: column={item.name}", "name the columns")
        return replace(item, column=key)
    return item


def _items(select: Any, scope: Scope) -> list[Item]:
    """Return the columns of SELECT, with stars expanded and each name made unique."""
    found: list[Item] = []
    for node in select.expressions:
        if isinstance(node, exp.Star):
            found += _star(node, None, scope)
        elif isinstance(node, exp.Column) and isinstance(node.this, exp.Star):
            found += _star(node.this, node.table, scope)
        elif isinstance(node, exp.Alias):
            found.append(Item(node.alias, node.this))
        elif isinstance(node, exp.Aliases | exp.Columns):
            refuse(node, "COLUMNS(…) is not supported", "name the columns")
        else:
            found.append(Item(_name_of(node), node))
    taken: set[str] = set()
    return [replace(item, name=_free(item.name, taken)) for item in found]


def _free(name: str, taken: set[str]) -> str:
    """Return the name, with a number appended if it is taken, as DuckDB names the columns of a view; note it in `taken`."""
    found, number = name, 0
    while found.casefold() in taken:
        number += 1
        found = f"{name}_{number}"
    taken.add(found.casefold())
    return found


def _name_of(node: Any) -> str:
    """Return the name of a column that has no alias."""
    while isinstance(node, exp.Paren | exp.Cast | exp.Filter | exp.Window | exp.IgnoreNulls):
        node = node.this
    if isinstance(node, exp.Column | exp.Dot):
        return str(node.name)
    if isinstance(node, exp.Anonymous):
        return str(node.name).lower()
    return str(node.sql_name()).lower() if isinstance(node, exp.Func) else "value"


def _star(node: Any, of: str | None, scope: Scope) -> list[Item]:
    """Return the columns that a star denotes, after EXCLUDE, REPLACE, RENAME and ILIKE."""
    left_out = {column.name.casefold() for column in node.args.get("except_") or []}
    replaced = {alias.alias.casefold(): alias.this for alias in node.args.get("replace") or []}
    renamed = {alias.this.name.casefold(): alias.alias for alias in node.args.get("rename") or []}
    if of is None:  # shows both keys of a join, although they are the same column
        fields = [f for f in scope.fields if not f.hidden]
    else:  # a key of USING is hidden under its relation's name; show it once
        own = [f for f in scope.fields if f.of.casefold() == of.casefold()]
        seen = {f.column for f in own if not f.hidden}
        chosen = [f for f in own if not f.hidden or f.column not in seen]
        fields = list({(f.name, f.column): f for f in chosen}.values())
    if not fields:
        refuse(node, f"no such table here: table={of}", nearest(of, dict.fromkeys(f.of for f in scope.fields)))
    names = {f.name.casefold() for f in fields}
    for name in left_out | set(replaced) | set(renamed):
        if name not in names:
            refuse(node, f"no such column: column={name}", nearest(name, [f.name for f in fields]))
    kept = [f for f in fields if f.name.casefold() not in left_out]
    if node.args.get("ilike") is not None:
        wanted = _matching(node.args["ilike"])
        kept = [f for f in kept if wanted.fullmatch(f.name)]
        if not kept:
            refuse(node, "no column has such a name", nearest(node.args["ilike"].name, [f.name for f in fields]))
    return [
        Item(f.name, replaced[f.name.casefold()])
        if f.name.casefold() in replaced
        else Item(renamed.get(f.name.casefold(), f.name), None, f.column)
        for f in kept
    ]


def _matching(node: Any) -> re.Pattern[str]:
    """Return the pattern of column names that the constant text of ILIKE denotes."""
    if not isinstance(node, exp.Literal) or not node.is_string:
        refuse(node, "the pattern of column names must be a constant text", "write select * ilike 'a%'")
    signs = {"%": ".*", "_": "."}
    return re.compile(
        "".join(signs.get(letter) or re.escape(letter) for letter in node.this), re.IGNORECASE | re.DOTALL
    )


def _shown(select: Any, scope: Scope, items: Sequence[Item], *, one: bool) -> QueryRows:
    """Return the columns of SELECT, after DISTINCT, ORDER BY and LIMIT.

    Columns for an order that SELECT does not show are added to the stream first, and removed at the end.
    """
    outputs: dict[str, Expr] = {}
    for item in items:
        with about(item.node if item.node is not None else select):
            outputs[item.name] = col(item.column) if item.node is None else _typed(item.node, lowered(item.node, scope))
    distinct = select.args.get("distinct")
    limit = _limit(select)
    orders, added = (
        _orders(select, scope, outputs) if limit is not None or (distinct and distinct.args.get("on")) else ([], {})
    )
    on = distinct.args.get("on") if distinct else None
    with about(select):
        if on is not None:
            if not orders:
                refuse(distinct, "DISTINCT ON needs ORDER BY: without it any row of a group may be kept", _ORDER)
            keys = {f"__on{at}": _distinct_key(key, scope, outputs) for at, key in enumerate(on.expressions)}
            stream = _only(scope.stream, {**outputs, **added, **keys})
            stream = stream.limit(1, by=orders, partition_by=list(keys))
        else:
            stream = _only(scope.stream, {**outputs, **added})
            if distinct:
                if added:
                    refuse(
                        select.args["order"],
                        "SELECT DISTINCT can be ordered only by selected columns",
                        "select it too",
                    )
                stream = stream.distinct()
    stream = _first(select, stream, limit, orders)
    return QueryRows(_only(stream, {name: col(name) for name in outputs}), one and limit is None)


def _distinct_key(node: Any, scope: Scope, outputs: Mapping[str, Expr]) -> Expr:
    """Return a key of DISTINCT ON; a whole number denotes a column of SELECT, counted from 1."""
    is_place = isinstance(node, exp.Literal) and not node.is_string
    return outputs[_place(node, outputs, "DISTINCT ON")] if is_place else lowered(node, scope)


def _typed(node: Any, value: Expr) -> Expr:
    """Return the value of a column; refuse a null without a type."""
    if is_constant(value) and constant(value) is None and isinstance(e := unwrap(value), Literal) and e.dtype is None:
        refuse(node, "a null has no type here", "write cast(null as bigint)")
    return value


def _limit(node: Any) -> tuple[int, int] | None:
    """Return the constants of LIMIT and OFFSET, or None without either; refuse OFFSET alone."""
    limit, offset = node.args.get("limit"), node.args.get("offset")
    if limit is None and offset is None:
        return None
    if limit is None:
        refuse(offset, "OFFSET needs LIMIT: alone it would keep all rows in order", "write limit … offset …")
    understood(limit, ("expression", "count", "direction", "this", "limit_options"))
    options = limit.args.get("limit_options")
    if options is not None:
        understood(options, ("rows",))
    first = limit.args.get("count") if isinstance(limit, exp.Fetch) else limit.expression
    counts: list[Any] = [first, offset.expression if offset is not None else exp.Literal.number(0)]
    for count in counts:
        if not isinstance(count, exp.Literal) or count.is_string or not str(count.this).isdigit():
            refuse(node.args["limit"], "LIMIT and OFFSET take whole numbers", "write limit 10 offset 5")
    return int(counts[0].this), int(counts[1].this)


def _orders(node: Any, scope: Scope | None, outputs: Mapping[str, Expr]) -> tuple[list[Any], dict[str, Expr]]:
    """Return the order by names of output columns, and the columns to add for other expressions, by their new names."""
    clause = node.args.get("order")
    orders: list[Any] = []
    added: dict[str, Expr] = {}
    names = {name.casefold(): name for name in outputs}
    for by in clause.expressions if clause is not None else []:
        with about(by):
            name = _order_name(by.this, scope, outputs, names, added)
        orders.append((desc if by.args.get("desc") else asc)(name, nulls_first=bool(by.args.get("nulls_first"))))
    return orders, added


def _order_name(
    node: Any, scope: Scope | None, outputs: Mapping[str, Expr], names: Mapping[str, str], added: dict[str, Expr]
) -> str:
    if isinstance(node, exp.Literal) and not node.is_string:
        return _place(node, outputs, "ORDER BY")
    if isinstance(node, exp.Column) and not node.table and node.name.casefold() in names:
        return names[node.name.casefold()]
    if scope is None:
        return refuse(node, "a set operation can be ordered only by its output columns", nearest(node.name, outputs))
    value = lowered(node, scope)
    expression = resolve(unwrap(value), scope.schema)
    for name, output in outputs.items():
        if resolve(unwrap(output), scope.schema) == expression:
            return name
    name = f"__order{len(added)}"
    added[name] = value
    return name


def _place(node: Any, outputs: Mapping[str, Expr], clause: str) -> str:
    """Return the name of the output column that a whole number denotes, counted from 1."""
    at = int(node.this)
    if not 1 <= at <= len(outputs):
        refuse(node, f"{clause} has no such position: place={at} columns={len(outputs)}", "name the column")
    return list(outputs)[at - 1]


def _first(node: Any, stream: Stream, limit: tuple[int, int] | None, orders: Sequence[Any]) -> Stream:
    """Return the stream cut by LIMIT and OFFSET, or unchanged without a limit; refuse a limit without an order."""
    if limit is None:
        return stream
    if not limit[0]:
        return stream.filter(lit(False))
    if not orders:
        refuse(node.args["limit"], "LIMIT needs ORDER BY: without it any rows may be kept", _ORDER)
    with about(node.args["limit"]):
        return stream.limit(limit[0], by=list(orders), offset=limit[1])


def _cut(node: Any, rows: QueryRows) -> QueryRows:
    """Return the rows cut by the LIMIT of a set operation, or of a query in brackets."""
    limit = _limit(node)
    if limit is None:
        return rows
    outputs = {name: col(name) for name in rows.stream.columns}
    orders, _ = _orders(node, None, outputs)
    return QueryRows(_first(node, rows.stream, limit, orders))

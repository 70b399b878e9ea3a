"""FROM: tables, queries in brackets, joins, USING, and UNNEST."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlglot import exp

from dbsp.expr.build import Expr, coalesce, col
from dbsp.expr.methods.applied import unwrap
from dbsp.expr.names import nearest
from dbsp.sql.constant_rows import one_row, rows_of_values
from dbsp.sql.errors import about, refuse, understood
from dbsp.sql.expressions import lowered
from dbsp.sql.joining import conjuncts, connected, filtered, inner, outer, own_columns, pair_of, partnered
from dbsp.sql.scope import Field, QueryRows, Scope, relation

Tables = Mapping[str, QueryRows]
Query = Callable[[Any, Tables], QueryRows]
_LISTS = "write the condition in WHERE, or in a query around it"
_ELEMENT = "element"
_BUCKETS = "group by time_bucket(interval '1 hour', ts); windows that overlap are in Python (docs/streams.md)"
_WINDOWED = dict.fromkeys(("tumble", "hop", "session", "cumulate"), _BUCKETS)
"""Hints for the functions that other engines have for windows in FROM."""
"""The key in the meta data of an UNNEST node for the name of its elements if the query gives none."""
_NATURAL = "name the columns, join t using (k), so that a new column does not change the answer"


def sources(select: Any, tables: Tables, query: Query, where: Sequence[Any]) -> tuple[Scope, list[Any]]:
    """Return the scope of the joined relations of FROM, and the conditions of WHERE that no join used."""
    begin = select.args.get("from_")
    if begin is None:
        return one_row(select, tables), list(where)
    groups: list[list[Any]] = [[begin.this]]
    for join in select.args.get("joins") or []:
        if _is_comma(join) and not _is_of_rows_before(join.this):
            groups.append([join.this])
        else:
            groups[-1].append(join)
    parts: list[Scope] = []
    conditions: list[Any] = []
    for group in groups:
        found, said = _group(group, tables, query, parts)
        parts += found
        conditions += said
    scope, left = connected(parts, [*conditions, *where])
    outside = [node for node in left if any(node is said for said in conditions)]
    for node in outside:
        for column in own_columns(node):
            scope.column(column)
    return scope, left


def _is_comma(join: Any) -> bool:
    return not any(join.args.get(key) for key in ("on", "using", "side", "kind", "method"))


def _as_list(node: Any) -> Any:
    """Return `range(…)` or `generate_series(…)` in FROM as an UNNEST of its list, and any other node unchanged."""
    if not (isinstance(node, exp.Table) and isinstance(node.this, exp.GenerateSeries)):
        return node
    understood(node, ("this", "alias", "ordinality"))
    alias = node.args["alias"].copy() if node.args.get("alias") is not None else None
    offset = node.args.get("ordinality") or None
    if offset and alias is not None and len(alias.columns) > 1:
        offset = alias.columns.pop()
    made = exp.Unnest(expressions=[node.this.copy()], alias=alias, offset=offset)
    made.meta[_ELEMENT] = "range" if node.this.args.get("is_end_exclusive") else "generate_series"
    made.parent = node.parent
    return made


def _is_of_rows_before(node: Any) -> bool:
    """Return whether the node is a list that is computed from columns of a relation before it."""
    node = _as_list(node)
    return isinstance(node, exp.Unnest) and any(own_columns(list_) for list_ in node.expressions)


def _group(
    group: Sequence[Any], tables: Tables, query: Query, before: Sequence[Scope] = ()
) -> tuple[list[Scope], list[Any]]:
    """Return the relations between two commas of FROM, and the conditions between them that are still to be applied.

    Inner joins stay separate relations, which can be joined in any order. All other joins are joined here, because
    their result depends on the order in the query. `before` are the scopes of earlier groups, for UNNEST.
    """
    parts, conditions = [_source(group[0], tables, query)], list[Any]()
    for join in group[1:]:
        _check(join)
        if _is_of_rows_before(join.this):
            conditions += _unnested(join, [*parts, *before])
            continue
        right = _source(join.this, tables, query)
        if join.side or join.kind in ("SEMI", "ANTI") or join.args.get("using"):
            left, rest = connected(parts, conditions)
            filtered(left, rest)
            parts, conditions = [_joined(join, left, right)], []
        else:
            parts.append(right)
            conditions += conjuncts(join.args.get("on"))
    return parts, conditions


def _check(join: Any) -> None:
    if join.method == "NATURAL":
        refuse(join, "natural joins are not supported", _NATURAL)
    if join.method:
        method = join.method.lower()
        hint = "in Python it is .asof_join(…)" if method == "asof" else "write an inner or outer join"
        refuse(join, f"this join is not supported: join={method}", hint)
    understood(join, ("this", "side", "kind", "on", "using", "pivots"))
    if join.kind not in ("", "INNER", "CROSS", "OUTER", "SEMI", "ANTI"):
        refuse(join, f"this join is not supported: join={join.kind.lower()}", "write an inner or outer join")
    if isinstance(join.this, exp.Lateral):
        refuse(join, "lateral queries are not supported", "join a grouped query on its keys, or unnest a list")


def _source(node: Any, tables: Tables, query: Query) -> Scope:
    """Return the scope of one relation of FROM, under its name."""
    node = _as_list(node)
    if isinstance(node, exp.Table | exp.Subquery):
        understood(node, ("this", "alias", "db", "with_"))
    if isinstance(node, exp.Table):
        return _named(node, tables)
    if isinstance(node, exp.Subquery) and isinstance(node.this, exp.Table) and not node.alias:
        return _bracketed(node.this, tables, query)
    if isinstance(node, exp.Subquery):
        return _aliased(node, query(node.this, tables), node.alias, tables)
    if isinstance(node, exp.Values):
        return _aliased(node, rows_of_values(node, tables), node.alias, tables)
    if isinstance(node, exp.Unnest):
        scope = one_row(node, tables)
        _unnest(node, scope, outer=False)
        return scope
    what = type(node).__name__.lower()
    return refuse(node, f"this is not supported in FROM: what={what}", "name a table, or a query in brackets")


def _bracketed(node: Any, tables: Tables, query: Query) -> Scope:
    """Return the scope of joins inside brackets, which are joined before the rest."""
    first, joins = node.copy(), node.args.get("joins") or []
    first.set("joins", None)
    scope, rest = connected(*_group([first, *joins], tables, query))
    filtered(scope, rest)
    return scope


def _named(node: Any, tables: Tables) -> Scope:
    if not isinstance(node.this, exp.Identifier):
        what = node.this.sql(dialect="duckdb")
        hint = _WINDOWED.get(node.this.name.casefold(), "there are range, generate_series and unnest")
        refuse(node, f"this function is not supported in FROM: what={what}", hint)
    if node.args.get("db") is not None:
        refuse(node, "tables have no schema here", f"write {node.name}")
    known = {name.casefold(): rows for name, rows in tables.items()}
    if node.name.casefold() not in known:
        refuse(node, f"no such table: table={node.name}", nearest(node.name, tables))
    return _aliased(node, known[node.name.casefold()], node.alias or node.name, tables)


def _aliased(node: Any, rows: QueryRows, alias: str, tables: Tables) -> Scope:
    """Return a scope of the rows under an alias, with new names for the columns if the query gives them."""
    named = node.args.get("alias")
    return relation(tables, with_names(node, rows, [] if named is None else named.columns), alias)


def with_names(node: Any, rows: QueryRows, names: Sequence[Any]) -> QueryRows:
    """Return the rows with new names for their first columns; refuse more names than columns."""
    if len(names) > len(rows.stream.columns):
        refuse(
            node, f"more names than columns: names={len(names)} columns={len(rows.stream.columns)}", "leave some out"
        )
    others = {old: new.name for old, new in zip(rows.stream.columns, names, strict=False) if old != new.name}
    return replace(rows, stream=rows.stream.rename(others)) if others else rows


def _joined(join: Any, left: Scope, right: Scope) -> Scope:
    """Return the scope of an outer, semi or anti join, or a join with USING.

    A right join is a left join with its sides swapped; its names are then put back in the order of the query.
    """
    using = [name.name for name in join.args.get("using") or []]
    if join.side == "RIGHT":
        swapped = _joined_as(join, right, left, "left", using)
        order = {f: at for at, f in enumerate([*left.fields, *right.fields])}
        swapped.fields = tuple(sorted(swapped.fields, key=lambda f: order.get(f, -1)))
        return _merged(swapped, using, right) if using else _in_order(swapped, left)
    how = {"LEFT": "left", "FULL": "full"}.get(join.side, join.kind.lower() or "inner")
    made = _joined_as(join, left, right, how, using)
    return made if not using or how in ("semi", "anti") else _merged(made, using, right)


def _in_order(scope: Scope, left: Scope) -> Scope:
    """Put the scope's names in the order in which the query has the relations."""
    first = {(f.of, f.name) for f in left.fields}
    own = [f for f in scope.fields if (f.of, f.name) in first]
    scope.fields = (*own, *(f for f in scope.fields if f not in own))
    return scope


def _joined_as(join: Any, left: Scope, right: Scope, how: str, using: Sequence[str]) -> Scope:
    said = [_equal(name, left, right, join) for name in using] or conjuncts(join.args.get("on"))
    pairs, rest = [], []
    for node in said:
        with about(node):
            pair = node if isinstance(node, tuple) else pair_of(node, left, right)
        if pair is not None:
            pairs.append(pair)
        elif how in ("left", "semi", "anti") and _only_of(node, right) and not _only_of(node, left):
            filtered(right, [node])
        else:
            rest.append(node)
    if how in ("semi", "anti"):
        partnered(left, right, pairs, how, rest)
        return left
    if how == "inner":
        made = inner(left, right, pairs)
        filtered(made, rest)
        return made
    return outer(left, right, pairs, how, rest)


def _only_of(node: Any, scope: Scope) -> bool:
    columns = own_columns(node)
    return bool(columns) and all(scope.knows(column) for column in columns) and node.find(exp.Query) is None


def _equal(name: str, left: Scope, right: Scope, join: Any) -> tuple[Expr, Expr]:
    """Return the pair of keys for one column of USING; refuse a column that a side lacks."""
    column = exp.column(name)
    for scope in (left, right):
        if not scope.knows(column):
            known = dict.fromkeys(f.name for f in scope.fields)
            refuse(join, f"a side of USING has no such column: column={name}", nearest(name, known))
    equal = pair_of(exp.EQ(this=exp.column(name), expression=exp.column(name)), left, right)
    assert equal is not None  # noqa: S101 (both sides have it)
    return equal


def _merged(scope: Scope, using: Sequence[str], right: Scope) -> Scope:
    """Merge the columns of USING into one visible name each: the value of the side that has the row."""
    sides = {f.of for f in right.fields}
    for name in using:
        own = [f for f in scope.fields if f.name.casefold() == name.casefold() and not f.hidden]
        columns = list(dict.fromkeys(f.column for f in own))
        shown = Field(own[0].name, next((f.of for f in own if f.of not in sides), ""), columns[0])
        if len(columns) > 1:
            merged = coalesce(*(col(each) for each in columns))
            shown = Field(own[0].name, "", scope.holding(Expr(unwrap(merged)), "using"))
        place = scope.fields.index(own[0])
        fields = tuple(replace(f, hidden=True) if f in own else f for f in scope.fields)
        scope.fields = (*fields[:place], shown, *fields[place:])
    return scope


def _unnested(join: Any, parts: Sequence[Scope]) -> list[Any]:
    """Expand a list of an earlier relation to one row for each element; return the conditions of ON that are left."""
    node, on = _as_list(join.this), join.args.get("on")
    if join.side in ("RIGHT", "FULL") or join.kind in ("SEMI", "ANTI") or join.args.get("using"):
        refuse(join, "UNNEST of a column can be joined only by a comma, JOIN or LEFT JOIN", _LISTS)
    is_true = isinstance(on, exp.Boolean) and bool(on.this)
    if join.side == "LEFT" and on is not None and not is_true:
        refuse(on, "LEFT JOIN with UNNEST takes no condition but TRUE", _LISTS)
    columns = own_columns(_list_in(node))
    owners = [part for part in parts if all(part.knows(column) for column in columns)]
    if not owners:
        refuse(node, "UNNEST takes a list of one earlier relation", "write from t, unnest(t.tags) as u(tag)")
    _unnest(node, owners[0], outer=join.side == "LEFT")
    return [] if is_true else conjuncts(on)


def _list_in(node: Any) -> Any:
    """Return the list of an UNNEST; refuse several."""
    if len(node.expressions) != 1:
        refuse(node, "UNNEST takes one list", "unnest lists one after the other")
    return node.expressions[0]


def _unnest(node: Any, scope: Scope, *, outer: bool) -> None:
    """Expand each row of the scope to one row for each element of a list, and name the element and its position.

    A column that has only the relation's alias can also be called by the default name, hidden from `*`.
    """
    understood(node, ("expressions", "alias", "offset"))
    alias = node.args.get("alias")
    names = [name.name for name in alias.columns] if alias is not None else []
    default = node.meta.get(_ELEMENT, "unnest")
    of = alias.name if alias is not None else default
    with about(node):
        list_ = scope.holding(lowered(_list_in(node), scope), "list")
        element, position = scope.fresh("element"), scope.fresh("position")
        offset = node.args.get("offset")  # True, or the last alias, which the parser puts here
        scope.stream = scope.stream.explode(list_, element, position=position if offset else None, outer=outer)
    if names or offset or of == default:
        fields = [Field(names[0] if names else default, of, element)]
    else:
        fields = [Field(of, of, element), Field(default, of, element, hidden=True)]
    if offset:
        fields.append(Field(getattr(offset, "name", "ordinality"), of, position))
    scope.fields = (*scope.fields, *fields)

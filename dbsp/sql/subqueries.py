"""Queries inside expressions: EXISTS and IN become semi and anti joins with SQL's rules for nulls, scalar queries
become joins.

A subquery may use columns of the outer query in equalities of its WHERE, which become the join's keys; EXISTS also in
other comparisons. A condition that is a subquery becomes a join that filters. Inside an expression it becomes a left
join and a column.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlglot import exp

from dbsp.aggregates import count
from dbsp.algebra.filter import Filter
from dbsp.algebra.table import Table
from dbsp.expr.build import Expr, coalesce, col, lit, when
from dbsp.expr.expression import ColumnRef, Literal, natural_type
from dbsp.expr.methods.applied import unwrap
from dbsp.expr.resolving import resolve
from dbsp.expr.types import adopt
from dbsp.sql.errors import about, refuse, understood
from dbsp.sql.expressions import is_subquery, lowered
from dbsp.sql.grouping import aggregates_in, calls_of
from dbsp.sql.joining import Pair, conditions_of, filtered, has_query, outer, own_columns, partnered
from dbsp.sql.relations import Query, sources
from dbsp.sql.scope import Scope, relation
from dbsp.sql.types import common, constant, is_constant, type_in
from dbsp.sql.walks import children
from dbsp.zset.schema import BOOL, NO_COLUMNS

_CLAUSES = (
    *("expressions", "distinct", "from_", "joins", "where", "group", "having", "windows", "qualify", "order", "limit"),
    *("offset", "with_"),
)
_CORRELATED = "use columns of the outer query only in equalities of the subquery's WHERE, such as where i.k = o.k"
_ONE_ROW = "write an aggregate, such as (select max(x) from …), or look up a table by its whole primary key"


@dataclass(frozen=True, slots=True)
class OpenedQuery:
    """FROM and WHERE of a query, with its conditions on the outer query.

    `pairs` are the outer and inner values that must be equal, `rest` the other conditions on both queries.
    """

    scope: Scope
    pairs: tuple[tuple[Any, Any], ...] = ()
    rest: tuple[Any, ...] = ()

    @property
    def correlated(self) -> bool:
        """Return whether the query depends on columns of the outer query."""
        return bool(self.pairs or self.rest)

    def keys(self, around: Scope) -> list[Pair]:
        """Return the equalities with the outer query as keys of a join, in common types."""
        return [
            _alike(lowered(one, around), lowered(other, self.scope), around, self.scope, one)
            for one, other in self.pairs
        ]


def opened(select: Any, around: Scope | None, tables: Any, query: Query) -> OpenedQuery:
    """Return the rows of FROM that satisfy WHERE; set conditions on the outer query apart.

    `around` is the scope of the outer query, or None for a query that is no subquery.
    """
    understood(select, _CLAUSES)
    where = select.args.get("where")
    scope, left = sources(select, tables, query, conditions_of(where))
    scope.aliases = {item.alias.casefold(): item.this for item in select.expressions if isinstance(item, exp.Alias)}
    pairs: list[tuple[Any, Any]] = []
    rest: list[Any] = []
    plain: list[Any] = []
    for node in left:
        if around is None or not _is_outside(node, scope, around):
            plain.append(node)
            continue
        if has_query(node):
            refuse(node, "a subquery here depends on two outer queries", _CORRELATED)
        found = _pair(node, scope, around)
        (rest if found is None else pairs).append(node if found is None else found)
    restricted(scope, plain, query)
    return OpenedQuery(scope, tuple(pairs), tuple(rest))


def restricted(scope: Scope, conditions: Sequence[Any], query: Query) -> None:
    """Filter the scope's rows by conditions, which may be or contain subqueries."""
    for node in conditions:
        with about(node):
            if not _joined(scope, node, query):
                attached(scope, [node], query)
                filtered(scope, [node])


def attached(scope: Scope, nodes: Sequence[Any], query: Query) -> None:
    """Add a column to the scope for the value of every subquery in the nodes, and in the aliases of SELECT that they use."""
    for node in nodes:
        for part in _queries(node, scope):
            if id(part) in scope.made:
                continue
            with about(part):
                kept = scope.stream.columns
                value = _value(scope, part, query)
                scope.made[id(part)] = value
                _keep(scope, kept, value)


def _keep(scope: Scope, before: Sequence[str], value: Expr) -> None:
    """Drop the columns that a join added, except those that the value reads."""
    wanted = {*before, *unwrap(value).columns()}
    if set(scope.stream.columns) != wanted:
        scope.stream = scope.stream.select(*(name for name in scope.stream.columns if name in wanted))


def _queries(node: Any, scope: Scope) -> Iterator[Any]:
    """Yield the outermost subqueries of an expression, each with its EXISTS or IN; refuse ALL and ANY."""
    seen: set[str] = set()
    waiting = [node]
    while waiting:
        part = waiting.pop()
        if is_subquery(part):
            yield part
        elif isinstance(part, exp.Column):
            name = part.name.casefold()
            if scope.names_alias(part) and name not in seen:
                seen.add(name)
                waiting.append(scope.aliases[name])
        elif isinstance(part, exp.All | exp.Any):
            hint = "compare with (select max(x) from …), or write x in (…)"
            refuse(part, "comparisons with ALL and ANY are not supported", hint)
        else:
            waiting.extend(reversed(children(part)))


def _is_outside(node: Any, scope: Scope, around: Scope) -> bool:
    """Return whether the node names a column that only the outer query has."""
    return any(
        not scope.knows(column) and column.name.casefold() not in scope.aliases and around.knows(column)
        for column in own_columns(node)
    )


def _pair(node: Any, scope: Scope, around: Scope) -> tuple[Any, Any] | None:
    """Return an equality as its outer and its inner value, or None for another condition."""
    if not isinstance(node, exp.EQ):
        return None
    for one, other in ((node.this, node.expression), (node.expression, node.this)):
        outside = all(around.knows(c) and not scope.knows(c) for c in own_columns(one)) and own_columns(one)
        if outside and own_columns(other) and all(scope.knows(c) for c in own_columns(other)):
            return one, other
    return None


def _alike(one: Expr, other: Expr, left: Scope, right: Scope, node: Any) -> Pair:
    one, other = _typed(one, type_in(other, right.schema)), _typed(other, type_in(one, left.schema))
    types = type_in(one, left.schema), type_in(other, right.schema)
    if types[0] == types[1] or types[0] is None or types[1] is None:
        return one, other
    type_ = common(*types)
    if type_ is None:
        shown = f"left={types[0]} right={types[1]}"
        refuse(node, f"values of these types cannot be equal: {shown}", "cast one of them, such as cast(x as bigint)")
    left_, right_ = (side if of == type_ else side.cast(type_) for side, of in zip((one, other), types, strict=True))
    return left_, right_


def _typed(value: Expr, beside: Any) -> Expr:
    """Return a constant in the type of the value it is compared with, or in its natural type; other values stay unchanged."""
    if not is_constant(value) or beside is None or type_in(value, NO_COLUMNS) is not None:
        return value
    return Expr(adopt(constant(value), beside) or Literal(constant(value), natural_type(constant(value))))


def _joined(scope: Scope, node: Any, query: Query) -> bool:
    """Return whether the whole condition is a subquery; if so, a semi or anti join has been added for it."""
    wanted = True
    while isinstance(node, exp.Paren | exp.Not):
        wanted = wanted != isinstance(node, exp.Not)
        node = node.this
    if isinstance(node, exp.Exists):
        _exists(scope, node, query, "semi" if wanted else "anti")
        return True
    if isinstance(node, exp.In) and node.args.get("query") is not None:
        _in(scope, node, query, wanted=wanted)
        return True
    return False


def _select_of(node: Any) -> Any:
    """Return the query inside brackets."""
    while isinstance(node, exp.Subquery):
        node = node.this
    return node


def _is_plain(select: Any) -> bool:
    """Return whether a query only filters and projects, so that a join on its FROM and WHERE finds the same partners."""
    ends = ("group", "having", "qualify", "limit", "offset", "with_")
    return (
        isinstance(select, exp.Select) and not any(select.args.get(key) for key in ends) and not _has_aggregates(select)
    )


def _has_aggregates(select: Any) -> bool:
    return any(True for item in select.expressions for _ in aggregates_in(item))


def _exists(scope: Scope, node: Any, query: Query, how: str) -> None:
    found, pairs = _partner(scope, node, query)
    partnered(scope, found.scope, pairs, how, found.rest)


def _partner(scope: Scope, node: Any, query: Query) -> tuple[OpenedQuery, list[Pair]]:
    """Return the rows that EXISTS tests, and the keys of the join with them."""
    select = _select_of(node.this)
    if _is_plain(select):
        found = opened(select, scope, scope.tables, query)
        return found, found.keys(scope)
    return OpenedQuery(relation(scope.tables, _alone(select, scope, query), "")), []


def _alone(select: Any, scope: Scope, query: Query) -> Any:
    """Return the rows of a query that does not depend on the outer query; refuse one that does."""
    if (
        isinstance(select, exp.Select)
        and not select.args.get("with_")
        and opened(select, scope, scope.tables, query).correlated
    ):
        refuse(select, "a subquery that groups, limits or counts cannot depend on the outer query here", _CORRELATED)
    return query(select, scope.tables)


@dataclass(frozen=True, slots=True)
class Members:
    """The rows that IN compares with: pairs of keys, the first `keys` of them correlations, the others the compared values.

    `nulls` says whether a compared value on either side may be null.
    """

    values: tuple[Expr, ...]
    members: Scope
    pairs: tuple[Pair, ...]
    keys: int
    nulls: bool


def _members(scope: Scope, node: Any, query: Query) -> Members:
    """Lower both sides of IN."""
    select = _select_of(node.args["query"])
    values = node.this.expressions if isinstance(node.this, exp.Tuple) else [node.this]
    attached(scope, values, query)
    wanted = tuple(lowered(value, scope) for value in values)
    if _is_plain(select) and (found := opened(select, scope, scope.tables, query)).correlated:
        if found.rest:
            refuse(found.rest[0], "a subquery of IN cannot compare further with the outer query", "write exists (…)")
        items = [item.this if isinstance(item, exp.Alias) else item for item in select.expressions]
        inside, keys = found.scope, found.keys(scope)
        attached(inside, items, query)
        given = [lowered(item, inside) for item in items]
    else:
        inside, keys = relation(scope.tables, _alone(select, scope, query), ""), []
        given = [col(name) for name in inside.stream.columns]
    if len(given) != len(wanted):
        refuse(
            node, f"IN compares other numbers of columns: left={len(wanted)} right={len(given)}", "name as many columns"
        )
    pairs = [_alike(one, other, scope, inside, node) for one, other in zip(wanted, given, strict=True)]
    nulls = any(
        resolve(unwrap(value), of.schema).nullable(of.schema)
        for pair in pairs
        for value, of in zip(pair, (scope, inside), strict=True)
    )
    return Members(wanted, inside, (*keys, *pairs), len(keys), nulls)


def _in(scope: Scope, node: Any, query: Query, *, wanted: bool) -> None:
    """Apply IN or NOT IN as a condition on the scope's rows.

    If nulls are possible, NOT IN also counts rows and nulls per key, because one null makes it unknown.
    """
    found = _members(scope, node, query)
    if not wanted and found.nulls:
        kept = scope.stream.columns
        rows, nulls, value = _counted(scope, found, node)
        scope.stream = scope.stream.filter((rows == 0) | (value.is_not_null() & (nulls == 0))).select(*kept)
    partnered(scope, found.members, found.pairs, "semi" if wanted else "anti")


def _counted(scope: Scope, found: Members, node: Any) -> tuple[Expr, Expr, Expr]:
    """Add the number of members, and of null members, to each row; return them with the compared value.

    NOT IN is never true if one of the members is null.
    """
    if len(found.values) > 1:
        refuse(
            node,
            "IN of several columns that may be null is not supported in NOT IN or inside an expression",
            "write not exists (…)",
        )
    value, member = found.pairs[-1]
    side = replace(found.members, fields=(), made={})
    names = [side.holding(pair[1], "by") for pair in found.pairs[: found.keys]]
    rows, nulls = scope.fresh("rows"), scope.fresh("nulls")
    calls: dict[str, Any] = {rows: count(), nulls: count().where(member.is_null())}
    if not names:
        scope.stream = scope.stream.cross_join(side.stream.aggregate(**calls))
        return col(rows), col(nulls), value
    side.stream = side.stream.group_by(*names).aggregate(**calls)
    keys = [(pair[0], col(name)) for pair, name in zip(found.pairs, names, strict=False)]
    _beside(scope, outer(scope, side, keys, "left"))
    return coalesce(col(rows), 0), coalesce(col(nulls), 0), value


def _beside(scope: Scope, made: Scope) -> None:
    """Replace the scope's stream by that of a join with it; the scope's names stay."""
    scope.stream = made.stream


def _value(scope: Scope, node: Any, query: Query) -> Expr:
    if isinstance(node, exp.Exists):
        found, pairs = _partner(scope, node, query)
        if found.rest:
            hint = "write it as a condition of its own in WHERE, joined by AND"
            refuse(found.rest[0], "EXISTS inside an expression can compare only by equality", hint)
        return _marked(scope, found.scope, pairs).is_not_null()
    if isinstance(node, exp.In):
        return _membership(scope, node, query)
    return _scalar(scope, node, query)


def _marked(scope: Scope, other: Scope, pairs: Sequence[Pair]) -> Expr:
    """Add a column that is true for rows with a partner and null for others, and return it."""
    side = replace(other, fields=(), made={})
    names = [side.holding(pair[1], "by") for pair in pairs]
    if names:
        side.stream = side.stream.select(*names).distinct()
    else:
        names = [side.fresh("by")]
        side.stream = side.stream.select(**{names[0]: lit(1)}).distinct()
    mark = scope.fresh("found")
    side.stream = side.stream.with_columns(**{mark: lit(True)})
    keys = [(pair[0], col(name)) for pair, name in zip(pairs, names, strict=False)]
    _beside(scope, outer(scope, side, keys, "left"))
    return col(mark)


def _membership(scope: Scope, node: Any, query: Query) -> Expr:
    """Return IN inside an expression as a value: true, false or null."""
    found = _members(scope, node, query)
    if not found.nulls:
        return _marked(scope, found.members, found.pairs).is_not_null()
    rows, nulls, value = _counted(scope, found, node)
    mark = _marked(scope, found.members, found.pairs)
    unknown = (rows > 0) & (value.is_null() | (nulls > 0))
    return when(mark.is_not_null(), lit(True)).when(unknown, Expr(Literal(None, BOOL))).otherwise(lit(False))


def _scalar(scope: Scope, node: Any, query: Query) -> Expr:
    """Return the value of a query in brackets; refuse a query that may have several rows or columns."""
    select = _select_of(node)
    if isinstance(select, exp.Select) and not select.args.get("with_"):
        if len(select.expressions) != 1 or select.is_star:
            refuse(node, "a scalar subquery has one column", "select one")
        found = opened(select, scope, scope.tables, query)
        if found.correlated:
            return _per_key(scope, select, found, query)
    rows = query(select, scope.tables)
    if len(rows.stream.columns) != 1:
        refuse(node, "a scalar subquery has one column", "select one")
    name = scope.fresh("value")
    stream = rows.stream.rename({rows.stream.columns[0]: name})
    if rows.one:
        scope.stream = scope.stream.cross_join(stream)
    elif _limit_of(select) == 1:
        _beside(scope, outer(scope, Scope(scope.tables, stream, ()), [], "left"))
    else:
        refuse(node, "a scalar subquery may return several rows", _ONE_ROW)
    return col(name)


def _limit_of(select: Any) -> int | None:
    limit = select.args.get("limit")
    expression = None if limit is None else limit.args.get("expression")
    return int(expression.this) if isinstance(expression, exp.Literal) and not expression.is_string else None


def _per_key(scope: Scope, select: Any, found: OpenedQuery, query: Query) -> Expr:
    """Return the value of a correlated query by a left join on its keys.

    The query is an aggregate per key, or one column of a table that is looked up by its whole primary key.
    """
    if found.rest:
        refuse(
            found.rest[0],
            "a scalar subquery can compare with the outer query only by equality",
            _CORRELATED,
        )
    if any(select.args.get(key) for key in ("group", "having", "limit", "offset", "distinct", "qualify")):
        refuse(select, "a correlated scalar subquery cannot group or limit its rows", _ONE_ROW)
    item = select.expressions[0]
    item = item.this if isinstance(item, exp.Alias) else item
    pairs = found.keys(scope)
    side = found.scope
    aggregates = list(aggregates_in(item))
    if not aggregates:
        _check_unique(select, side, pairs)
        attached(side, [item], query)
        value = side.holding(lowered(item, side), "value")
        _only(side, pairs, [value])
        return _placed(scope, side, pairs, [value])[0]
    attached(side, aggregates, query)
    names = [side.holding(pair[1], "by") for pair in pairs]
    calls = calls_of(aggregates, side, {})
    made: dict[str, Any] = {name: call for name, call, _ in calls.values()}
    side.stream = side.stream.group_by(*names).aggregate(**made)
    keys = [(pair[0], col(name)) for pair, name in zip(pairs, names, strict=True)]
    columns = _placed(scope, replace(side, fields=(), made={}), keys, [name for name, _, _ in calls.values()])
    counted = [zero for _, _, zero in calls.values()]
    values = [coalesce(value, 0) if zero else value for value, zero in zip(columns, counted, strict=True)]
    after = replace(
        scope, aggregates=dict(zip(calls, values, strict=True)), before=scope.before or scope, made=scope.made
    )
    return lowered(item, after)


def _check_unique(select: Any, side: Scope, pairs: Sequence[Pair]) -> None:
    """Refuse a query that may have several rows per key: the keys must contain the primary key of its table."""
    node: Any = side.stream.node
    while isinstance(node, Filter):
        node = node.input
    keys = {e.name for _, inside in pairs if isinstance(e := unwrap(inside), ColumnRef)}
    if not isinstance(node, Table) or not node.primary_key or not set(node.primary_key) <= keys:
        refuse(select, "a scalar subquery may return several rows", _ONE_ROW)


def _only(side: Scope, pairs: Sequence[Pair], names: Sequence[str]) -> None:
    """Drop all columns of a side except those that the keys read and the named ones."""
    wanted = {*names, *(name for _, inside in pairs for name in unwrap(inside).columns())}
    side.stream = side.stream.select(*(name for name in side.stream.columns if name in wanted))
    side.fields = ()


def _placed(scope: Scope, side: Scope, pairs: Sequence[Pair], names: Sequence[str]) -> list[Expr]:
    """Join a side that has one row per key to the scope, and return the named columns; they are null where no row matches."""
    fresh: dict[str, str] = {}
    for at, name in enumerate(names):
        fresh[name] = f"__sub{len(scope.stream.columns)}_{at}"
    side.stream = side.stream.rename(fresh)
    _beside(scope, outer(scope, side, pairs, "left"))
    return [col(fresh[name]) for name in names]

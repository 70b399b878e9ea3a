"""Joins of scopes: which conditions become keys, in which order relations are joined, and the columns' names
afterwards.

**Law** Relations that equalities connect are never paired by a cross product. A relation is joined when an equality ties it to
those joined already, in the order of the query. Cross products remain for relations that nothing connects.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from sqlglot import exp

from dbsp.expr.build import Expr, lit
from dbsp.expr.expression import ColumnRef
from dbsp.expr.methods.applied import unwrap
from dbsp.sql.errors import about, refuse
from dbsp.sql.expressions import condition, lowered
from dbsp.sql.scope import Scope
from dbsp.sql.types import common, type_in
from dbsp.sql.walks import parts

Pair = tuple[Expr, Expr]
FILTERS_MAX = 1000
"""The maximum number of separate filters for a clause's conditions.

The limit must not fall: earlier versions made a separate filter of each condition, and stored circuits contain them.
"""


def conjuncts(node: Any) -> list[Any]:
    """Return the conditions that AND joins; equalities common to all branches of an OR are added as conditions of their own."""
    found: list[Any] = []
    waiting = [] if node is None else [node]
    while waiting:
        part = waiting.pop()
        if isinstance(part, exp.Paren):
            waiting.append(part.this)
        elif isinstance(part, exp.And):
            waiting += [part.expression, part.this]
        elif isinstance(part, exp.Or):
            found += _factored(part)
        else:
            found.append(part)
    return found


def conditions_of(clause: Any) -> list[Any]:
    """Return the conditions of WHERE, HAVING or QUALIFY, at most about `FILTERS_MAX`: the rest are joined into one by AND.

    Each condition is a filter of its own, which may be moved below a join separately. A possible key of a join, and a
    condition with a subquery, always stay separate.
    """
    found = conjuncts(clause.this if clause is not None else None)
    if len(found) <= FILTERS_MAX:
        return found
    apart = [node for node in found[FILTERS_MAX:] if has_query(node) or isinstance(node, exp.EQ)]
    bound = {id(node) for node in apart}
    rest = [node for node in found[FILTERS_MAX:] if id(node) not in bound]
    apart += rest[:1]
    for node in rest[1:]:
        apart[-1] = exp.And(this=apart[-1], expression=node)
    return [*found[:FILTERS_MAX], *apart]


def _factored(node: Any) -> list[Any]:
    """Return `(k and a) or (k and b)` as `k` and the OR itself, because an equality in every branch may be a join's key."""
    branches = iter(_branches(node))
    shared = {part.sql(): part for part in conjuncts(next(branches)) if isinstance(part, exp.EQ)}
    for branch in branches:
        if not shared:
            return [node]
        texts = {part.sql() for part in conjuncts(branch) if isinstance(part, exp.EQ)}
        shared = {text: part for text, part in shared.items() if text in texts}
    return [*shared.values(), node]


def _branches(node: Any) -> Iterator[Any]:
    waiting = [node]
    while waiting:
        part = waiting.pop()
        if isinstance(part, exp.Paren):
            waiting.append(part.this)
        elif isinstance(part, exp.Or):
            waiting += [part.expression, part.this]
        else:
            yield part


def own_columns(node: Any) -> list[Any]:
    """Return the columns of an expression, except those inside subqueries."""
    return [part for part in parts(node, closed=exp.Query) if isinstance(part, exp.Column)]


def has_query(node: Any) -> bool:
    """Return whether the expression contains a subquery."""
    return node.find(exp.Query) is not None


def filtered(scope: Scope, conditions: Iterable[Any]) -> None:
    """Filter the scope's rows by each of the conditions."""
    for part in conditions:
        with about(part):
            scope.stream = scope.stream.filter(condition(part, scope))


def connected(parts: Sequence[Scope], conditions: Sequence[Any]) -> tuple[Scope, list[Any]]:
    """Join several scopes into one, and return it with the conditions that no join could use.

    Such a condition contains a subquery, reads no column, or names a column that is in none of the scopes.
    """
    waiting, left = _sorted_out(list(parts), conditions)
    found = []
    remaining = list(parts)
    while remaining:
        component = remaining.pop(0)
        while (following := _next(component, remaining, waiting)) is not None:
            remaining.remove(following)
            component = _meet(component, following, waiting)
        found.append(component)
    whole = found[0]
    for component in found[1:]:
        whole = _beside(whole, component)
        _apply(whole, waiting)
    return whole, [*left, *waiting]


def _sorted_out(parts: list[Scope], conditions: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Apply each condition on one relation as a filter; return those on several relations, and those that joins cannot use.

    Refuse a column that two relations have.
    """
    several: list[Any] = []
    left: list[Any] = []
    for node in conditions:
        columns = own_columns(node)
        owners = [[at for at, part in enumerate(parts) if part.knows(column)] for column in columns]
        for column, of in zip(columns, owners, strict=True):
            if len(of) > 1:
                names = dict.fromkeys(f.of for at in of for f in parts[at].fields if f.called(column.name, None))
                hint = "write " + " or ".join(f"{name}.{column.name}" for name in names)
                refuse(column, f"several columns have this name: column={column.name}", hint)
        if has_query(node) or not columns or not all(owners):
            left.append(node)
        elif len({of[0] for of in owners}) == 1:
            filtered(parts[owners[0][0]], [node])
        else:
            several.append(node)
    return several, left


def _next(joined: Scope, remaining: Sequence[Scope], waiting: Sequence[Any]) -> Scope | None:
    """Return the first remaining relation that an equality ties to the joined ones, or None."""
    return next((part for part in remaining if any(sides(node, joined, part) for node in waiting)), None)


def sides(node: Any, left: Scope, right: Scope) -> tuple[Any, Any] | None:
    """Return the two sides of an equality between the scopes, the left scope's first, or None if the node is no such equality."""
    if not isinstance(node, exp.EQ) or has_query(node):
        return None
    for one, other in ((node.this, node.expression), (node.expression, node.this)):
        if _is_of(one, left) and _is_of(other, right):
            return one, other
    return None


def _is_of(node: Any, scope: Scope) -> bool:
    columns = own_columns(node)
    return bool(columns) and all(scope.knows(column) for column in columns)


def _meet(left: Scope, right: Scope, waiting: list[Any]) -> Scope:
    """Return the join of two scopes on the equalities between them; other conditions on both become filters.

    A column serves as a key once: a second equality on it stays in `waiting` and becomes a filter.
    """
    used: set[str] = set()
    pairs: list[Pair] = []
    for node in list(waiting):
        found = sides(node, left, right)
        if found is None:
            continue
        pair = lowered(found[0], left), lowered(found[1], right)
        names = {f"{at}{side}" for at, side in enumerate(map(unwrap, pair)) if isinstance(side, ColumnRef)}
        if names & used:
            continue
        used |= names
        pairs.append(_alike(pair, left, right, node))
        waiting.remove(node)
    joined = inner(left, right, pairs)
    _apply(joined, waiting)
    return joined


def _apply(scope: Scope, waiting: list[Any]) -> None:
    """Filter the scope by the waiting conditions whose columns it has, and remove them from `waiting`."""
    for node in list(waiting):
        if _is_of(node, scope):
            filtered(scope, [node])
            waiting.remove(node)


def _alike(pair: Pair, left: Scope, right: Scope, node: Any) -> Pair:
    """Return both keys cast to their common type; the casts change the keys alone, not the visible columns."""
    types = type_in(pair[0], left.schema), type_in(pair[1], right.schema)
    if types[0] == types[1] or types[0] is None or types[1] is None:
        return pair
    type_ = common(*types)
    if type_ is None:
        shown = f"{node.sql(dialect='duckdb')} left={types[0]} right={types[1]}"
        refuse(node, f"columns of these types cannot be equal: {shown}", "cast one of them, such as cast(x as bigint)")
    one, other = (side if of == type_ else side.cast(type_) for side, of in zip(pair, types, strict=True))
    return one, other


def pair_of(node: Any, left: Scope, right: Scope) -> Pair | None:
    """Return the keys of an equality, in their common type, or None if the node is no equality between the scopes."""
    found = sides(node, left, right)
    return None if found is None else _alike((lowered(found[0], left), lowered(found[1], right)), left, right, node)


def inner(left: Scope, right: Scope, pairs: Sequence[Pair]) -> Scope:
    """Return the inner join on equal keys; without keys, the cross product. Names of right keys refer to the left ones."""
    if not pairs:
        return _beside(left, right)
    left_on, right_on = (
        _keys(scope, side) for scope, side in zip((left, right), zip(*pairs, strict=True), strict=True)
    )
    _apart(left, right, right_on)
    stream = left.stream.join(right.stream, left_on=left_on, right_on=right_on)
    return _both(left, right, stream, dict(zip(right_on, left_on, strict=True)))


def outer(left: Scope, right: Scope, pairs: Sequence[Pair], how: str, rest: Sequence[Any] = ()) -> Scope:
    """Return a left or full join; `rest` are the further conditions of ON, which decide together with the keys.

    Without keys both sides get a constant key, so that every pair of rows is tested.
    """
    keyed = pairs or [(lit(1), lit(1))]
    copied = how == "full" or not pairs
    left_on = _keys(left, [pair[0] for pair in keyed], copy=copied)
    right_on = _keys(right, [pair[1] for pair in keyed], copy=True)
    _apart(left, right, right_on)
    where = _where(left, right, left_on, right_on, rest)
    stream = left.stream.join(right.stream, left_on=left_on, right_on=right_on, how=how, where=where)
    return _both(left, right, stream, {})


def partnered(left: Scope, right: Scope, pairs: Sequence[Pair], how: str, rest: Sequence[Any] = ()) -> None:
    """Keep the rows of the left scope that have a partner (`how` "semi") or have none ("anti")."""
    keyed = pairs or [(lit(1), lit(1))]
    kept = left.stream.columns
    left_on = _keys(left, [pair[0] for pair in keyed], copy=not pairs)
    right_on = _keys(right, [pair[1] for pair in keyed], copy=bool(rest) or not pairs)
    _apart(left, right, right_on)
    where = _where(left, right, left_on, right_on, rest)
    left.stream = left.stream.join(right.stream, left_on=left_on, right_on=right_on, how=how, where=where)
    if left.stream.columns != kept:
        left.stream = left.stream.select(*kept)


def _where(left: Scope, right: Scope, left_on: Sequence[str], right_on: Sequence[str], rest: Sequence[Any]) -> Any:
    """Return the further conditions of ON as one condition over the columns of the inner join, or None without any."""
    if not rest:
        return None
    pairs = _both(left, right, left.stream.join(right.stream, left_on=left_on, right_on=right_on), {})
    found = None
    for node in rest:
        with about(node):
            value = condition(node, pairs)
            found = value if found is None else found & value
    return found


def _keys(scope: Scope, values: Sequence[Expr], *, copy: bool = False) -> list[str]:
    """Return the names of columns that hold the keys.

    An expression gets a new column; so does a column that is a key twice, and every key if `copy` is set.
    """
    names: list[str] = []
    for value in values:
        expression = unwrap(value)
        plain = isinstance(expression, ColumnRef) and expression.name not in names and not copy
        names.append(expression.name if plain and isinstance(expression, ColumnRef) else scope.holding(value, "key"))
    return names


def _apart(left: Scope, right: Scope, keys: Sequence[str]) -> None:
    """Rename the right side's columns that the left side has too, except its keys, which the join drops."""
    taken = {*left.schema.names, *right.schema.names}
    names: dict[str, str] = {}
    for name in right.schema.names:
        if name in left.schema and name not in keys:
            number, fresh = 1, f"{name}_right"
            while fresh in taken:
                number += 1
                fresh = f"{name}_right{number}"
            names[name] = fresh
            taken.add(fresh)
    renamed(right, names)


def renamed(scope: Scope, names: dict[str, str]) -> None:
    """Rename columns of the stream; the names that the query uses stay."""
    if names:
        scope.stream = scope.stream.rename(names)
        scope.fields = tuple(replace(f, column=names.get(f.column, f.column)) for f in scope.fields)


def _beside(left: Scope, right: Scope) -> Scope:
    """Return the cross product of two scopes."""
    _apart(left, right, ())
    return _both(left, right, left.stream.cross_join(right.stream), {})


def _both(left: Scope, right: Scope, stream: Any, moved: dict[str, str]) -> Scope:
    fields = tuple(replace(f, column=moved.get(f.column, f.column)) for f in right.fields)
    made = replace(left, stream=stream, fields=(*left.fields, *fields))
    made.made = dict(left.made)
    return made

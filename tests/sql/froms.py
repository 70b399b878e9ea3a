"""FROM of random queries: tables, views, queries of WITH and in brackets, joined in every way; and subqueries in conditions.

Left out, each refused by name (docs/sql.md): natural and lateral joins, subqueries in ON of outer joins, one value of several
rows, NOT IN of several columns, and a subquery that compares with the query around it by more than equality, but for EXISTS as a
condition of its own.
Left out for cost alone: pairs of all rows, but where both sides are near the tables.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tests.sql.drawing import Draw
from tests.sql.kinds import APART, DEC, FLOAT, INT, ORDERED, TEXT, Column, Scope, aggregate, condition, seen, value
from tests.sql.lives import COLUMNS, KEYED

NARROW = {
    "t": ("id", "k", "a", "b", "f"),
    "u": ("k", "a", "c"),
    "p": ("id", "k", "a"),
    "e": ("k", "a", "c"),
    "q": ("id", "k"),
}
"""Columns of tables that can be put in order, and are not many."""
TOGETHER = (
    "join",
    "left join",
    "right join",
    "full join",
    "semi join",
    "anti join",
    ", ",
    "join",
    "left join",
    "full join",
)

_LETTERS = ("'x'", "'y'", "null", "'w'")


@dataclass(frozen=True, slots=True)
class Query:
    """A query and its columns."""

    text: str
    columns: Scope


Queries = Callable[[Draw, int], Query]


@dataclass(frozen=True, slots=True)
class From:
    """What stands behind FROM, the columns that expressions can name, and what WHERE has to say for it.

    What stands before the last comma, its `far` columns, the ON of a join behind it cannot name.
    """

    text: str
    scope: Scope
    where: tuple[str, ...] = ()
    far: Scope = ()


def source(draw: Draw, depth: int, query: Queries, *, ordered: bool = False) -> From:
    """One relation under a new name; `ordered` has columns of ordered kinds alone."""
    alias = draw.alias()
    if depth > 0 and draw.now_and_then(0.6):
        made = query(draw, depth - 1)
        kept = tuple(column for column in made.columns if column.kind in ORDERED)
        if not ordered or kept == made.columns:
            return From(f"({made.text}) as {alias}", _of(alias, made.columns))
        if kept:
            names = ", ".join(column.name for column in kept)
            return From(f"(select {names} from ({made.text}) as {draw.alias()}) as {alias}", _of(alias, kept))
    if not ordered and draw.named and draw.now_and_then(0.5):
        name = draw.of(sorted(draw.named))
        return From(f"{name} as {alias}", _of(alias, draw.named[name]))
    if draw.now_and_then(0.06):
        return constants(draw, alias)
    table = draw.pick("t", "u", "p", "e", "q", "t", "u")
    draw.tables.add(table)
    if ordered or draw.now_and_then(0.3):
        columns = tuple(column for column in COLUMNS[table] if column.name in NARROW[table])
        return From(f"(select {', '.join(NARROW[table])} from {table}) as {alias}", _of(alias, columns))
    return From(f"{table} as {alias}", _of(alias, COLUMNS[table]))


def constants(draw: Draw, alias: str) -> From:
    """Rows that no table has; there is a table beside them, as a circuit takes no steps without one."""
    draw.tables.add("t")
    if draw.now_and_then(0.3):
        return From(f"range({draw.pick(3, 1, 0)}) as {alias}(a)", _of(alias, (Column("a", INT),)))
    rows = ", ".join(f"({draw.pick(1, 0, 2, 'null')}, {draw.of(_LETTERS)})" for _ in range(draw.pick(2, 1, 4)))
    columns = (Column("a", INT), Column("k", TEXT))
    return From(f"(values (1, 'x'), {rows}) as {alias}(a, k)", _of(alias, columns))


def _of(alias: str, columns: Scope) -> Scope:
    """What can be compared and counted on: rule 2 of `tests.sql.kinds`."""
    return tuple(replace(column, name=f"{alias}.{column.name}") for column in columns if column.kind != APART)


def from_(draw: Draw, depth: int, query: Queries) -> From:
    """One relation, or several."""
    found = source(draw, depth, query)
    for _ in range(draw.pick(0, 1, 0, 1, 1, 2)):
        found = _joined(draw, found, source(draw, depth - 1, query), draw.of(TOGETHER), paired=depth <= 1)
    return found


def _joined(draw: Draw, left: From, right: From, how: str, *, paired: bool) -> From:
    left = replace(left, scope=_unambiguous(left.scope, right.scope))
    both = left.scope + right.scope
    if how == ", ":
        said = _equalities(draw, left.scope, right.scope, 1)
        ranged = () if said and not draw.now_and_then(0.3) else (condition(draw, both, 0),)
        return From(f"{left.text}, {right.text}", both, (*left.where, *said, *ranged), left.scope)
    near = tuple(column for column in left.scope if column not in left.far)
    using = [] if left.far else _shared(left.scope, right.scope)
    if using and draw.now_and_then(0.25):
        return _using(draw, left, right, how, using)
    said = [] if paired and draw.now_and_then(0.2) else _equalities(draw, near, right.scope, draw.pick(1, 1, 2))
    if not said or draw.now_and_then(0.35):
        said += _beyond(draw, near, right.scope)
    scope = left.scope if how in ("semi join", "anti join") else both
    return From(f"{left.text} {how} {right.text} on {' and '.join(said)}", scope, left.where, left.far)


def _unambiguous(left: Scope, right: Scope) -> Scope:
    """A column of USING loses its bare name where a further relation has the name, too."""
    taken = {column.name.partition(".")[2] for column in right}
    return tuple(column for column in left if column.name not in taken)


def _equalities(draw: Draw, left: Scope, right: Scope, most: int) -> list[str]:
    """Keys of both sides, now and then of kinds that meet in a third, or that take nulls as equal."""
    found = []
    for _ in range(most):
        kinds = sorted({column.kind for column in left} & {column.kind for column in right})
        if not kinds:
            return found
        kind = (
            draw.of([kind for kind in kinds if kind in (INT, TEXT)] or kinds)
            if draw.now_and_then(0.8)
            else draw.of(kinds)
        )
        one, other = draw.of(seen(left, kind)), draw.of(seen(right, kind))
        if kind in ORDERED and draw.now_and_then(0.15):
            one = value(draw, left, kind, 1)
        if kind == INT and draw.now_and_then(0.15):
            other = draw.of([*seen(right, DEC), *seen(right, FLOAT), other])
        equal = "is not distinct from" if draw.now_and_then(0.1) else "="
        found.append(f"{other} {equal} {one}" if draw.now_and_then(0.3) else f"{one} {equal} {other}")
    return found


def _beyond(draw: Draw, left: Scope, right: Scope) -> list[str]:
    """What ON says besides keys: a range, or something of one side or of both."""
    kinds = [kind for kind in (INT, "time", "day", DEC, TEXT) if seen(left, kind) and seen(right, kind)]
    if kinds and draw.now_and_then(0.4):
        kind = draw.of(kinds)
        one, other = draw.of(seen(left, kind)), draw.of(seen(right, kind))
        low = f"{one} {draw.pick('<=', '>=', '<>', '<', '>')} {other}"
        if kind == INT and draw.now_and_then(0.4):
            return [f"{one} between {other} - 1 and {draw.of(seen(right, kind))} + 1"]
        return [low]
    return [condition(draw, draw.pick(left + right, left, right), 1)]


def _shared(left: Scope, right: Scope) -> list[str]:
    """Names that stand once on each side."""
    names = [[column.name.partition(".")[2] for column in side] for side in (left, right)]
    kinds = {column.name.partition(".")[2]: column.kind for column in right}
    return [
        name
        for column in left
        if (name := column.name.partition(".")[2]) and [side.count(name) for side in names] == [1, 1]
        and kinds[name] == column.kind and column.kind in ORDERED
    ]  # fmt: skip


def _using(draw: Draw, left: From, right: From, how: str, names: list[str]) -> From:
    """Columns of one name, which are one column behind it."""
    chosen = draw.some(names, 1, 2)
    text = f"{left.text} {how} {right.text} using ({', '.join(chosen)})"
    if how in ("semi join", "anti join"):
        return From(text, left.scope, left.where)
    kinds = {column.name.partition(".")[2]: column.kind for column in left.scope}
    merged = tuple(Column(name, kinds[name]) for name in chosen)
    return From(text, merged + left.scope + right.scope, left.where)


def wheres(draw: Draw, found: From, depth: int, query: Queries) -> str:
    """WHERE: what the joins need, and conditions, some of which are subqueries."""
    said = list(found.where)
    for _ in range(draw.pick(0, 1, 0, 1)):
        if depth > 0 and draw.now_and_then(0.6):
            said.append(asked(draw, found.scope, depth, query))
        elif draw.now_and_then(0.6):
            said.append(f"({condition(draw, found.scope, 0)} or {condition(draw, found.scope, 0)})")
    return f" where {' and '.join(said)}" if said else ""


def asked(draw: Draw, scope: Scope, depth: int, query: Queries) -> str:
    """A condition with a subquery: as a whole, or inside an expression."""
    scope = _qualified(scope)
    return whole(draw, scope, depth, query) if draw.now_and_then(0.5) else inside(draw, scope, depth, query)


def _qualified(scope: Scope) -> Scope:
    """What a subquery can name of the query around it: a bare name may be one of its own."""
    return tuple(column for column in scope if "." in column.name)


def inside(draw: Draw, scope: Scope, depth: int, query: Queries) -> str:
    """A value of a condition with a subquery."""
    scope = _qualified(scope)
    match draw.below(3):
        case 0:
            return part(draw, scope, depth, query)
        case 1:
            return f"({part(draw, scope, depth, query)} {draw.pick('or', 'and')} {condition(draw, scope, 0)})"
        case _:
            asked_, *both = part(draw, scope, depth, query), condition(draw, scope, 0), condition(draw, scope, 0)
            return f"case when {asked_} then {both[0]} else {both[1]} end"


def whole(draw: Draw, scope: Scope, depth: int, query: Queries) -> str:
    """A condition that is a subquery: a join takes its place. Only here EXISTS may compare by more than equality."""
    inner = source(draw, depth - 1, query)
    if draw.now_and_then(0.3):
        pairs = [*_tied(draw, scope, inner.scope, 1), *_beyond(draw, scope, inner.scope)[:1]]
        own = [said for said in pairs if any(column.name in said for column in inner.scope)]
        return f"{draw.pick('', 'not ')}exists (select 1 from {inner.text}{_where(own)})"
    kinds = [kind for kind in ORDERED if seen(scope, kind) and seen(inner.scope, kind)]
    if len(kinds) > 1 and draw.now_and_then(0.15):
        one, other = (
            (draw.of(seen(scope, kind)) for kind in kinds[:2]),
            (draw.of(seen(inner.scope, kind)) for kind in kinds[:2]),
        )
        return f"({', '.join(one)}) in (select {', '.join(other)} from {inner.text})"
    return part(draw, scope, depth, query)


def _where(said: list[str]) -> str:
    return f" where {' and '.join(said)}" if said else ""


def _tied(draw: Draw, scope: Scope, inner: Scope, most: int) -> list[str]:
    """Equalities of columns within and around, and now and then something that is said within alone."""
    found = _equalities(draw, scope, inner, most) if draw.now_and_then(0.6) else []
    found = [said for said in found if " distinct " not in said]
    return [*found, condition(draw, inner, 0)] if draw.now_and_then(0.25) else found


def part(draw: Draw, scope: Scope, depth: int, query: Queries) -> str:
    """IN, EXISTS, or a comparison with one value of a query."""
    inner = source(draw, depth - 1, query)
    not_ = draw.pick("", "not ")
    match draw.below(3):
        case 0:
            kinds = [column.kind for column in inner.scope if seen(scope, column.kind)]
            kind = draw.of(kinds) if kinds else draw.of(inner.scope).kind
            one = value(draw, scope, kind, 1) if kind in ORDERED else value(draw, scope, kind, 0)
            where = _where(_tied(draw, scope, inner.scope, 1))
            return f"({one} {not_}in (select {draw.of(seen(inner.scope, kind))} from {inner.text}{where}))"
        case 1:
            return f"({not_}exists (select 1 from {inner.text}{_where(_tied(draw, scope, inner.scope, 1))}))"
        case _:
            text, kind = one_value(draw, scope, inner)
            return f"({value(draw, scope, kind, 1)} {draw.pick('=', '<', '>=', '<>')} {text})"


def one_value(draw: Draw, scope: Scope, inner: From) -> tuple[str, str]:
    """A query with one value, and its kind: an aggregate, the first of a table, or what a whole primary key finds."""
    scope = _qualified(scope)
    if draw.now_and_then(0.15) and seen(scope, INT):
        alias, table = draw.alias(), draw.of(sorted(KEYED))
        draw.tables.add(table)
        return f"(select {alias}.k from {table} as {alias} where {alias}.id = {draw.of(seen(scope, INT))})", TEXT
    kinds = [column.kind for column in inner.scope if column.kind in ORDERED]
    if kinds and draw.now_and_then(0.15):
        kind = draw.of(kinds)
        name = draw.of(seen(inner.scope, kind))
        return (
            f"(select {name} from {inner.text} order by {name}{draw.pick('', ' desc', ' nulls first')} limit 1)",
            kind,
        )
    text, kind = aggregate(draw, inner.scope)
    while kind not in ORDERED:
        text, kind = "count(*)", INT
    return f"(select {text} from {inner.text}{_where(_tied(draw, scope, inner.scope, 1))})", kind

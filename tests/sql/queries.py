"""Random relational queries, and what stands inside them, down to tables.

Left out, for what docs/sql.md says of DuckDB:

1. Whatever depends on an order names all columns of its rows: ties are broken by all columns here, and by nothing in DuckDB.
2. Values of the row that tie with others (`rank`, frames of `range`) need no more than their key.
3. `first_value` and its kin are of the whole partition, one list is unnested in SELECT, LIMIT and DISTINCT ON have an order, a
   recursion is a UNION that ends: the others are refused by name.
4. Constants are no keys of ORDER BY and none of GROUP BY: a number there is a place.
"""

from __future__ import annotations

from tests.sql.drawing import Draw
from tests.sql.froms import From, Query, asked, from_, inside, one_value, source, wheres
from tests.sql.kinds import (  # fmt: skip
    APART,
    BOOL,
    DAY,
    DEC,
    FLOAT,
    INT,
    KINDS,
    LIST,
    ORDERED,
    STRUCT,
    TEXT,
    TIME,
    Column,
    Scope,
    aggregate,
    form_of,
    own_value,
    seen,
    value,
)

NAMES = ("a", "b", "c", "k", "x", "y", "n", "id", "m", "w", "z", "v", "o", "i")
SETS = ("union all", "union", "except all", "except", "union all", "union", "intersect all", "intersect")
Item = tuple[str, str]
"""An expression of SELECT, and its kind."""


def query(draw: Draw, depth: int) -> Query:
    """A query whose subqueries are at most so deep."""
    if depth <= 0:
        return draw.pick(selected, selected, starred)(draw, 0)
    return draw.of(SHAPES)(draw, depth)


def shown(draw: Draw, items: list[Item], head: str = "select", fresh: int = 0) -> tuple[str, Scope, list[str]]:
    """SELECT and its columns; the first, so many, with names that nothing else has."""
    names = [draw.alias("g") for _ in range(fresh)]
    names += draw.some(NAMES, len(items) - fresh, len(items) - fresh)
    columns = tuple(Column(name, kind) for name, (_, kind) in zip(names, items, strict=True))
    listed = ", ".join(f"{text} as {name}" for name, (text, _) in zip(names, items, strict=True))
    return f"{head} {listed}", columns, names


def items_of(draw: Draw, scope: Scope, most: int, kinds: tuple[str, ...] = KINDS) -> list[Item]:
    """Columns of a scope, and expressions over them."""
    found: list[Item] = []
    own = [column for column in scope if column.kind in kinds]
    for _ in range(draw.pick(2, *range(1, most + 1))):
        if own and not draw.now_and_then(0.6):
            column = draw.of(own)
            found.append((column.name, column.kind))
        else:
            kind = draw.of([column.kind for column in own] or kinds) if draw.now_and_then(0.8) else draw.of(kinds)
            found.append((value(draw, scope, kind), kind))
    return found


def selected(draw: Draw, depth: int) -> Query:
    """A plain SELECT; its rows, the different ones of them, or the first ones."""
    found = from_(draw, depth, query)
    ending = draw.pick("", "", "", "distinct", "limit", "limit" if depth else "")
    items = items_of(draw, found.scope, 5, ORDERED if ending == "limit" else KINDS)
    head, columns, _ = shown(draw, items, "select distinct" if ending == "distinct" else "select")
    end = limit(draw, columns) if ending == "limit" else ""
    return Query(f"{head} from {found.text}{wheres(draw, found, depth, query)}{end}", columns)


def limit(draw: Draw, columns: Scope) -> str:
    """The first rows in an order of all columns (rule 1)."""
    order = ", ".join(f"{at}{way(draw)}" for at in draw.shuffled(range(1, len(columns) + 1)))
    return f" order by {order} limit {draw.pick(3, 5, 2, 1)}{draw.pick('', '', ' offset 1', ' offset 2')}"


def way(draw: Draw) -> str:
    return draw.pick("", " desc", "", " nulls first", " desc nulls last")


def starred(draw: Draw, depth: int) -> Query:
    """All columns of a relation, or all but one, or with another in its place."""
    found = source(draw, depth, query)
    columns = tuple(Column(column.name.partition(".")[2], column.kind) for column in found.scope)
    of = found.scope[0].name.partition(".")[0]
    match draw.below(3) if len(columns) > 1 else 0:
        case 0:
            return Query(
                f"select {of}.* from {found.text}" if draw.now_and_then(0.3) else f"select * from {found.text}", columns
            )
        case 1:
            gone = draw.of(columns)
            return Query(f"select * exclude ({gone.name}) from {found.text}", tuple(c for c in columns if c != gone))
        case _:
            at = draw.below(len(columns))
            other = value(draw, found.scope, columns[at].kind)
            return Query(f"select * replace ({other} as {columns[at].name}) from {found.text}", columns)


def topped(draw: Draw, depth: int) -> Query:
    """A star over the first rows of a query, so that what is below changes as a whole."""
    inner = selected(draw, depth - 1)
    columns = tuple(column for column in inner.columns if column.kind in ORDERED)
    if not columns:
        return inner
    alias = draw.alias()
    names = ", ".join(f"{alias}.{column.name}" for column in columns)
    return Query(f"select {names} from ({inner.text}) as {alias}{limit(draw, columns)}", columns)


def grouped(draw: Draw, depth: int) -> Query:
    """GROUP BY of every kind, with HAVING, and windows over the groups."""
    found = from_(draw, depth, query)
    keys = _keys(draw, found.scope)
    aggregates = [aggregate(draw, found.scope) for _ in range(draw.pick(1, 3, 2, 4, 5, 6))]
    items = keys + aggregates
    sets = len(keys) > 0 and draw.now_and_then(0.25)
    if keys and not sets and draw.now_and_then(0.15):
        items = [*items, _over_groups(draw, keys, aggregates)]
    by_name = draw.now_and_then(0.2)
    head, columns, names = shown(draw, items, fresh=len(keys) if by_name else 0)
    over = len(items) > len(keys + aggregates)
    group = _group_by(draw, keys, names[: len(keys) if by_name else 0], sets=sets, over=over) if keys else ""
    where = wheres(draw, found, depth, query)
    having = _having(draw, found.scope, keys, depth) if keys and draw.now_and_then(0.3) else ""
    ordered = all(column.kind in ORDERED for column in columns)
    end = limit(draw, columns) if ordered and keys and draw.now_and_then(0.15) else ""
    return Query(f"{head} from {found.text}{where}{group}{having}{end}", columns)


def _keys(draw: Draw, scope: Scope) -> list[Item]:
    found: list[Item] = []
    for _ in range(draw.pick(1, 0, 2, 1, 2, 3)):
        kind = draw.of(scope).kind
        text = own_value(draw, scope, kind)
        if text not in [known for known, _ in found] and any(column.name in text for column in scope):
            found.append((text, kind))
    return found


def _group_by(draw: Draw, keys: list[Item], names: list[str], *, sets: bool, over: bool) -> str:
    """By expressions, places, names that no column has, or all: not with windows `over` groups, by which DuckDB would group."""
    texts = [text for text, _ in keys]
    listed = ", ".join(texts)
    if sets:
        chosen = [f"grouping sets (({listed}), ({texts[0]}), ())", f"grouping sets (({texts[-1]}), ({listed}))"]
        return f" group by {draw.pick(f'rollup ({listed})', f'cube ({listed})', *chosen)}"
    if names:
        return f" group by {', '.join(names)}"
    places = ", ".join(str(at + 1) for at in range(len(texts)))
    return f" group by {draw.pick(listed, listed, places, listed if over else 'all')}"


def _having(draw: Draw, scope: Scope, keys: list[Item], depth: int) -> str:
    behind = tuple(Column(text, kind) for text, kind in keys if kind in ORDERED and Column(text, kind) in scope)
    if depth > 0 and behind and draw.now_and_then(0.2):
        return f" having {asked(draw, behind, depth, query)}"
    text, kind = aggregate(draw, scope)
    if kind not in ORDERED:
        return f" having {text} is not null"
    return f" having {text} {draw.pick('>=', '<>', '<=', '=')} {value(draw, behind, kind, 0)}"


def _over_groups(draw: Draw, keys: list[Item], aggregates: list[Item]) -> Item:
    """A window over the rows of groups: the keys are an order of them without ties."""
    order = ", ".join(text for text, _ in keys)
    counted = [text for text, kind in aggregates if kind == INT and "distinct" not in text]
    if all(kind in ORDERED for _, kind in keys) and draw.now_and_then(0.5):
        summed = [f"sum({text})" for text in counted] if len(keys) == 1 and keys[0][1] in SPANS else []
        call = draw.pick("row_number()", *summed, *(f"lag({text})" for text in counted))
        return f"{call} over (order by {order})", INT
    return f"{draw.pick('rank()', 'dense_rank()')} over (order by {draw.of([*counted, 'count(*)'])}{way(draw)})", INT


def joined_with(draw: Draw, depth: int) -> Query:
    """WITH: a query that is named, once or twice, and used more often."""
    before = dict(draw.named)
    texts = []
    for _ in range(draw.pick(1, 1, 2)):
        name = draw.alias("w")
        made = query(draw, depth - 1)
        named = tuple(column for column in made.columns if column.kind != APART)
        if named:
            draw.named[name] = named
            texts.append(f"{name} as ({made.text})")
    main = draw.pick(selected, grouped, united)(draw, depth - 1)
    draw.named.clear()
    draw.named.update(before)
    return Query(f"with {', '.join(texts)} {main.text}" if texts else main.text, main.columns)


CALLS: tuple[tuple[str, ...], ...] = (
    ("row_number()", INT), ("lag({})", INT, INT), ("lead({}, 2)", TEXT, TEXT), ("ntile(3)", INT), ("first_value({})", INT, INT),
    ("lag({} ignore nulls)", INT, INT), ("lead({} ignore nulls)", TEXT, TEXT), ("lag({}, 1, 7)", INT, INT),
    ("lead(cast({} as bigint), 1, cast({} as bigint))", INT, INT, INT),
    ("last_value({}){whole}", INT, INT), ("nth_value({}, 2){whole}", TEXT, TEXT),
    ("array_agg(cast({} as bigint)){whole}", LIST, INT),
    ("string_agg({}, '-'){whole}", TEXT, TEXT),
    ("first_value({} ignore nulls){whole}", INT, INT),
)  # fmt: skip
"""Functions of one row among those of an order without ties; `whole` is a frame of all rows."""
ROLLED: tuple[tuple[str, ...], ...] = (
    ("sum({})", INT, INT), ("count(*)", INT), ("max({})", TEXT, TEXT), ("min({})", INT, INT), ("avg({})", APART, INT),
    ("count({})", INT, TEXT),
    ("sum({})", FLOAT, FLOAT), ("bool_or({})", BOOL, BOOL), ("max({})", DAY, DAY), ("min({})", TIME, TIME),
    ("median({})", FLOAT, INT),
    ("count(distinct {})", INT, INT), ("sum({}) filter (where {})", INT, INT, BOOL), ("round(stddev({}){over}, 6)", FLOAT, INT),
    ("bit_or({})", INT, INT), ("cast(sum({}){over} as decimal(18, 4))", DEC, DEC), ("quantile_disc({}, 0.5)", TEXT, TEXT),
)  # fmt: skip
"""Aggregates over a frame; where `over` is, the window stands within."""
FRAMES = (  # the first is one of ties: over a single key with distances

    "", "{0} preceding and current row", "{0} preceding and {0} following", "unbounded preceding and current row",
    "current row and unbounded following", "{1} preceding and {0} preceding", "{0} following and {1} following",
    "{0} following and unbounded following", "unbounded preceding and {0} preceding", "current row and current row",
    "unbounded preceding and unbounded following",
)  # fmt: skip
SPANS = {
    INT: ("1", "2"), TIME: ("interval 1 day", "interval 30 day"), DAY: ("interval 1 day", "interval 29 day"),
}  # fmt: skip
"""Distances: frames of `range` over one key of another kind, or over several, are refused by name."""


def windowed(draw: Draw, depth: int) -> Query:
    """Window functions, each over rows of a relation that can be ordered whole (rule 1), or over ties (rule 2)."""
    found = source(draw, depth, query, ordered=True)
    partition = f"partition by {draw.of(found.scope).name} " if draw.now_and_then(0.6) else ""
    order = ", ".join(f"{column.name}{way(draw)}" for column in draw.shuffled(found.scope))
    calls = [
        _among_ties(draw, found.scope, partition) if draw.now_and_then(0.4) else _among_rows(draw, found.scope, partition, order)
        for _ in range(1 + draw.below(4))
    ]  # fmt: skip
    head, columns, _ = shown(draw, items_of(draw, found.scope, 2, ORDERED) + calls)
    number = f"row_number() over ({partition}order by {order})"
    kept = f" qualify {number} {draw.pick('<=', '=', '>')} {draw.pick(1, 2, 3)}" if draw.now_and_then(0.2) else ""
    return Query(f"{head} from {found.text}{wheres(draw, found, depth - 1, query)}{kept}", columns)


def _among_rows(draw: Draw, scope: Scope, partition: str, order: str) -> Item:
    if draw.now_and_then(0.5):
        frame = draw.of(FRAMES[1:]).format("1", "2")
        return _rolled(draw, scope, f"{partition}order by {order} rows between {frame}")
    form, kind, *kinds = form_of(draw, scope, CALLS, 2)
    whole = " rows between unbounded preceding and unbounded following" if "{whole}" in form else ""
    call = form.format(*(value(draw, scope, each, 0) for each in kinds), whole="")
    return f"{call} over ({partition}order by {order}{whole})", kind


def _rolled(draw: Draw, scope: Scope, window: str) -> Item:
    form, kind, *kinds = form_of(draw, scope, ROLLED, 2)
    over = f" over ({window})"
    text = form.format(*(value(draw, scope, each, 0) for each in kinds), over=over)
    return (text if "{over}" in form else f"{text}{over}"), kind


def _among_ties(draw: Draw, scope: Scope, partition: str) -> Item:
    column = draw.of(scope)
    if draw.now_and_then(0.4):
        call, kind = draw.pick(
            ("rank()", INT), ("dense_rank()", INT), ("percent_rank()", APART), ("cume_dist()", APART)
        )
        return f"{call} over ({partition}order by {column.name}{way(draw)})", kind
    if column.kind not in SPANS or draw.now_and_then(0.1):
        return _rolled(draw, scope, partition)
    frame = draw.of(FRAMES).format(*SPANS[column.kind])
    return _rolled(draw, scope, f"{partition}order by {column.name}{way(draw)}{frame and f' range between {frame}'}")


def united(draw: Draw, depth: int) -> Query:
    """Set operations of two queries or three, in brackets or not."""
    kinds = [draw.pick(INT, TEXT, draw.of(KINDS)) for _ in range(1 + draw.below(3))]
    one, other = (_side(draw, depth, kinds) for _ in range(2))
    text, columns = f"{one.text} {draw.of(SETS)} {other.text}", one.columns
    if draw.now_and_then(0.25):
        third = _side(draw, depth - 1, kinds)
        text = f"({text}) {draw.of(SETS)} {third.text}"
    if all(kind in ORDERED for kind in kinds) and draw.now_and_then(0.15):
        text = f"{text}{limit(draw, columns)}"
    return Query(text, columns)


def _side(draw: Draw, depth: int, kinds: list[str]) -> Query:
    """A side; kinds of numbers that meet in the other side's are others now and then."""
    found = from_(draw, depth - 1, query)
    meant = [INT if kind in (DEC, FLOAT) and draw.now_and_then(0.2) else kind for kind in kinds]
    head, columns, _ = shown(draw, [(value(draw, found.scope, kind), kind) for kind in meant])
    renamed = tuple(Column(column.name, kind) for column, kind in zip(columns, kinds, strict=True))
    return Query(f"{head} from {found.text}{wheres(draw, found, depth - 1, query)}", renamed)


def first_of_each(draw: Draw, depth: int) -> Query:
    """DISTINCT ON, in an order of all columns that begins with its keys (rule 1)."""
    found = source(draw, depth, query, ordered=True)
    order = draw.shuffled(found.scope)
    keys = order[: 1 + draw.below(2)]
    listed = ", ".join(column.name for column in keys)
    by = ", ".join(f"{column.name}{way(draw)}" for column in order)
    items = [(column.name, column.kind) for column in draw.some(found.scope, 1, len(found.scope))]
    head, columns, _ = shown(draw, items, f"select distinct on ({listed})")
    return Query(f"{head} from {found.text}{wheres(draw, found, depth - 1, query)} order by {by}", columns)


def unnested(draw: Draw, depth: int) -> Query:
    """The elements of a list, in SELECT, or in FROM behind its relation."""
    found = source(draw, depth, query)
    items = items_of(draw, found.scope, 3)
    listed = seen(found.scope, LIST)
    if not listed or draw.now_and_then(0.5):
        number = draw.of(seen(found.scope, INT)) if seen(found.scope, INT) else "1"
        list_ = f"generate_series(cast(1 as bigint), cast(least({number}, 4) as bigint))"
    else:
        list_ = draw.of(listed)
    alias = draw.alias("e")
    where = wheres(draw, found, depth - 1, query)
    if any(column.name in list_ for column in found.scope) and draw.now_and_then(0.5):
        head, columns, _ = shown(draw, [*items, (f"{alias}.el", INT)])
        return Query(f"{head} from {found.text}, unnest({list_}) as {alias}(el){where}", columns)
    head, columns, _ = shown(draw, [*items, (f"unnest({list_})", INT)])
    return Query(f"{head} from {found.text}{where}", columns)


def recursive(draw: Draw, depth: int) -> Query:
    """What follows from rows, again and again: numbers up to a bound, or along edges."""
    name = draw.alias("w")
    start, edge = source(draw, depth - 1, query), source(draw, 0, query)
    if draw.now_and_then(0.6) and len(numbers := seen(edge.scope, INT)) > 1:
        follows = f"select {numbers[-1]} from {name} join {edge.text} on {name}.n = {numbers[0]}"
    else:
        follows = f"select n + 1 from {name} where n < 4"
    text = f"{name}(n) as (select cast({value(draw, start.scope, INT, 0)} as bigint) from {start.text} union {follows})"
    found = From(f"{name} as r0", (Column("r0.n", INT),))
    return Query(
        f"with recursive {text} select r0.n as n from {name} as r0{wheres(draw, found, 0, query)}", (Column("n", INT),)
    )


def scalars(draw: Draw, depth: int) -> Query:
    """Subqueries that are columns of SELECT."""
    found = source(draw, depth, query)
    items = items_of(draw, found.scope, 2)
    for _ in range(1 + draw.below(2)):
        inner = source(draw, depth - 1, query)
        items.append(
            one_value(draw, found.scope, inner)
            if draw.now_and_then(0.5)
            else (inside(draw, found.scope, depth, query), BOOL)
        )
    items = [item for item in items if item[1] != STRUCT] or items
    head, columns, _ = shown(draw, items)
    return Query(f"{head} from {found.text}{wheres(draw, found, depth - 1, query)}", columns)


SHAPES = (
    selected, grouped, selected, grouped, joined_with, windowed, united, first_of_each, unnested, recursive, topped, scalars,
)  # fmt: skip

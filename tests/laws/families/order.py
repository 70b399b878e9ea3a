"""Operators that look at rows in an order."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

import dbsp
from tests.laws.families.groups import PAIRS, SMALL
from tests.laws.relation import Relation

COLUMNS = ("b", "a", "f")
LARGE = 1 << 42
"""Added so that a rest is one of a positive number, which both sides compute alike."""
Item = tuple[str, bool, bool]

items = st.tuples(st.sampled_from(COLUMNS), st.booleans(), st.booleans())
orders = st.lists(items, min_size=1, max_size=2, unique_by=lambda item: item[0])
partitions = st.sampled_from([(), ("b",), ("a",), ("b", "f")])
bounds = st.one_of(st.none(), st.integers(0, 3))


def by(order: list[Item]) -> list[dbsp.OrderBy]:
    return [dbsp.OrderBy(name, descending, nulls_first) for name, descending, nulls_first in order]


def sql(order: list[Item], total: bool = True) -> str:
    """The order, made total by all other columns."""
    named = {name for name, _, _ in order}
    ties = [(name, False, False) for name in COLUMNS if name not in named and total]
    return ", ".join(
        f"{name} {'desc' if descending else 'asc'} nulls {'first' if nulls_first else 'last'}"
        for name, descending, nulls_first in [*order, *ties]
    )


def over(partition: tuple[str, ...], order: str, frame: str = "") -> str:
    per = f"partition by {', '.join(partition)} " if partition else ""
    return f"over ({per}order by {order} {frame})"


def top(r: Relation, k: int, offset: int, partition: tuple[str, ...], order: list[Item], limit: bool) -> Relation:
    method = r.stream.limit if limit else r.stream.top_k
    place = f"row_number() {over(partition, sql(order))}"
    return Relation(
        method(k, by(order), partition, offset=offset),
        f"select b, a, f from ({r.sql}) qualify {place} > {offset} and {place} <= {offset + k}",
        (*r.operators, "limit" if limit else "top_k"),
    )


def top_rank(r: Relation, k: int, partition: tuple[str, ...], order: list[Item]) -> Relation:
    place = f"row_number() {over(partition, sql(order))}"
    return Relation(
        r.stream.top_k(k, by(order), partition, rank="n", offset=1).select("b", a="n", f="f"),
        f"select b, {place} as a, f from ({r.sql}) qualify {place} > 1 and {place} <= {1 + k}",
        (*r.operators, "top_k"),
    )


def numbered(r: Relation, partition: tuple[str, ...], order: list[Item]) -> Relation:
    return Relation(
        r.stream.with_row_number("n", by(order), partition).select("b", a="n", f="f"),
        f"select b, row_number() {over(partition, sql(order))} as a, f from ({r.sql})",
        (*r.operators, "row_number"),
    )


def placed(r: Relation, function: str, partition: tuple[str, ...], order: list[Item]) -> Relation:
    tied = sql(order, total=function == "ntile(3)")
    value = dbsp.ntile(3) if function == "ntile(3)" else getattr(dbsp, function[:-2])()
    whole = function in ("percent_rank()", "cume_dist()")
    seen = r.stream.window(partition, by(order)).with_columns(n=value)
    return Relation(
        seen.select("b", a=(dbsp.col("n") * 64).floor().cast(dbsp.INT64) if whole else "n", f="f"),
        f"select b, floor({function} {over(partition, tied)}{' * 64' if whole else ''})::bigint as a, f from ({r.sql})",
        (*r.operators, function.partition("(")[0]),
    )


def shifted(
    r: Relation, column: str, offset: int, default: Any, behind: bool, partition: tuple[str, ...], order: list[Item]
) -> Relation:
    function = "lead" if behind else "lag"
    value = getattr(dbsp, function)(column, offset, *([] if default is None else [default]))
    given = "null" if default is None else f"'{default}'" if isinstance(default, str) else default
    named: dict[str, Any] = {name: name for name in COLUMNS} | {column: value}
    parts = [f"{function}({n}, {offset}, {given}) {over(partition, sql(order))}" if n == column else n for n in COLUMNS]
    return Relation(
        r.stream.window(partition, by(order)).select(**named),
        f"select {', '.join(f'{part} as {n}' for part, n in zip(parts, COLUMNS, strict=True))} from ({r.sql})",
        (*r.operators, function),
    )


def beside(r: Relation, before: int, behind: int, partition: tuple[str, ...], order: list[Item]) -> Relation:
    seen = r.stream.window(partition, by(order)).select("b", a=dbsp.lead("a", behind), f=dbsp.lag("f", before))
    window = over(partition, sql(order))
    return Relation(
        seen,
        f"select b, lead(a, {behind}) {window} as a, lag(f, {before}) {window} as f from ({r.sql})",
        (*r.operators, "lag_and_lead"),
    )


def past_nulls(r: Relation, before: int, n: int, partition: tuple[str, ...], order: list[Item]) -> Relation:
    """Neighbours and ends that pass nulls over."""
    window, frame = over(partition, sql(order)), "rows between unbounded preceding and unbounded following"
    whole = over(partition, sql(order), frame)
    seen = r.stream.window(partition, by(order)).with_columns(
        prev=dbsp.lag("b", before, "none", ignore_nulls=True),
        next=dbsp.lead("f", before, ignore_nulls=True),
        low=dbsp.first_value("b", ignore_nulls=True),
        high=dbsp.last_value("f", ignore_nulls=True),
        nth=dbsp.nth_value("a", n),
        some=dbsp.nth_value("a", n, ignore_nulls=True),
    )
    text = dbsp.concat_ws("|", dbsp.col("prev"), dbsp.col("low"))
    number = dbsp.coalesce(dbsp.col("nth"), dbsp.col("some"))
    return Relation(
        seen.select(b=text, a=number, f=dbsp.coalesce(dbsp.col("next"), dbsp.col("high"))),
        "select concat_ws('|', prev, low) as b, coalesce(nth, other) as a, coalesce(next, high) as f from ("
        f"select lag(b, {before}, 'none' ignore nulls) {window} as prev, lead(f, {before} ignore nulls) {window} as next,"
        f" first_value(b ignore nulls) {whole} as low, last_value(f ignore nulls) {whole} as high,"
        f" nth_value(a, {n}) {whole} as nth, nth_value(a, {n} ignore nulls) {whole} as other from ({r.sql}))",
        (*r.operators, "ignore_nulls"),
    )


def edge(r: Relation, last: bool, partition: tuple[str, ...], order: list[Item]) -> Relation:
    function = "last_value" if last else "first_value"
    frame = "rows between unbounded preceding and unbounded following"
    seen = r.stream.window(partition, by(order)).select("b", a=getattr(dbsp, function)("a"), f="f")
    return Relation(
        seen,
        f"select b, {function}(a) {over(partition, sql(order), frame)} as a, f from ({r.sql})",
        (*r.operators, function),
    )


def end(bound: int | None, side: str) -> str:
    if not bound:
        return "current row" if bound == 0 else f"unbounded {side}"
    other = "following" if side == "preceding" else "preceding"
    return f"{bound} {side}" if bound >= 0 else f"{-bound} {other}"


def rolled(
    r: Relation, kind: str, frame: tuple[int | None, int | None], partition: tuple[str, ...], order: list[Item]
) -> Relation:
    order, window, limits = framed(kind, frame, partition, order)
    seen = r.stream.window(partition, by(order)).with_columns(
        n=dbsp.rolling(dbsp.count("a"), **limits),
        m=dbsp.rolling(dbsp.avg("a"), **limits),
        s=dbsp.rolling(dbsp.sum("f"), **limits),
        low=dbsp.rolling(dbsp.min("b"), **limits),
        high=dbsp.rolling(dbsp.max("f"), **limits),
        spread=dbsp.rolling(dbsp.var_pop("a").where(dbsp.col("a").between(-100, 100)), **limits),
        prev=dbsp.lag("f"),
    )
    less = (dbsp.col("m") <= 2).cast(dbsp.INT64)
    more = (dbsp.col("s") == dbsp.col("high")).cast(dbsp.INT64)
    kept = dbsp.coalesce(dbsp.col("n") + less * 10 + more * 100, dbsp.col("n"))
    spread = (dbsp.coalesce(dbsp.col("spread"), dbsp.lit(-1.0)) * 8).floor().cast(dbsp.INT64) * 1000
    return Relation(
        seen.select(b="low", a=kept + spread, f=dbsp.coalesce(dbsp.col("s"), dbsp.col("prev"))),
        f"select low as b, coalesce(n + (m <= 2)::bigint * 10 + (s = high)::bigint * 100, n)"
        " + floor(coalesce((k * q - t * t)::double / nullif(k * k, 0)::double, -1) * 8)::bigint * 1000 as a,"
        " coalesce(s, prev) as f"
        f" from (select count(x) {window} as k, sum(x) {window} as t, sum(x * x) {window} as q,"
        f" count(a) {window} as n, avg(a) {window} as m, sum(f) {window} as s, min(b) {window} as low,"
        f" max(f) {window} as high, lag(f) {over(partition, sql(order))} as prev"
        f" from (select *, case when a between -100 and 100 then a end as x from ({r.sql})))",
        (*r.operators, f"rolling_{kind}"),
    )


Frame = tuple[int | None, int | None]


def framed(kind: str, frame: Frame, partition: tuple[str, ...], order: list[Item]) -> tuple[list[Item], str, Any]:
    """The order, which a range with a distance has one of, the window in SQL, and the frame in Python."""
    if kind == "range" and any(frame):
        order = [("a", order[0][1], order[0][2])]
    text = f"{kind} between {end(frame[0], 'preceding')} and {end(frame[1], 'following')}"
    return order, over(partition, sql(order, total=kind == "rows"), text), {kind: frame}


def rolled_values(r: Relation, kind: str, frame: Frame, partition: tuple[str, ...], order: list[Item]) -> Relation:
    """What sorts or counts the values of a frame."""
    order, window, limits = framed(kind, frame, partition, order)
    some = dbsp.col("f").is_not_null()
    seen = r.stream.window(partition, by(order)).with_columns(
        usual=dbsp.rolling(dbsp.mode("b"), **limits),
        late=dbsp.rolling(dbsp.quantile_disc("b", 0.75), **limits),
        most=dbsp.rolling(dbsp.arg_max("b", "f"), **limits),
        few=dbsp.rolling(dbsp.count_distinct("f"), **limits),
        kinds=dbsp.rolling(dbsp.count_distinct("b").where(some), **limits),
        middle=dbsp.rolling(dbsp.median("a").where(some), **limits),
        low=dbsp.rolling(dbsp.quantile_disc("f", 0.25), **limits),
        every=dbsp.rolling(dbsp.bool_and(dbsp.col("f") > 0), **limits),
    )
    number = dbsp.col("few") * 100 + dbsp.col("kinds") * 10 + dbsp.when(dbsp.col("every"), 1).otherwise(0)
    held = "from (select unnest(held) as v) where v.b is not null"
    commonest = f"select v.b {held} group by v.b order by count(*) desc, v.b limit 1"
    most = f"select v.b {held} and v.f is not null order by v.f desc, v.b limit 1"
    return Relation(
        seen.select(
            b=dbsp.concat_ws("|", dbsp.col("usual"), dbsp.col("late"), dbsp.col("most")),
            a=number.cast(dbsp.INT64),
            f=dbsp.coalesce(dbsp.col("middle"), dbsp.col("low")),
        ),
        f"select concat_ws('|', ({commonest}), late, ({most})) as b,"
        " few * 100 + kinds * 10 + (case when every then 1 else 0 end) as a, coalesce(middle, low) as f from ("
        f"select list({{'b': b, 'f': f}}) {window} as held, quantile_disc(b, 0.75) {window} as late,"
        f" count(distinct f) {window} as few,"
        f" count(distinct b) filter (where f is not null) {window} as kinds, quantile_disc(f, 0.25) {window} as low,"
        f" median(a) filter (where f is not null) {window} as middle, bool_and(f > 0) {window} as every from ({r.sql}))",
        (*r.operators, f"rolling_values_{kind}"),
    )


def rolled_pairs(
    r: Relation, function: str, kind: str, frame: Frame, partition: tuple[str, ...], order: list[Item]
) -> Relation:
    """A function of pairs, rounded once by both sides."""
    order, window, limits = framed(kind, frame, partition, order)
    some = (dbsp.col("a").between(-100, 100)) & (dbsp.col("f").between(-100.0, 100.0))
    seen = r.stream.window(partition, by(order)).with_columns(
        v=dbsp.rolling(getattr(dbsp, function)("f", "a").where(some), **limits),
        n=dbsp.rolling(dbsp.regr_count("f", "a").where(some), **limits),
    )
    sums = ", ".join(
        f"{what} {window} as {name}"
        for name, what in {
            "n": "count(x)", "sx": "sum(x)", "sy": "sum(y)", "qx": "sum(x * x)", "qy": "sum(y * y)", "p": "sum(x * y)"
        }.items()
    )  # fmt: skip
    few = f"{SMALL} and f between -100 and 100"
    pairs = f"select *, case when {few} then a::double end as x, case when {few} then f end as y from ({r.sql})"
    moments = "select *, n * p - sx * sy as xy, n * qx - sx * sx as xx, n * qy - sy * sy as yy"
    moments += f" from (select b, {sums} from ({pairs}))"
    return Relation(
        seen.select("b", a="n", f=(dbsp.col("v") * 64).floor() / 64),
        f"select b, n as a, floor(case when n > 0 then {PAIRS[function]} end * 64) / 64 as f from ({moments})",
        (*r.operators, f"rolling_pairs_{kind}"),
    )


def rolled_firsts(r: Relation, kind: str, frame: Frame, partition: tuple[str, ...], order: list[Item]) -> Relation:
    """The first and the last by an order of their own, and bits."""
    order, window, limits = framed(kind, frame, partition, order)
    some = dbsp.col("a") > 0
    seen = r.stream.window(partition, by(order)).with_columns(
        one=dbsp.rolling(dbsp.first("b", order_by=[dbsp.desc("f"), "a"]), **limits),
        end=dbsp.rolling(dbsp.last("b", order_by="a").where(some), **limits),
        there=dbsp.rolling(dbsp.last("f", order_by=dbsp.asc("b", nulls_first=True), ignore_nulls=True), **limits),
        every=dbsp.rolling(dbsp.bit_and("a"), **limits),
        any=dbsp.rolling(dbsp.bit_or("a").where(some), **limits),
        odd=dbsp.rolling(dbsp.bit_xor("a"), **limits),
    )
    held = "from (select unnest(held) as v)"
    one = f"select v.b {held} order by v.f desc nulls last, v.a nulls last, v.b nulls last limit 1"
    end = f"select v.b {held} where v.a > 0 order by v.a desc, v.b desc nulls first limit 1"
    there = f"select v.f {held} where v.f is not null order by v.b desc nulls last, v.f desc limit 1"
    odd = dbsp.coalesce((dbsp.col("odd") + LARGE) % 1000, dbsp.lit(0))
    every = dbsp.coalesce((dbsp.col("every") + LARGE) % 1000, dbsp.lit(7))
    return Relation(
        seen.select(
            b=dbsp.concat_ws("|", dbsp.col("one"), dbsp.col("end")),
            a=odd + every * 2000 + dbsp.coalesce(dbsp.col("any") % 1000, dbsp.lit(3)) * 5_000_000,
            f="there",
        ),
        f"select concat_ws('|', ({one}), ({end})) as b, coalesce((odd + {LARGE}) % 1000, 0)"
        f" + coalesce((every + {LARGE}) % 1000, 7) * 2000"
        f" + coalesce(anyone % 1000, 3) * 5000000 as a, ({there}) as f from ("
        f"select list({{'b': b, 'a': a, 'f': f}}) {window} as held, bit_and(a) {window} as every,"
        f" bit_or(a) filter (where a > 0) {window} as anyone, bit_xor(a) {window} as odd from ({r.sql}))",
        (*r.operators, f"rolling_firsts_{kind}"),
    )


def spread(rows: list[dict[str, int]]) -> int:
    """Of rows in order."""
    return rows[-1]["a"] - rows[0]["a"]


def rolled_folds(r: Relation, kind: str, frame: Frame, partition: tuple[str, ...], order: list[Item]) -> Relation:
    """What is made of all rows of a frame in order."""
    order, window, limits = framed(kind, frame, partition, order)
    some = dbsp.col("a").between(-100, 100)
    fold = dbsp.fold_aggregate("a", function=spread, type=dbsp.INT64, order_by="a")
    seen = r.stream.window(partition, by(order)).with_columns(
        texts=dbsp.rolling(dbsp.string_agg("b", "|"), **limits),
        listed=dbsp.rolling(dbsp.array_agg("b", order_by=[dbsp.desc("f"), "a"]), **limits),
        wide=dbsp.rolling(fold.where(some), **limits),
    )
    held = "from (select unnest(held) as v)"
    texts = f"select string_agg(v.b, '|' order by v.b) {held} where v.b is not null"
    listed = (
        f"select string_agg(v.b, ',' order by v.f desc nulls last, v.a nulls last, v.b) {held} where v.b is not null"
    )
    wide = f"select max(v.a) - min(v.a) {held} where v.a between -100 and 100"
    return Relation(
        seen.select(b=dbsp.concat_ws("/", dbsp.col("texts"), dbsp.col("listed").list_join(",")), a="wide", f="f"),
        f"select concat_ws('/', ({texts}), case when held is not null then coalesce(({listed}), '') end) as b,"
        f" ({wide}) as a, f from (select f, list({{'b': b, 'a': a, 'f': f}}) {window} as held from ({r.sql}))",
        (*r.operators, f"rolling_folds_{kind}"),
    )


def frames(rows: bool) -> st.SearchStrategy[tuple[int | None, int | None]]:
    running = st.sampled_from([(None, 0), (0, None), (None, -1), (None, -2), (-2, None), (None, None)])
    if not rows:
        return st.one_of(st.tuples(bounds, bounds), running)
    across = st.sampled_from([(2, -1), (-1, 2), (3, -2), (0, 0)])
    return st.one_of(st.tuples(bounds, bounds), across, running)


def extend(inner: st.SearchStrategy[Relation]) -> list[st.SearchStrategy[Relation]]:
    """Relations made of others."""
    functions = st.sampled_from(list(PAIRS))
    places = ["rank()", "dense_rank()", "percent_rank()", "cume_dist()", "ntile(3)"]
    values = st.sampled_from([("b", None), ("b", "none"), ("a", 7), ("a", None), ("f", 0.5)])
    return [
        st.builds(top, inner, st.integers(1, 3), st.integers(0, 2), partitions, orders, st.booleans()),
        st.builds(top_rank, inner, st.integers(1, 3), partitions, orders),
        st.builds(numbered, inner, partitions, orders),
        st.builds(placed, inner, st.sampled_from(places), partitions, orders),
        st.builds(
            lambda r, value, *rest: shifted(r, *value[:1], rest[0], value[1], *rest[1:]),
            inner, values, st.integers(0, 3), st.booleans(), partitions, orders,
        ),
        st.builds(beside, inner, st.integers(0, 3), st.integers(0, 3), partitions, orders),
        st.builds(edge, inner, st.booleans(), partitions, orders),
        st.builds(past_nulls, inner, st.integers(1, 2), st.integers(1, 3), partitions, orders),
        st.builds(rolled, inner, st.just("rows"), frames(rows=True), partitions, orders),
        st.builds(rolled, inner, st.just("range"), frames(rows=False), partitions, orders),
        st.builds(rolled_values, inner, st.just("rows"), frames(rows=True), partitions, orders),
        st.builds(rolled_values, inner, st.just("range"), frames(rows=False), partitions, orders),
        st.builds(rolled_firsts, inner, st.just("rows"), frames(rows=True), partitions, orders),
        st.builds(rolled_firsts, inner, st.just("range"), frames(rows=False), partitions, orders),
        st.builds(rolled_pairs, inner, functions, st.just("rows"), frames(rows=True), partitions, orders),
        st.builds(rolled_pairs, inner, functions, st.just("range"), frames(rows=False), partitions, orders),
        st.builds(rolled_folds, inner, st.just("rows"), frames(rows=True), partitions, orders),
        st.builds(rolled_folds, inner, st.just("range"), frames(rows=False), partitions, orders),
    ]  # fmt: skip

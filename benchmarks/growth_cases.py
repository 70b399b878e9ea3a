"""The circuits that `benchmarks.growth` measures: one for every operator, with the rows its tables are fed.

A row is made from its number alone, so any row can be deleted without keeping it. Where a group matters there are two kinds of
keys: "many" has groups of ten rows whose number grows with the table, "few" has ten groups that grow with it. Left out: what
is measured, and how (`benchmarks.growth`).
"""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import dbsp
import dbsp.core

I64 = npt.NDArray[np.int64]
Columns = dict[str, Any]
Maker = Callable[[I64, int], Columns]

GROUP, FEW, BLOCK = 10, 10, 100
SECONDS_PER_ROW = 2
RECENT_ROWS = 50_000
KEPT = dbsp.seconds(4 * RECENT_ROWS * SECONDS_PER_ROW)
START = np.datetime64("2024-01-01", "us")
EVENTS = {"k": dbsp.INT64, "at": dbsp.TIMESTAMP, "x": dbsp.INT64, "f": dbsp.FLOAT64, "c": dbsp.INT64}
SIDE = {"k": dbsp.INT64, "y": dbsp.INT64}
CHAIN = 3
MIXED = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True, kw_only=True)
class Feed:
    """A table: how its rows are made, how many it has per row of the first table, and how many change in a step."""

    table: str
    rows: Maker
    share: float = 1.0
    changed: int = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A circuit of one operator; `says` has the Cost block; `changes`: any rows, "recent" ones, "oldest", or only that "new"
    ones come, anywhere, or the "newest", behind all others."""

    name: str
    view: dbsp.Stream
    feeds: tuple[Feed, ...]
    says: Any
    changes: str = "any"


def mixed(number: I64, salt: int) -> I64:
    """Numbers without an order, below 2**62."""
    with np.errstate(over="ignore"):
        bits = (number.astype(np.uint64) + np.uint64(salt << 40)) * MIXED
        bits = (bits ^ (bits >> np.uint64(29))) * MIXED
    return (bits >> np.uint64(2)).astype(np.int64)


def time_of(number: I64) -> npt.NDArray[np.datetime64]:
    """Hundred rows in as many seconds, then none for as long: so the rows of a key come in sessions of ten."""
    return START + (number + BLOCK * (number // BLOCK)) * np.timedelta64(1_000_000, "us")


def events(few: bool) -> Maker:
    """Rows of a key, a time that grows, and values."""

    def made(number: I64, salt: int) -> Columns:
        value = mixed(number, salt)
        key = number % FEW if few else number // GROUP
        return {"k": key, "at": time_of(number), "x": value % 1_000_000, "f": value / 7e12, "c": value % 4}

    return made


def sides(number: I64, salt: int) -> Columns:
    """One row per key."""
    return {"k": number, "y": mixed(number, salt) % 1000}


def edges(number: I64, salt: int) -> Columns:  # noqa: ARG001 (an edge has no value)
    """Chains of three edges."""
    first = number + number // CHAIN
    return {"a": first, "b": first + 1}


def lists(number: I64, salt: int) -> Columns:
    """Rows with a list of two."""
    value = mixed(number, salt) % 1000
    return {"k": number, "l": np.stack([value, value + 1], axis=1).tolist()}


def t(append_only: bool = False, late: bool = False, key: bool = False) -> dbsp.Stream:
    """The table of events."""
    columns = {"at": EVENTS["at"], **EVENTS} if key else EVENTS
    watermark = {"at": KEPT} if late else None
    return dbsp.table("t", columns, append_only=append_only, watermark=watermark, primary_key="at" if key else None)


def u() -> dbsp.Stream:
    """The table with one row per key."""
    return dbsp.table("u", SIDE)


def b(late: bool = False) -> dbsp.Stream:
    """A second table of events."""
    return dbsp.table("b", EVENTS, watermark={"at": KEPT} if late else None)


def _rows() -> Iterator[Case]:
    """Operators that look at one row at a time."""
    one = (Feed(table="t", rows=events(few=False)),)

    def whole(batch: Any) -> Any:
        return batch.select(["x"])

    stateless: Mapping[str, tuple[dbsp.Stream, Any]] = {
        "select": (t().select("k", y=dbsp.col("x") + 1), dbsp.Stream.select),
        "with_columns": (t().with_columns(y=dbsp.col("f") * 2), dbsp.Stream.with_columns),
        "filter": (t().filter(dbsp.col("x") > 500_000), dbsp.Stream.filter),
        "map_batches": (t().map_batches(whole, schema={"x": dbsp.INT64}), dbsp.Stream.map_batches),
        "map": (t().map(lambda row: {"y": row["x"]}, schema={"y": dbsp.INT64}), dbsp.Stream.map),
        "flat_map": (t().flat_map(lambda row: [{"y": row["x"]}], schema={"y": dbsp.INT64}), dbsp.Stream.flat_map),
        "tumble": (t().tumble("at", dbsp.minutes(5)), dbsp.Stream.tumble),
        "hop": (t().hop("at", dbsp.minutes(10), dbsp.minutes(5)), dbsp.Stream.hop),
        "union": (t().union(t().with_columns(x=dbsp.col("x") + 1)), dbsp.Stream.union),
    }
    for name, (view, says) in stateless.items():
        yield Case(name=name, view=view, feeds=one, says=says)
    listed = dbsp.table("l", {"k": dbsp.INT64, "l": dbsp.list_of(dbsp.INT64)})
    yield Case(name="explode", view=listed.explode("l"), feeds=(Feed(table="l", rows=lists),), says=dbsp.Stream.explode)
    yield Case(name="primary key", view=t(key=True), feeds=one, says=dbsp.table)


def _sets() -> Iterator[Case]:
    """Operators that look at equal rows."""
    one = (Feed(table="t", rows=events(few=False)),)
    two = (
        Feed(table="t", rows=events(few=False), share=0.5, changed=500),
        Feed(table="b", rows=lambda number, salt: events(few=False)(2 * number, salt), share=0.5, changed=500),
    )
    yield Case(name="distinct", view=t().select("k", "x").distinct(), feeds=one, says=dbsp.Stream.distinct)
    yield Case(name="distinct of groups", view=t().select("k").distinct(), feeds=one, says=dbsp.Stream.distinct)
    yield Case(name="with_weight", view=t().select("k").with_weight(), feeds=one, says=dbsp.Stream.with_weight)
    a, c = t().select("k", "x"), b().select("k", "x")
    yield Case(name="union distinct", view=a.union(c, distinct=True), feeds=two, says=dbsp.Stream.union)
    for all_ in (False, True):
        end = " all" if all_ else ""
        yield Case(name=f"difference{end}", view=a.difference(c, all=all_), feeds=two, says=dbsp.Stream.difference)
        yield Case(name=f"intersect{end}", view=a.intersect(c, all=all_), feeds=two, says=dbsp.Stream.intersect)


def _joins() -> Iterator[Case]:
    """Joins of rows with one row per key; then by time, with a few partners per row."""
    both = (Feed(table="t", rows=events(few=False)), Feed(table="u", rows=sides, share=1 / GROUP, changed=100))
    few = (Feed(table="t", rows=events(few=True)), Feed(table="u", rows=sides, share=0.0, changed=0))
    left = t().select("k", "x")
    pair = dbsp.col("x") > dbsp.col("y") * 500
    for how in ("inner", "left", "right", "full", "semi", "anti"):
        yield Case(name=f"join {how}, many", view=left.join(u(), on="k", how=how), feeds=both, says=dbsp.Stream.join)
        yield Case(name=f"join {how}, few", view=left.join(u(), on="k", how=how), feeds=few, says=dbsp.Stream.join)
    for how in ("inner", "left", "semi", "anti"):
        view = left.join(u(), on="k", how=how, where=pair)
        yield Case(name=f"join {how} where, many", view=view, feeds=both, says=dbsp.Stream.join)
    self_join = t().select("k", "at").join(t().select("k", "x"), on="k")
    yield Case(name="self join, many", view=self_join, feeds=both[:1], says=dbsp.Stream.join)
    multi = dbsp.join_all([left, u(), t().group_by("k").aggregate(n=dbsp.count())], on="k")
    yield Case(name="join_all, many", view=multi, feeds=both, says=dbsp.join_all)
    yield Case(
        name="lookup join", view=left.lookup_join(u(), on="k"), feeds=both, says=dbsp.Stream.lookup_join, changes="new"
    )
    small = (Feed(table="t", rows=events(few=False)), Feed(table="u", rows=sides, share=0.0, changed=0))
    crossed = left.cross_join(u(), where=dbsp.col("y") > dbsp.col("x") % 1000, suffix="_u")
    yield Case(name="cross join, 10 rows", view=crossed, feeds=small, says=dbsp.Stream.cross_join)


def _time_joins() -> Iterator[Case]:
    """As-of and interval joins."""
    for name, wide in (("many", False), ("few", True)):
        feeds = (
            Feed(table="t", rows=events(few=wide), share=0.5, changed=500),
            Feed(table="b", rows=events(few=wide), share=0.5, changed=500),
        )
        left, right = t().select("k", "at", "x"), b().select("k", "at", y="x")
        asof = left.asof_join(right, on="at", by="k", tolerance=dbsp.hours(1))
        yield Case(name=f"asof join, {name}", view=asof, feeds=feeds, says=dbsp.Stream.asof_join)
        for how in ("inner", "left", "anti"):
            near = left.interval_join(right, on="at", by="k", within=dbsp.seconds(30), how=how)
            yield Case(name=f"interval join {how}, {name}", view=near, feeds=feeds, says=dbsp.Stream.interval_join)
    left, right = t(late=True).select("k", "at", "x"), b(late=True).select("k", "at", y="x")
    near = left.interval_join(right, on="at", by="k", within=dbsp.seconds(30))
    late = tuple(Feed(table=name, rows=events(few=False), share=0.5, changed=500) for name in "tb")
    yield Case(
        name="interval join, watermark", view=near, feeds=late, says=dbsp.Stream.with_watermark, changes="recent"
    )


def _ups(rows: list[dict[str, Any]]) -> int:
    return sum(a["x"] < b["x"] for a, b in itertools.pairwise(rows))


def _squares(rows: Any) -> Any:
    x = rows["x"].to_numpy()
    return [x * x]


def _root(sums: Any) -> Any:
    return sums[:, 0]


def _aggregates() -> Iterator[Case]:
    """Each aggregate alone."""
    x = dbsp.col("x")
    made: Mapping[str, tuple[dbsp.Aggregate, Any]] = {
        "count": (dbsp.count(), dbsp.count),
        "count where": (dbsp.count().where(x > 500_000), dbsp.Aggregate.where),
        "count_distinct": (dbsp.count_distinct("x"), dbsp.count_distinct),
        "sum distinct": (dbsp.sum("x", distinct=True), dbsp.sum),
        "sum int": (dbsp.sum("x"), dbsp.sum),
        "sum float": (dbsp.sum("f"), dbsp.sum),
        "sum decimal": (dbsp.sum(x.cast(dbsp.decimal(18, 2))), dbsp.sum),
        "avg": (dbsp.avg("x"), dbsp.avg),
        "min": (dbsp.min("x"), dbsp.min),
        "max": (dbsp.max("x"), dbsp.max),
        "arg_min": (dbsp.arg_min("at", "x"), dbsp.arg_min),
        "arg_max": (dbsp.arg_max("at", "x"), dbsp.arg_max),
        "first": (dbsp.first("x", order_by="at"), dbsp.first),
        "last": (dbsp.last("x", order_by="at"), dbsp.last),
        "stddev int": (dbsp.stddev("x"), dbsp.var_pop),
        "stddev float": (dbsp.stddev("f"), dbsp.var_pop),
        "bool_and": (dbsp.bool_and(x > 5), dbsp.bool_and),
        "bit_and": (dbsp.bit_and("x"), dbsp.bit_and),
        "bit_xor": (dbsp.bit_xor("x"), dbsp.bit_xor),
        "median": (dbsp.median("x"), dbsp.median),
        "quantile_disc": (dbsp.quantile_disc("x", 0.9), dbsp.quantile_disc),
        "array_agg": (dbsp.array_agg("x", order_by="at"), dbsp.array_agg),
        "string_agg": (dbsp.string_agg(x.cast(dbsp.STRING), order_by="x"), dbsp.string_agg),
        "linear_aggregate": (
            dbsp.linear_aggregate("x", map=_squares, finish=_root, type=dbsp.INT64),
            dbsp.linear_aggregate,
        ),
        "fold_aggregate": (
            dbsp.fold_aggregate("at", "x", function=_ups, type=dbsp.INT64, order_by="at"),
            dbsp.fold_aggregate,
        ),
    }
    for name, (aggregate, says) in made.items():
        for keys, wide in (("many", False), ("few", True)):
            view = t().group_by("k").aggregate(v=aggregate)
            yield Case(name=f"{name}, {keys}", view=view, feeds=(Feed(table="t", rows=events(few=wide)),), says=says)


def _groups() -> Iterator[Case]:
    """Group-bys of several kinds."""
    one = (Feed(table="t", rows=events(few=False)),)
    total: dict[str, Any] = {"n": dbsp.count(), "total": dbsp.sum("x")}
    yield Case(name="global aggregate", view=t().aggregate(**total), feeds=one, says=dbsp.Stream.aggregate)
    yield Case(name="rollup", view=t().rollup("k", "c").aggregate(**total), feeds=one, says=dbsp.Stream.rollup)
    yield Case(name="cube", view=t().cube("k", "c").aggregate(**total), feeds=one, says=dbsp.Stream.cube)
    wide = t().group_by("k").pivot("c", [0, 1, 2, 3], total=dbsp.sum("x"))
    yield Case(name="pivot", view=wide, feeds=one, says=type(t().group_by("k")).pivot)
    several = t().group_by("k").aggregate(**total, most=dbsp.max("x"), mean=dbsp.avg("f"))
    yield Case(name="four aggregates", view=several, feeds=one, says=dbsp.Stream.group_by)
    newer = t(append_only=True)
    for name, view in {
        "append-only max": newer.group_by("k").aggregate(v=dbsp.max("x")),
        "append-only top_k": newer.top_k(3, by=dbsp.desc("x"), partition_by="k"),
    }.items():
        for keys, few in (("many", False), ("few", True)):
            feeds = (Feed(table="t", rows=events(few=few)),)
            yield Case(name=f"{name}, {keys}", view=view, feeds=feeds, says=dbsp.table, changes="new")


def _frames(keys: str, feeds: tuple[Feed, ...]) -> Iterator[Case]:
    """Aggregates over frames."""
    frames: Mapping[str, dict[str, Any]] = {
        "rolling rows": {"rows": 5},
        "rolling range": {"range": dbsp.seconds(60)},
        "rolling all": {"rows": (None, None)},
    }
    for name, frame in frames.items():
        aggregates = {
            "sum": dbsp.sum("x"),
            "max": dbsp.max("x"),
            "median": dbsp.median("x"),
            "corr": dbsp.corr("x", "k"),
        }
        for kind, aggregate in aggregates.items():
            rolled = dbsp.rolling(aggregate, **frame)
            view = t().select("k", "at", "x").window("k", "at").with_columns(v=rolled)
            yield Case(name=f"{name} {kind}, {keys}", view=view, feeds=feeds, says=dbsp.rolling)
    running = {
        "sum": dbsp.rolling(dbsp.sum("x"), rows=(None, 0)),
        "sum of floats": dbsp.rolling(dbsp.sum("f"), rows=(None, 0)),
        "max": dbsp.rolling(dbsp.max("x"), rows=(None, 0)),
        "corr": dbsp.rolling(dbsp.corr("x", "f"), rows=(None, 0)),
        "count in a range": dbsp.rolling(dbsp.count(), range=(None, dbsp.seconds(0))),
        "count_distinct": dbsp.rolling(dbsp.count_distinct("x"), rows=(None, 0)),
    }
    for name, function in running.items():
        view = t().select("k", "at", "x", "f").window("k", "at").with_columns(v=function)
        yield Case(name=f"running {name}, {keys}", view=view, feeds=feeds, says=dbsp.rolling, changes="newest")


def _order() -> Iterator[Case]:
    """Top-k and window functions."""
    for keys, wide in (("many", False), ("few", True)):
        feeds = (Feed(table="t", rows=events(few=wide)),)
        view = t().top_k(3, by=dbsp.desc("x"), partition_by="k", rank="place")
        yield Case(name=f"top_k, {keys}", view=view, feeds=feeds, says=dbsp.Stream.top_k)
        yield Case(
            name=f"limit, {keys}",
            view=t().limit(3, by="at", offset=2, partition_by="k"),
            feeds=feeds,
            says=dbsp.Stream.top_k,
        )
        functions = {
            "row_number": dbsp.row_number(),
            "rank": dbsp.rank(),
            "dense_rank": dbsp.dense_rank(),
            "percent_rank": dbsp.percent_rank(),
            "cume_dist": dbsp.cume_dist(),
            "ntile": dbsp.ntile(4),
            "lag": dbsp.lag("x"),
            "lead": dbsp.lead("x"),
            "first_value": dbsp.first_value("x"),
            "last_value": dbsp.last_value("x"),
        }
        for name, function in functions.items():
            view = t().select("k", "at", "x").window("k", "at").with_columns(v=function)
            yield Case(name=f"{name}, {keys}", view=view, feeds=feeds, says=getattr(dbsp, name))
        yield from _frames(keys, feeds)
    feeds = (Feed(table="t", rows=events(few=False)),)
    queues: Mapping[str, tuple[dbsp.Stream, Any]] = {
        "min": (t().group_by("k").aggregate(v=dbsp.min("at")), dbsp.min),
        "top_k": (t().top_k(3, by="at", partition_by="k"), dbsp.Stream.top_k),
        "lag": (t().select("k", "at", "x").window("k", "at").with_columns(v=dbsp.lag("x")), dbsp.Stream.window),
        "median": (t().group_by("k").aggregate(v=dbsp.median("x")), dbsp.median),
    }
    for name, (view, says) in queues.items():
        queue = (Feed(table="t", rows=events(few=True)),)
        yield Case(name=f"queue {name}, few", view=view, feeds=queue, says=says, changes="oldest")
    yield Case(name="top_k, one partition", view=t().top_k(10, by="x"), feeds=feeds, says=dbsp.Stream.top_k)


def _time() -> Iterator[Case]:
    """Windows of time, what closes them, and filters over the clock."""
    one, few = ((Feed(table="t", rows=events(few=wide)),) for wide in (False, True))
    Stream = dbsp.Stream  # noqa: N806 (the class)
    windows = ("window_start", "window_end")
    tumbled = t().tumble("at", dbsp.seconds(20)).group_by("window_end").aggregate(n=dbsp.count(), m=dbsp.max("x"))
    yield Case(name="tumble, count and max", view=tumbled, feeds=one, says=Stream.tumble)
    hopped = t().hop("at", dbsp.seconds(20), dbsp.seconds(10)).group_by("window_end").aggregate(n=dbsp.count())
    yield Case(name="hop, count", view=hopped, feeds=one, says=Stream.hop)
    for keys, feeds in (("many", one), ("few", few)):
        visits = t().select("k", "at").session("at", dbsp.seconds(60), partition_by="k")
        yield Case(name=f"session, {keys}", view=visits, feeds=feeds, says=Stream.session)
        counted = visits.group_by("k", *windows).aggregate(n=dbsp.count())
        yield Case(name=f"session count, {keys}", view=counted, feeds=feeds, says=Stream.session)
    late = t(late=True)
    in_windows = late.tumble("at", dbsp.seconds(20)).group_by("window_end").aggregate(n=dbsp.count(), m=dbsp.max("x"))
    lately: Mapping[str, tuple[dbsp.Stream, Any]] = {
        "watermark alone": (late, Stream.with_watermark),
        "watermark, windows": (in_windows, Stream.with_watermark),
        "watermark, final": (in_windows.final(), Stream.final),
        "watermark, distinct": (late.select("k", "at").distinct(), Stream.with_watermark),
        "watermark, session": (late.select("k", "at").session("at", dbsp.seconds(60), "k"), Stream.with_watermark),
        "watermark, lag": (late.select("k", "at", "x").window("k", "at").with_columns(v=dbsp.lag("x")), Stream.window),
        "watermark, top_k": (
            late.tumble("at", dbsp.seconds(20)).top_k(3, by="x", partition_by="window_end"),
            Stream.with_watermark,
        ),
        "filter over now()": (t().filter(dbsp.col("at") > dbsp.now() - KEPT), Stream.filter),
    }
    for name, (view, says) in lately.items():
        yield Case(name=name, view=view, feeds=one, says=says, changes="recent")


def _recursion() -> Iterator[Case]:
    """Recursion, and DBSP's own operators."""
    arcs = dbsp.table("e", {"a": dbsp.INT64, "b": dbsp.INT64})
    feeds = (Feed(table="e", rows=edges),)
    after = arcs.rename({"a": "b", "b": "c"})
    paths = dbsp.recursive(arcs, lambda found: found.join(after, on="b").select("a", b="c"))
    yield Case(name="recursive, paths", view=paths, feeds=feeds, says=dbsp.recursive)
    both = arcs.union(arcs.select(a="b", b="a"))
    nodes = both.select("a").distinct()

    def body(least: Any) -> Any:
        told = least.join(both, on="a").select(a="b", least="least")
        return nodes.select("a", least="a").union(told).group_by("a").aggregate(least=dbsp.min("least"))

    parts = dbsp.recursive({"least": {"a": dbsp.INT64, "least": dbsp.INT64}}, body)["least"]
    yield Case(name="recursive, components", view=parts, feeds=feeds, says=dbsp.recursive)
    one = (Feed(table="t", rows=events(few=False)),)
    for name in ("delay", "differentiate", "integrate", "lifted_distinct"):
        operator = getattr(dbsp.core, name)
        yield Case(name=f"core.{name}", view=operator(t().select("k")), feeds=one, says=operator)


def all_cases() -> Iterator[Case]:
    """Every case, family by family."""
    for family in (_rows, _sets, _joins, _time_joins, _aggregates, _groups, _order, _time, _recursion):
        yield from family()


def last_time(rows: int) -> datetime.datetime:
    """The time of the last of so many rows."""
    found: datetime.datetime = time_of(np.array([rows])).astype("datetime64[us]")[0].item()
    return found

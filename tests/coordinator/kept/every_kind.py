"""A circuit with every kind of logical node, aggregate and window function that version 0.1.0 had; never to be changed.

Its fingerprint, signatures and state are kept beside it (`tests/coordinator/keep.py`): later versions must find them equal.
"""
# ruff: noqa: E501, PLW0108 (kept as it was written)

import dbsp
import dbsp.core
from dbsp import col

EVENTS = {"k": dbsp.INT64, "at": dbsp.TIMESTAMP, "x": dbsp.INT64, "f": dbsp.FLOAT64, "c": dbsp.INT64, "s": dbsp.STRING}
t = dbsp.table("t", EVENTS)
b = dbsp.table("b", {"k": dbsp.INT64, "at": dbsp.TIMESTAMP, "x": dbsp.INT64})
u = dbsp.table("u", {"id": dbsp.INT64, "y": dbsp.INT64, "d": dbsp.decimal(10, 2)}, primary_key="id")
o = dbsp.table("o", {"id": dbsp.INT64, "k": dbsp.INT64, "x": dbsp.INT64}, primary_key="id", append_only=True)
w = dbsp.table("w", {"k": dbsp.INT64, "at": dbsp.TIMESTAMP, "x": dbsp.INT64}, watermark={"at": dbsp.seconds(30)})
n = dbsp.table("n", {"k": dbsp.INT64, "l": dbsp.list_of(dbsp.INT64), "p": dbsp.struct_of({"a": dbsp.INT64})})
e = dbsp.table("e", {"a": dbsp.INT64, "b": dbsp.INT64})

key = u.select(k="id", y="y", d="d")
left, right = t.select("k", "at", "x"), b.select("k", "at", y="x")
views = {
    "t": t, "u": u, "o": o, "n": n,
    "select": t.select("k", y=col("x") + 1, z=dbsp.when(col("x") > 3, "long").otherwise(col("s"))),
    "filter": t.filter((col("x") > 2) & col("s").is_in(["a", "b"])),
    "map": t.map(lambda row: {"y": row["x"]}, schema={"y": dbsp.INT64}),
    "flat_map": t.flat_map(lambda row: [{"y": row["x"]}], schema={"y": dbsp.INT64}),
    "map_batches": t.map_batches(lambda batch: batch.select(["x"]), schema={"x": dbsp.INT64}),
    "explode": n.explode("l"),
    "explode_outer": n.select("k", "l").explode("l", name="one", position="at", outer=True),
    "unnest": n.unnest("p"),
    "unpivot": t.select("k", "x", "c").unpivot(["x", "c"]),
    "union": t.select("k").union(b.select("k")),
    "union_distinct": t.select("k").union(b.select("k"), distinct=True),
    "difference": t.select("k").difference(b.select("k")),
    "difference_all": t.select("k").difference(b.select("k"), all=True),
    "intersect": t.select("k").intersect(b.select("k")),
    "intersect_all": t.select("k").intersect(b.select("k"), all=True),
    "distinct": t.select("k", "x").distinct(),
    "weights": t.select("k").with_weight(),
    **{f"join_{how}": left.join(key, on="k", how=how) for how in ("inner", "left", "right", "full", "semi", "anti")},
    **{f"where_{how}": left.join(key, on="k", how=how, where=col("x") > col("y")) for how in ("inner", "left", "semi", "anti")},
    "null_safe": left.join(key, on="k", null_safe=True),
    "self_join": t.select("k", "at").join(t.select("k", "x"), on="k"),
    "cross": left.cross_join(key, where=col("x") > col("y"), suffix="_u"),
    "join_all": dbsp.join_all([left, key, t.group_by("k").aggregate(n=dbsp.count())], on="k"),
    "unique_join": o.join(o.select("id", y="x"), on="id"),
    "lookup": left.lookup_join(key, on="k"),
    **{f"asof_{way}": left.asof_join(right, on="at", by="k", direction=way) for way in ("backward", "forward", "nearest")},
    "asof_tolerance": left.asof_join(right, on="at", by="k", tolerance=dbsp.hours(1), how="inner"),
    **{f"interval_{how}": left.interval_join(right, on="at", by="k", within=dbsp.seconds(30), how=how) for how in ("inner", "left", "anti")},
    "sums": t.group_by("k").aggregate(
        n=dbsp.count(), some=dbsp.count().where(col("x") > 2), kinds=dbsp.count_distinct("x"), total=dbsp.sum("x"),
        once=dbsp.sum("x", distinct=True), f=dbsp.sum("f"), mean=dbsp.avg("x"), every=dbsp.bool_and(col("x") > 1),
        one=dbsp.bool_or(col("x") > 1), bits=dbsp.bit_and("x"), bit=dbsp.bit_or("x"), xor=dbsp.bit_xor("x")),
    "decimals": u.group_by("y").aggregate(total=dbsp.sum("d"), mean=dbsp.avg("d")),
    "moments": t.group_by("k").aggregate(
        a=dbsp.stddev("x"), b=dbsp.stddev_pop("f"), c=dbsp.stddev_samp("f"), d=dbsp.var_pop("x"), e=dbsp.var_samp("x"), g=dbsp.variance("x"),
        h=dbsp.corr("x", "f"), i=dbsp.covar_pop("x", "f"), j=dbsp.covar_samp("x", "f"), l=dbsp.regr_avgx("x", "f"), m=dbsp.regr_avgy("x", "f"),
        n=dbsp.regr_count("x", "f"), o=dbsp.regr_intercept("x", "f"), p=dbsp.regr_r2("x", "f"), q=dbsp.regr_slope("x", "f")),
    "extremes": t.group_by("k").aggregate(
        least=dbsp.min("x"), most=dbsp.max("f"), when=dbsp.arg_min("at", "x"), then=dbsp.arg_max("at", "x"),
        first=dbsp.first("x", order_by="at"), last=dbsp.last("x", order_by=dbsp.desc("at", nulls_first=True))),
    "min_alone": t.group_by("k").aggregate(least=dbsp.min("at")),
    "max_and_sum": t.group_by("c").aggregate(most=dbsp.max("x"), total=dbsp.sum("x")),
    "append_only_max": o.group_by("k").aggregate(most=dbsp.max("x"), n=dbsp.count()),
    "quantiles": t.group_by("k").aggregate(
        a=dbsp.median("x"), b=dbsp.quantile_cont("f", 0.25), c=dbsp.quantile_disc("x", 0.9), d=dbsp.mode("x")),
    "lists": t.group_by("k").aggregate(
        a=dbsp.array_agg("x", order_by="at"), b=dbsp.string_agg("s", order_by="x"), c=dbsp.array_agg("x", distinct=True, order_by="x")),
    "user": t.group_by("k").aggregate(
        a=dbsp.linear_aggregate("x", map=lambda rows: [rows["x"].to_numpy() * rows["x"].to_numpy()], finish=lambda sums: sums[:, 0], type=dbsp.INT64),
        b=dbsp.fold_aggregate("at", "x", function=lambda rows: len(rows), type=dbsp.INT64, order_by="at")),
    "everything": t.aggregate(n=dbsp.count(), total=dbsp.sum("x")),
    "rollup": t.rollup("k", "c").aggregate(n=dbsp.count()),
    "cube": t.cube("k", "c").aggregate(n=dbsp.count()),
    "sets": t.grouping_sets([["k"], ["c"], []], grouping="g").aggregate(n=dbsp.count()),
    "pivot": t.group_by("k").pivot("c", [0, 1, 2], total=dbsp.sum("x")),
    "top_k": t.top_k(3, by=[dbsp.desc("x"), "s"], partition_by="k", rank="place"),
    "top_all": t.top_k(3, by="x", offset=1),
    "append_only_top": o.top_k(2, by=dbsp.desc("x"), partition_by="k"),
    "limit": t.limit(3, by="at", offset=2, partition_by="k"),
    "row_number": t.with_row_number("place", order_by="at", partition_by="k"),
    "ranks": left.window("k", "at").with_columns(
        a=dbsp.row_number(), b=dbsp.rank(), c=dbsp.dense_rank(), d=dbsp.percent_rank(), e=dbsp.cume_dist(), f=dbsp.ntile(4)),
    "neighbours": left.window("k", "at").with_columns(
        a=dbsp.lag("x"), b=dbsp.lead("x", 2, 0), c=dbsp.first_value("x"), d=dbsp.last_value("x"), e=dbsp.nth_value("x", 2),
        g=dbsp.lag("x", ignore_nulls=True)),
    "rolling": t.select("k", "at", "x", "f").window("k", "at").with_columns(
        a=dbsp.rolling(dbsp.sum("x"), rows=2), b=dbsp.rolling(dbsp.max("x"), range=dbsp.seconds(60)), c=dbsp.rolling(dbsp.median("x"), rows=3),
        d=dbsp.rolling(dbsp.corr("x", "f"), rows=3)),
    "running": t.select("k", "at", "x", "f").window("k", "at").with_columns(
        a=dbsp.rolling(dbsp.sum("x"), rows=(None, 0)), b=dbsp.rolling(dbsp.max("x"), rows=(None, 0)), c=dbsp.rolling(dbsp.sum("f"), rows=(None, 0)),
        d=dbsp.rolling(dbsp.count(), range=(None, dbsp.seconds(0)))),
    "whole": left.window("k", "at").with_columns(a=dbsp.rolling(dbsp.sum("x"), rows=(None, None)), b=dbsp.rolling(dbsp.count_distinct("x"), rows=(None, 0))),
    "tumble": t.tumble("at", dbsp.seconds(20)).group_by("window_end").aggregate(n=dbsp.count(), m=dbsp.max("x")),
    "hop": t.hop("at", dbsp.seconds(20), dbsp.seconds(10)).group_by("window_end").aggregate(n=dbsp.count()),
    "session": left.session("at", dbsp.seconds(60), partition_by="k"),
    "session_count": left.session("at", dbsp.seconds(60), partition_by="k").group_by("k", "window_start", "window_end").aggregate(n=dbsp.count()),
    "late_final": w.tumble("at", dbsp.seconds(20)).group_by("window_end").aggregate(n=dbsp.count(), m=dbsp.max("x")).final(),
    "late_distinct": w.select("k", "at").distinct(),
    "late_session": w.select("k", "at").session("at", dbsp.seconds(60), "k"),
    "late_lag": w.window("k", "at").with_columns(v=dbsp.lag("x")),
    "late_join": w.interval_join(w.select("k", "at", y="x"), on="at", by="k", within=dbsp.seconds(30)),
    "derived_late": t.with_watermark("at", dbsp.seconds(50)).tumble("at", dbsp.seconds(20)).group_by("window_end").aggregate(n=dbsp.count()),
    "recent": t.filter(col("at") > dbsp.now() - dbsp.days(36500)),
    "delay": dbsp.core.delay(t.select("k")),
    "differentiate": dbsp.core.differentiate(t.select("k")),
    "integrate": dbsp.core.integrate(t.select("k")),
    "lifted_distinct": dbsp.core.lifted_distinct(t.select("k")),
    "lifted_join": dbsp.core.lifted_join(left, right, on="k"),
    "constants": dbsp.sql("select * from (values (1, 'a'), (2, null)) as v(i, s)"),
}  # fmt: skip

after = e.rename({"a": "b", "b": "c"})
views["paths"] = dbsp.recursive(e, lambda found: found.join(after, on="b").select("a", b="c"))
both = e.union(e.select(a="b", b="a"))
nodes = both.select("a").distinct()
blocked = b.select(a="k")


def least_of(least):
    told = least.join(both, on="a").select(a="b", least="least")
    return nodes.select("a", least="a").union(told).group_by("a").aggregate(least=dbsp.min("least"))


def spread(seen):
    step = seen.join(e, on="a").select(a="b").filter(col("a") < 1000)
    return step.join(blocked, on="a", how="anti").difference(blocked).distinct()


views["components"] = dbsp.recursive({"least": {"a": dbsp.INT64, "least": dbsp.INT64}}, least_of)["least"]
views["spread"] = dbsp.recursive(e.select("a"), spread)
pipeline = dbsp.circuit("every_kind", views)

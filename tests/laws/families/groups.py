"""Groups and their aggregates. What is no multiple of a small power of two is cut to one, so that sums of it are exact."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

import dbsp
from tests.laws.relation import Relation

SMALL = "a between -100 and 100"


def small() -> dbsp.Expr:
    return dbsp.col("a").between(-100, 100)


def grouped(r: Relation) -> Relation:
    stream = r.stream.group_by("b").aggregate(n=dbsp.count(), s=dbsp.sum("a"), m=dbsp.avg("f"))
    return Relation(
        stream.select("b", a=dbsp.col("n") + dbsp.coalesce(dbsp.col("s"), dbsp.lit(0)), f="m"),
        f"select b, (count(*) + coalesce(sum(a), 0))::bigint as a, avg(f) as f from ({r.sql}) group by b",
        (*r.operators, "group"),
    )


def extremes(r: Relation) -> Relation:
    stream = r.stream.group_by("b").aggregate(lo=dbsp.min("a"), hi=dbsp.max("f"), d=dbsp.count_distinct("f"))
    return Relation(
        stream.select("b", a=dbsp.col("d") + dbsp.coalesce(dbsp.col("lo"), dbsp.lit(7)), f="hi"),
        f"select b, (count(distinct f) + coalesce(min(a), 7))::bigint as a, max(f) as f from ({r.sql}) group by b",
        (*r.operators, "extremes"),
    )


def whole(r: Relation) -> Relation:
    """Without keys: one row, whatever there is."""
    stream = r.stream.aggregate(
        b=dbsp.max("b"), n=dbsp.count(), d=dbsp.count_distinct("a"), f=dbsp.quantile_disc("f", 0.5)
    )
    return Relation(
        stream.select("b", a=dbsp.col("n") + dbsp.col("d"), f="f"),
        f"select max(b) as b, count(*) + count(distinct a) as a, quantile_disc(f, 0.5) as f from ({r.sql})",
        (*r.operators, "global"),
    )


def varied(r: Relation, of: str, less: str) -> Relation:
    """A variance of integers or of floats; the numbers are small, so that DuckDB's integers give it rounded once too."""
    function = dbsp.var_pop if less == "n" else dbsp.var_samp
    argument = dbsp.col("a").cast(dbsp.FLOAT64) if of == "floats" else dbsp.col("a")
    stream = r.stream.group_by("b").aggregate(v=function(argument).where(small()), n=dbsp.count("a").where(small()))
    sums = "select b, count(x) as n, sum(x) as s, sum(x * x) as q"
    sums += f" from (select b, case when {SMALL} then a end as x from ({r.sql})) group by b"
    exact = f"(n * q - s * s)::double / (n * {less})::double"
    return Relation(
        stream.select("b", a="n", f=(dbsp.col("v") * 64).floor() / 64),
        f"select b, n as a, floor(case when {less} > 0 then {exact} end * 64) / 64 as f from ({sums})",
        (*r.operators, f"variance of {of}"),
    )


PAIRS = {
    "covar_pop": "xy / (n * n)",
    "covar_samp": "case when n > 1 then xy / (n * (n - 1)) end",
    "corr": "case when xx > 0 and yy > 0 then xy / sqrt(xx * yy) end",
    "regr_slope": "case when xx > 0 then xy / xx end",
    "regr_intercept": "case when xx > 0 then (sy * qx - sx * p) / xx end",
    "regr_r2": "case when xx > 0 then case when yy > 0 then xy * xy / (xx * yy) else 1.0 end end",
}
"""What SQL says of the sums of small pairs, which are exact there too."""


def paired(r: Relation, function: str) -> Relation:
    """A function of pairs, rounded once by both sides."""
    some = (dbsp.col("a").between(-100, 100)) & (dbsp.col("f").between(-100.0, 100.0))
    made = getattr(dbsp, function)("f", "a").where(some)
    stream = r.stream.group_by("b").aggregate(
        v=made, n=dbsp.regr_count("f", "a").where(some), s=dbsp.regr_avgx("f", "a").where(some)
    )
    number = dbsp.col("n") + (dbsp.coalesce(dbsp.col("s"), dbsp.lit(0.0)) * 8).floor().cast(dbsp.INT64)
    sums = "select b, count(x)::double as n, sum(x) as sx, sum(y) as sy, sum(x * x) as qx, sum(y * y) as qy, sum(x * y) as p"
    few = f"{SMALL} and f between -100 and 100"
    pairs = f"select b, case when {few} then a::double end as x, case when {few} then f end as y from ({r.sql})"
    sums += f" from ({pairs}) group by b"
    moments = f"select *, n * p - sx * sy as xy, n * qx - sx * sx as xx, n * qy - sy * sy as yy from ({sums})"
    return Relation(
        stream.select("b", a=number, f=(dbsp.col("v") * 64).floor() / 64),
        "select b, (n + floor(coalesce(sx / nullif(n, 0), 0) * 8))::bigint as a,"
        f" floor(case when n > 0 then {PAIRS[function]} end * 64) / 64 as f from ({moments})",
        (*r.operators, function),
    )


def logical(r: Relation) -> Relation:
    stream = r.stream.group_by("b").aggregate(
        every=dbsp.bool_and(dbsp.col("a") > 0), some=dbsp.bool_or(dbsp.col("f") > 0), f=dbsp.min("f")
    )
    flag = dbsp.when(dbsp.col("every"), 2).otherwise(0) + dbsp.when(dbsp.col("some"), 1).otherwise(0)
    return Relation(
        stream.select("b", a=flag.cast(dbsp.INT64), f="f"),
        "select b, (case when bool_and(a > 0) then 2 else 0 end + case when bool_or(f > 0) then 1 else 0 end)::bigint as a,"
        f" min(f) as f from ({r.sql}) group by b",
        (*r.operators, "bool"),
    )


def bitwise(r: Relation, function: str) -> Relation:
    stream = r.stream.group_by("b").aggregate(a=getattr(dbsp, f"bit_{function}")("a"), f=dbsp.max("f"))
    return Relation(
        stream.select("b", "a", "f"),
        f"select b, bit_{function}(a) as a, max(f) as f from ({r.sql}) group by b",
        (*r.operators, f"bit_{function}"),
    )


def ends(r: Relation) -> Relation:
    """The least and the greatest of one column, twice."""
    stream = r.stream.group_by("b").aggregate(lo=dbsp.min("a"), hi=dbsp.max("a"), least=dbsp.min("f"), f=dbsp.max("f"))
    span = dbsp.coalesce(dbsp.col("hi") - dbsp.col("lo"), dbsp.lit(7))
    low = dbsp.when(dbsp.col("least") < 0, dbsp.lit(1)).otherwise(dbsp.lit(0))
    return Relation(
        stream.select("b", "f", a=span + low).select("b", "a", "f"),
        "select b, (coalesce(max(a) - min(a), 7) + case when min(f) < 0 then 1 else 0 end)::bigint as a, max(f) as f"
        f" from ({r.sql}) group by b",
        (*r.operators, "ends"),
    )


def arg_extremes(r: Relation) -> Relation:
    stream = r.stream.group_by("b").aggregate(a=dbsp.arg_min("a", "f"), f=dbsp.arg_max("f", "a"))
    both = "filter (where a is not null and f is not null)"
    return Relation(
        stream.select("b", "a", "f"),
        f"select b, first(a order by f, a) {both} as a, first(f order by a desc, f) {both} as f from ({r.sql}) group by b",
        (*r.operators, "arg_min"),
    )


def first_last(r: Relation) -> Relation:
    stream = r.stream.group_by("b").aggregate(
        a=dbsp.first("a", order_by=dbsp.desc("f")).where(dbsp.col("a") != 1),
        f=dbsp.last("f", order_by=["a", dbsp.desc("f", nulls_first=True)]),
        g=dbsp.last("f", order_by="a", ignore_nulls=True),
    )
    return Relation(
        stream.select("b", "a", f=dbsp.coalesce(dbsp.col("f"), dbsp.col("g"))),
        "select b, first(a order by f desc nulls last, a nulls last) filter (where a <> 1) as a,"
        " coalesce(last(f order by a nulls last, f desc nulls first),"
        f" last(f order by a nulls last, f) filter (where f is not null)) as f from ({r.sql}) group by b",
        (*r.operators, "first"),
    )


def quantiles(r: Relation, fraction: float) -> Relation:
    stream = r.stream.group_by("b").aggregate(
        a=dbsp.quantile_disc("a", fraction), f=dbsp.quantile_cont("a", fraction).where(dbsp.col("f").is_not_null())
    )
    return Relation(
        stream.select("b", "a", "f"),
        f"select b, quantile_disc(a, {fraction}) as a,"
        f" quantile_cont(a, {fraction}) filter (where f is not null) as f from ({r.sql}) group by b",
        (*r.operators, "quantile"),
    )


def middles(r: Relation) -> Relation:
    """Quantiles of texts and floats, by another key."""
    stream = r.stream.group_by("a").aggregate(b=dbsp.quantile_disc("b", 0.75), f=dbsp.quantile_disc("f", 0.25))
    return Relation(
        stream.select("b", "a", "f"),
        f"select quantile_disc(b, 0.75) as b, a, quantile_disc(f, 0.25) as f from ({r.sql}) group by a",
        (*r.operators, "quantile_disc"),
    )


def modes(r: Relation) -> Relation:
    """Of texts and of floats, by another key."""
    some = dbsp.col("b").is_not_null() & (dbsp.col("b") != "y")
    stream = r.stream.group_by("a").aggregate(b=dbsp.mode("b"), f=dbsp.mode("f").where(some))
    texts = f"select a, b from ({r.sql}) where b is not null group by a, b qualify {_best('count(*)', 'b')}"
    floats = (
        f"select a, f from ({r.sql}) where f is not null and b <> 'y' group by a, f qualify {_best('count(*)', 'f')}"
    )
    return Relation(
        stream.select("b", "a", "f"),
        f"select x.b, k.a, y.f from (select distinct a from ({r.sql})) as k"
        f" left join ({texts}) as x on k.a is not distinct from x.a"
        f" left join ({floats}) as y on k.a is not distinct from y.a",
        (*r.operators, "mode"),
    )


def _best(count: str, value: str) -> str:
    return f"row_number() over (partition by a order by {count} desc, {value}) = 1"


def joined_texts(r: Relation) -> Relation:
    stream = r.stream.group_by("a").aggregate(
        b=dbsp.string_agg("b", "+", order_by=dbsp.desc("f")), f=dbsp.array_agg("f", order_by="b")
    )
    return Relation(
        stream.select("b", "a", f=dbsp.col("f").element(1)),
        "select string_agg(b, '+' order by f desc nulls last, b) as b, a,"
        f" array_agg(f order by b nulls last, f nulls last)[1] as f from ({r.sql}) group by a",
        (*r.operators, "string_agg"),
    )


def different_texts(r: Relation) -> Relation:
    stream = r.stream.group_by("a").aggregate(
        b=dbsp.string_agg("b", "+", order_by=dbsp.desc("b"), distinct=True), f=dbsp.array_agg("f", distinct=True)
    )
    return Relation(
        stream.select("b", "a", f=dbsp.col("f").element(2)),
        "select string_agg(distinct b, '+' order by b desc) as b, a,"
        f" list_sort(array_agg(distinct f), 'asc', 'nulls last')[2] as f from ({r.sql}) group by a",
        (*r.operators, "string_agg"),
    )


def shapes(r: Relation) -> Relation:
    """Skewness, kurtosis and histogram; both sides round floats at other places, so the comparison rounds coarsely."""
    some = dbsp.col("a").between(-100, 100)
    stream = r.stream.group_by("b").aggregate(
        lean=dbsp.skewness("a").where(some), tails=dbsp.kurtosis(dbsp.col("a").cast(dbsp.FLOAT64)).where(some),
        found=dbsp.histogram("a").where(some), kinds=dbsp.approx_count_distinct("f"),
    )  # fmt: skip
    last = dbsp.col("found").element(-1)
    number = dbsp.coalesce(last.field("key") * 1000 + last.field("value"), dbsp.lit(7)) + dbsp.col("kinds") * 1_000_000
    few = f"case when {SMALL} then a end"
    deviations = f"select b, f, x, x - avg(x) over (partition by b) as d from (select b, f, {few} as x from ({r.sql}))"
    sums = (
        "select b, count(x)::double as n, sum(d ** 2) as two, sum(d ** 3) as three, sum(d ** 4) as four, max(x) as top,"
    )
    sums += f" list(x) as held, count(distinct f) as kinds from ({deviations}) group by b"
    lean = "case when n > 2 and two > 1e-9 then sqrt(n * (n - 1)) / (n - 2) * (three / n) / (two / n) ** 1.5 end"
    tails = "case when n > 3 and two > 1e-9 then (n - 1) / ((n - 2) * (n - 3))"
    tails += " * ((n + 1) * n * four / two ** 2 - 3 * (n - 1)) end"
    often = "coalesce(top * 1000 + len(list_filter(held, lambda x: x = top)), 7)"
    return Relation(
        stream.select(
            "b", a=number, f=_coarse(dbsp.col("lean")) + dbsp.coalesce(_coarse(dbsp.col("tails")), dbsp.lit(0.0))
        ),
        f"select b, ({often} + kinds * 1000000)::bigint as a, round(({lean}) * 61.3) / 64"
        f" + coalesce(round(({tails}) * 61.3) / 64, 0) as f from ({sums})",
        (*r.operators, "shapes"),
    )


def _coarse(value: dbsp.Expr) -> dbsp.Expr:
    return (value * 61.3).round() / 64


def having(r: Relation, limit: int) -> Relation:
    stream = r.stream.group_by("b").aggregate(a=dbsp.count("f"), f=dbsp.max("f")).filter(dbsp.col("a") > limit)
    return Relation(
        stream,
        f"select b, count(f) as a, max(f) as f from ({r.sql}) group by b having count(f) > {limit}",
        (*r.operators, "having"),
    )


def grouping_sets(r: Relation, kind: str) -> Relation:
    sets: dict[str, tuple[Callable[[Any], Any], str]] = {
        "rollup": (lambda s: s.rollup("b", "a", grouping="g"), "rollup (b, a)"),
        "cube": (lambda s: s.cube("b", "a", grouping="g"), "cube (b, a)"),
        "sets": (lambda s: s.grouping_sets([["b"], ["a"], []], grouping="g"), "grouping sets ((b), (a), ())"),
    }
    make, sql = sets[kind]
    stream = make(r.stream).aggregate(n=dbsp.count(), f=dbsp.max("f"))
    number = dbsp.col("n") * 4 + dbsp.col("g") + dbsp.coalesce(dbsp.col("a"), dbsp.lit(-1))
    return Relation(
        stream.select("b", a=number, f="f"),
        f"select b, count(*) * 4 + grouping(b, a) + coalesce(a, -1) as a, max(f) as f from ({r.sql}) group by {sql}",
        (*r.operators, kind),
    )


def pivoted(r: Relation) -> Relation:
    stream = r.stream.group_by("b").pivot("a", [0, 5, None], n=dbsp.count(), f=dbsp.max("f"))
    number = dbsp.col("0_n") * 100 + dbsp.col("5_n") * 10 + dbsp.col("None_n")
    return Relation(
        stream.select("b", a=number, f=dbsp.coalesce(dbsp.col("5_f"), dbsp.col("None_f"))),
        "select b, count(*) filter (where a = 0) * 100 + count(*) filter (where a = 5) * 10"
        " + count(*) filter (where a is null) as a, coalesce(max(f) filter (where a = 5), max(f) filter (where a is null)) as f"
        f" from ({r.sql}) group by b",
        (*r.operators, "pivot"),
    )


def distinct_filtered(r: Relation) -> Relation:
    """Distinct counts of one column under filters, which are kept together; an argument that nothing shares stays apart."""
    a, f = dbsp.col("a"), dbsp.col("f")
    stream = r.stream.group_by("b").aggregate(
        n=dbsp.count_distinct("a"),
        low=dbsp.count_distinct("a").where(f < 1),
        some=dbsp.count_distinct(dbsp.when(f.is_not_null(), a).otherwise(None)),
        f=dbsp.max("f"),
    )
    number = dbsp.col("n") * 100 + dbsp.col("low") * 10 + dbsp.col("some")
    return Relation(
        stream.select("b", a=number, f="f"),
        "select b, count(distinct a) * 100 + count(distinct a) filter (where f < 1) * 10"
        f" + count(distinct a) filter (where f is not null) as a, max(f) as f from ({r.sql}) group by b",
        (*r.operators, "distinct filtered"),
    )


def sums_of_different(r: Relation) -> Relation:
    """Sums and means to which equal values are one, beside one to which they are not."""
    stream = r.stream.group_by("b").aggregate(
        s=dbsp.sum("a", distinct=True),
        low=dbsp.sum("a", distinct=True).where(dbsp.col("f") < 1),
        n=dbsp.count(),
        f=dbsp.avg("f", distinct=True),
        m=dbsp.sum("f", distinct=True),
    )
    number = dbsp.coalesce(dbsp.col("s"), dbsp.lit(7)) + dbsp.coalesce(dbsp.col("low"), dbsp.lit(9)) + dbsp.col("n")
    return Relation(
        stream.select("b", a=number, f=dbsp.col("f") + dbsp.col("m")),
        "select b, (coalesce(sum(distinct a), 7) + coalesce(sum(distinct a) filter (where f < 1), 9) + count(*))::bigint as a,"
        f" avg(distinct f) + sum(distinct f) as f from ({r.sql}) group by b",
        (*r.operators, "sum of different"),
    )


def squares(rows: pa.Table) -> list[Any]:
    values = rows["a"].fill_null(0).to_numpy() % 1000
    return [values * values, np.asarray(rows["a"].is_valid()).astype(np.int64)]


def remainder(sums: Any) -> Any:
    return sums[:, 0] * 10 + sums[:, 1]


def alternating(rows: list[dict[str, Any]]) -> int:
    return sum((-1) ** at * (row["a"] % 1000) for at, row in enumerate(rows) if row["a"] is not None)


def by_user(r: Relation, fold: bool) -> Relation:
    """A linear aggregate and a fold; DuckDB's `%` keeps the sign, Python's does not."""
    modulo = "((a % 1000 + 1000) % 1000)"
    if fold:
        made = dbsp.fold_aggregate("a", function=alternating, type=dbsp.INT64, order_by="a").where(dbsp.col("b") != "y")
        numbered = (
            f"select *, row_number() over (partition by f order by a nulls last) as place from ({r.sql}) where b <> 'y'"
        )
        sql = (
            f"select 'x' as b, sum(case when a is null then 0 when place % 2 = 1 then {modulo} else -{modulo} end)::bigint as a,"
            f" f from ({numbered}) group by f union all select 'x', null, f from ({r.sql}) group by f"
            " having count(*) filter (where b <> 'y') = 0"
        )
    else:
        made = dbsp.linear_aggregate("a", map=squares, finish=remainder, type=dbsp.INT64, width=2).where(
            dbsp.col("b") != "y"
        )
        each = f"case when a is null then 0 else {modulo} * {modulo} * 10 + 1 end"
        sql = f"select 'x' as b, coalesce(sum({each}) filter (where b <> 'y'), 0)::bigint as a, f from ({r.sql}) group by f"
    stream = r.stream.group_by("f").aggregate(a=made).select(b=dbsp.lit("x"), a="a", f="f")
    return Relation(stream, sql, (*r.operators, "fold" if fold else "linear"))


def extend(inner: st.SearchStrategy[Relation]) -> list[st.SearchStrategy[Relation]]:
    """Relations made of others."""
    many = [
        st.builds(varied, inner, st.sampled_from(["integers", "floats"]), st.sampled_from(["n", "(n - 1)"])),
        st.builds(paired, inner, st.sampled_from(sorted(PAIRS))),
        st.builds(logical, inner),
        st.builds(bitwise, inner, st.sampled_from(["and", "or", "xor"])),
        st.builds(arg_extremes, inner),
        st.builds(first_last, inner),
        st.builds(quantiles, inner, st.sampled_from([0, 0.25, 0.5, 0.75, 1])),
        st.builds(middles, inner),
        st.builds(modes, inner),
        st.builds(joined_texts, inner),
        st.builds(different_texts, inner),
        st.builds(shapes, inner),
        st.builds(having, inner, st.integers(0, 2)),
        st.builds(pivoted, inner),
        st.builds(distinct_filtered, inner),
        st.builds(sums_of_different, inner),
    ]
    return [
        st.builds(grouped, inner),
        st.builds(extremes, inner),
        st.builds(ends, inner),
        st.builds(whole, inner),
        st.builds(by_user, inner, st.booleans()),
        st.builds(grouping_sets, inner, st.sampled_from(["rollup", "cube", "sets"])),
        st.one_of(many),
    ]

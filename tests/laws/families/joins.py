"""Joins; the lookup join is no function of its tables and has tests of its own."""

from __future__ import annotations

from hypothesis import strategies as st

import dbsp
from tests.laws.relation import Relation

OUTER = ("left", "right", "full")
SMALL = dbsp.col("a").between(-100, 100)
TIES = "y.a desc, y.b nulls last, y.f nulls last"


def joined(r: Relation, s: Relation) -> Relation:
    stream = r.stream.join(s.stream, on="b", suffix="_s").select(
        "b", a=dbsp.col("a") + dbsp.col("a_s"), f=dbsp.col("f_s")
    )
    return Relation(
        stream, f"select x.b, x.a + y.a as a, y.f from ({r.sql}) x join ({s.sql}) y on x.b = y.b",
        (*r.operators, *s.operators, "join"),
    )  # fmt: skip


def summed(r: Relation, s: Relation, stream: object, sql: str, name: str) -> Relation:
    """Both sides' `a` in one column, whichever is there."""
    a = dbsp.coalesce(dbsp.col("a"), dbsp.lit(100)) * 3 + dbsp.coalesce(dbsp.col("a_right"), dbsp.lit(50))
    return Relation(
        stream.select("b", a=a, f="f_right"),  # type: ignore[attr-defined]
        f"select coalesce(x.b, y.b) as b, coalesce(x.a, 100) * 3 + coalesce(y.a, 50) as a, y.f from ({r.sql}) x {sql}",
        (*r.operators, *s.operators, name),
    )


def outer(r: Relation, s: Relation, how: str, null_safe: bool) -> Relation:
    equal = "x.b is not distinct from y.b" if null_safe else "x.b = y.b"
    name = f"{how} join" + (" null-safe" if null_safe else "")
    stream = r.stream.join(s.stream, on="b", how=how, null_safe=null_safe)
    return summed(r, s, stream, f"{how} join ({s.sql}) y on {equal}", name)


def conditional(r: Relation, s: Relation, how: str) -> Relation:
    where = dbsp.col("a") < dbsp.col("a_right")
    stream = r.stream.join(s.stream, on="b", how=how, where=where)
    return summed(r, s, stream, f"{how} join ({s.sql}) y on x.b = y.b and x.a < y.a", f"{how} join where")


def one_sided(r: Relation, s: Relation, how: str, limit: int) -> Relation:
    stream = r.stream.join(s.stream, on="b", how=how, where=(dbsp.col("a_right") > limit) & (dbsp.col("a") > limit))
    sql = f"{how} join ({s.sql}) y on x.b = y.b and y.a > {limit} and x.a > {limit}"
    return summed(r, s, stream, sql, f"{how} join where one side")


def filtered_above(r: Relation, s: Relation, how: str, limit: int) -> Relation:
    """A filter over an outer join, which may go below it on some sides."""
    stream = r.stream.join(s.stream, on="b", how=how).filter(
        (dbsp.col("a") > limit) & (dbsp.col("b") != "x") & dbsp.col("a_right").is_null()
    )
    made = summed(r, s, stream, f"{how} join ({s.sql}) y on x.b = y.b", f"filter {how} join")
    where = f" where x.a > {limit} and coalesce(x.b, y.b) <> 'x' and y.a is null"
    return Relation(made.stream, made.sql + where, made.operators)


def semi(r: Relation, s: Relation, anti: bool, where: bool, null_safe: bool) -> Relation:
    condition = dbsp.col("a") <= dbsp.col("a_right") if where else None
    how = "anti" if anti else "semi"
    stream = r.stream.join(s.stream, on="b", how=how, where=condition, null_safe=null_safe)
    equal = "x.b is not distinct from y.b" if null_safe else "x.b = y.b"
    also = " and x.a <= y.a" if where else ""
    sql = f"select b, a, f from ({r.sql}) x where {'not' if anti else ''} exists (select 1 from ({s.sql}) y where {equal}{also})"
    return Relation(stream, sql, (*r.operators, *s.operators, f"{how} join {where} {null_safe}"))


def crossed(r: Relation, s: Relation) -> Relation:
    stream = r.stream.cross_join(s.stream, where=dbsp.col("f") < dbsp.col("f_right")).select(
        "b", a=dbsp.col("a") - dbsp.col("a_right"), f="f_right"
    )
    sql = f"select x.b, x.a - y.a as a, y.f from ({r.sql}) x, ({s.sql}) y where x.f < y.f"
    return Relation(stream, sql, (*r.operators, *s.operators, "cross join"))


def near(r: Relation, s: Relation, how: str, lower: int, width: int, keyed: bool) -> Relation:
    """Within a span, of the same key or of any."""
    by = "b" if keyed else None
    stream = r.stream.interval_join(s.stream, on="a", by=by, lower=lower, upper=lower + width, how=how)
    on = f"{'x.b = y.b and' if keyed else ''} y.a - x.a between {lower} and {lower + width}"
    if how in ("semi", "anti"):
        there = f"{'not' if how == 'anti' else ''} exists (select 1 from ({s.sql}) y where {on})"
        sql = f"select b, a, f from ({r.sql}) x where {there}"
        return Relation(stream, sql, (*r.operators, *s.operators, f"interval {how}"))
    other = (
        s.sql if keyed else f"select cast(null as varchar) as b, a, f from ({s.sql})"
    )  # what is no key stays each side's own
    return summed(r, s, stream, f"{how} join ({other}) y on {on}", f"interval {how}")


def near_where(r: Relation, s: Relation, how: str, lower: int) -> Relation:
    """Bounded on one side, and a condition."""
    where = dbsp.col("f") <= dbsp.col("f_right")
    stream = r.stream.interval_join(s.stream, on="a", by="b", lower=lower, how=how, where=where)
    on = f"x.b = y.b and y.a - x.a >= {lower} and x.f <= y.f"
    return summed(r, s, stream, f"{how} join ({s.sql}) y on {on}", f"interval {how} where")


def as_of(r: Relation, s: Relation, forward: bool, exact: bool, tolerance: int | None, how: str) -> Relation:
    stream = r.stream.asof_join(
        s.stream, on="a", by="b", direction="forward" if forward else "backward", allow_exact_matches=exact,
        tolerance=tolerance, how=how,
    )  # fmt: skip
    earlier, later = ("x.a", "y.a") if forward else ("y.a", "x.a")
    within = "" if tolerance is None else f" and {later} - {earlier} <= {tolerance}"
    on = f"x.b = y.b and {earlier} <{'=' if exact else ''} {later}{within}"
    order = TIES.replace(" desc", "") if forward else TIES
    best = f"qualify row_number() over (partition by x.i order by {order}) = 1"
    sql = f"""
        select b, coalesce(a, 100) * 3 + coalesce(c, 50) as a, f from (
            select x.b, x.a, y.a as c, y.f
            from (select *, row_number() over () as i from ({r.sql})) x {how} join ({s.sql}) y on {on} {best}
        )
    """
    a = dbsp.coalesce(dbsp.col("a"), dbsp.lit(100)) * 3 + dbsp.coalesce(dbsp.col("a_right"), dbsp.lit(50))
    return Relation(stream.select("b", a=a, f="f_right"), sql, (*r.operators, *s.operators, "as-of"))


def nearest(r: Relation, s: Relation, exact: bool, tolerance: int | None, how: str) -> Relation:
    """The nearer one of before and behind; the one before if both are as near."""
    stream = r.stream.filter(SMALL).asof_join(
        s.stream.filter(SMALL),
        on="a",
        by="b",
        direction="nearest",
        allow_exact_matches=exact,
        tolerance=tolerance,
        how=how,
    )
    on = "x.b = y.b" + ("" if exact else " and x.a <> y.a")
    on += "" if tolerance is None else f" and abs(x.a - y.a) <= {tolerance}"
    order = "abs(x.a - y.a) nulls last, y.a nulls last, y.f nulls last"
    sql = f"""
        select b, a * 3 + coalesce(c, 500) as a, f from (
            select x.b, x.a, y.a as c, y.f
            from (select *, row_number() over () as i from ({r.sql}) where a between -100 and 100) x
            {how} join (select * from ({s.sql}) where a between -100 and 100) y on {on}
            qualify row_number() over (partition by x.i order by {order}) = 1
        )
    """
    a = dbsp.col("a") * 3 + dbsp.coalesce(dbsp.col("a_right"), dbsp.lit(500))
    return Relation(stream.select("b", a=a, f="f_right"), sql, (*r.operators, *s.operators, "nearest"))


def three(r: Relation, s: Relation) -> Relation:
    """Several in one call, the first with itself."""
    stream = dbsp.join_all([r.stream, s.stream.distinct(), r.stream.distinct()], on=["b", "a"], how="left")
    sql = f"""
        select x.b, x.a, coalesce(y.f, z.f) as f from ({r.sql}) x
        left join (select distinct b, a, f from ({s.sql})) y on x.b = y.b and x.a = y.a
        left join (select distinct b, a, f from ({r.sql})) z on x.b = z.b and x.a = z.a
    """
    made = stream.select("b", "a", f=dbsp.coalesce(dbsp.col("f_2"), dbsp.col("f_3")))
    return Relation(made, sql, (*r.operators, *s.operators, "join_all"))


def extend(inner: st.SearchStrategy[Relation]) -> list[st.SearchStrategy[Relation]]:
    """Relations made of others."""
    outers, anyway = st.sampled_from(OUTER), st.booleans()
    shift, tolerance = st.integers(-3, 3), st.one_of(st.none(), st.integers(0, 4))
    every = st.sampled_from(("inner", *OUTER, "semi", "anti"))
    return [
        st.builds(joined, inner, inner),
        st.builds(outer, inner, inner, st.sampled_from(("inner", *OUTER)), anyway),
        st.builds(conditional, inner, inner, st.sampled_from(("inner", *OUTER))),
        st.builds(one_sided, inner, inner, outers, shift),
        st.builds(filtered_above, inner, inner, outers, shift),
        st.builds(semi, inner, inner, anyway, anyway, anyway),
        st.builds(crossed, inner, inner),
        st.builds(near, inner, inner, every, shift, st.integers(0, 4), anyway),
        st.builds(near_where, inner, inner, outers, shift),
        st.builds(as_of, inner, inner, anyway, anyway, tolerance, st.sampled_from(("left", "inner"))),
        st.builds(nearest, inner, inner, anyway, tolerance, st.sampled_from(("left", "inner"))),
        st.builds(three, inner, inner),
    ]

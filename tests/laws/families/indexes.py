"""The same rows by the same key for several operators: plans that keep them once."""

from __future__ import annotations

from hypothesis import strategies as st

import dbsp
from tests.laws.relation import Relation, u

MARK = dbsp.lit(0.5, dbsp.FLOAT64)


def itself(r: Relation, where: bool) -> Relation:
    """Joined with itself by the same key: both sides are one trace."""
    condition = dbsp.col("a") <= dbsp.col("a_s") if where else None
    stream = r.stream.join(r.stream, on="b", suffix="_s", where=condition)
    also = " and x.a <= y.a" if where else ""
    return Relation(
        stream.select("b", a=dbsp.col("a") - dbsp.col("a_s"), f="f_s"),
        f"select x.b, x.a - y.a as a, y.f from ({r.sql}) x join ({r.sql}) y on x.b = y.b{also}",
        (*r.operators, "self join"),
    )


def star(r: Relation, s: Relation, how: str) -> Relation:
    """Three joins with one stream by one key that need different columns of it."""
    one = r.stream.join(s.stream, on="b", suffix="_s").select("b", "a", f=MARK)
    two = r.stream.join(s.stream.select("b", c="f"), on="b", how=how).select("b", a=dbsp.lit(7, dbsp.INT64), f="f")
    three = s.stream.join(r.stream, on="b", how="semi")
    return Relation(
        one.union(two).union(three),
        f"""
        select x.b, x.a, 0.5 as f from ({r.sql}) x join ({s.sql}) y on x.b = y.b
        union all
        select coalesce(x.b, y.b), 7, x.f from ({r.sql}) x {how} join ({s.sql}) y on x.b = y.b
        union all
        select b, a, f from ({s.sql}) x where exists (select 1 from ({r.sql}) y where x.b = y.b)
        """,
        (*r.operators, *s.operators, f"star {how}"),
    )


def keyed(r: Relation, how: str) -> Relation:
    """A table's rows are kept by its primary key in any case."""
    stream = r.stream.join(u, on={"a": "id"}, how=how, suffix="_u").select("b", a="a_u", f="f")
    sql = f"select x.b, y.a, x.f from ({r.sql}) x {how} join u y on x.a = y.id"
    return Relation(stream, sql, (*r.operators, f"keyed {how}"))


def ranked(r: Relation) -> Relation:
    """Two fronts and a place of the same partitions in the same order."""
    by = dbsp.OrderBy("a")
    one = r.stream.top_k(1, by=by, partition_by="b")
    two = r.stream.top_k(2, by=by, partition_by="b")
    order = "partition by b order by a nulls last, b nulls last, f nulls last"
    place = f"select *, row_number() over ({order}) as place from ({r.sql})"
    return Relation(
        one.union(two),
        f"select b, a, f from ({place}) where place <= 1 union all select b, a, f from ({place}) where place <= 2",
        (*r.operators, "two fronts"),
    )


def extend(inner: st.SearchStrategy[Relation]) -> list[st.SearchStrategy[Relation]]:
    """Relations made of others."""
    return [
        st.builds(itself, inner, st.booleans()),
        st.builds(star, inner, inner, st.sampled_from(("inner", "left", "right", "full"))),
        st.builds(keyed, inner, st.sampled_from(("inner", "left"))),
        st.builds(ranked, inner),
    ]

"""Groups and their aggregates."""

from __future__ import annotations

from hypothesis import strategies as st

import dbsp
from tests.laws.relation import Relation


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


def extend(inner: st.SearchStrategy[Relation]) -> list[st.SearchStrategy[Relation]]:
    """Relations made of others."""
    return [
        st.builds(grouped, inner),
        st.builds(extremes, inner),
    ]

"""Operators on sets and bags."""

from __future__ import annotations

from hypothesis import strategies as st

import dbsp
from tests.laws.relation import Relation


def distinct(r: Relation) -> Relation:
    return Relation(r.stream.distinct(), f"select distinct b, a, f from ({r.sql})", (*r.operators, "distinct"))


def union(r: Relation, s: Relation) -> Relation:
    sql = f"select * from ({r.sql}) union all select * from ({s.sql})"
    return Relation(r.stream.union(s.stream), sql, (*r.operators, *s.operators, "union"))


def union_distinct(r: Relation, s: Relation) -> Relation:
    sql = f"select * from ({r.sql}) union select * from ({s.sql})"
    return Relation(r.stream.union(s.stream, distinct=True), sql, (*r.operators, *s.operators, "union distinct"))


def difference(r: Relation, s: Relation, all_: bool) -> Relation:
    sql = f"select * from ({r.sql}) except {'all' if all_ else ''} select * from ({s.sql})"
    return Relation(r.stream.except_(s.stream, all=all_), sql, (*r.operators, *s.operators, f"difference {all_}"))


def intersect(r: Relation, s: Relation, all_: bool) -> Relation:
    sql = f"select * from ({r.sql}) intersect {'all' if all_ else ''} select * from ({s.sql})"
    return Relation(r.stream.intersect(s.stream, all=all_), sql, (*r.operators, *s.operators, f"intersect {all_}"))


def weighted(r: Relation) -> Relation:
    stream = r.stream.with_weight("w").select("b", a=dbsp.coalesce(dbsp.col("a"), dbsp.lit(0)) + dbsp.col("w"), f="f")
    sql = f"select b, coalesce(a, 0) + count(*)::bigint as a, f from ({r.sql}) group by b, q.a, f"
    return Relation(stream, sql.replace(f"({r.sql})", f"({r.sql}) q"), (*r.operators, "with_weight"))


def extend(inner: st.SearchStrategy[Relation]) -> list[st.SearchStrategy[Relation]]:
    """Relations made of others."""
    return [
        st.builds(distinct, inner),
        st.builds(union, inner, inner),
        st.builds(union_distinct, inner, inner),
        st.builds(difference, inner, inner, st.booleans()),
        st.builds(intersect, inner, inner, st.booleans()),
        st.builds(weighted, inner),
    ]

"""Operators on sets and bags."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.laws.relation import Relation


def distinct(r: Relation) -> Relation:
    return Relation(r.stream.distinct(), f"select distinct b, a, f from ({r.sql})", (*r.operators, "distinct"))


def union(r: Relation, s: Relation) -> Relation:
    sql = f"select * from ({r.sql}) union all select * from ({s.sql})"
    return Relation(r.stream.union(s.stream), sql, (*r.operators, *s.operators, "union"))


def difference(r: Relation, s: Relation) -> Relation:
    sql = f"select * from ({r.sql}) except select * from ({s.sql})"
    return Relation(r.stream.difference(s.stream), sql, (*r.operators, *s.operators, "difference"))


def extend(inner: st.SearchStrategy[Relation]) -> list[st.SearchStrategy[Relation]]:
    """Relations made of others."""
    return [
        st.builds(distinct, inner),
        st.builds(union, inner, inner),
        st.builds(difference, inner, inner),
    ]

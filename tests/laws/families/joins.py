"""Joins."""

from __future__ import annotations

from hypothesis import strategies as st

import dbsp
from tests.laws.relation import Relation


def joined(r: Relation, s: Relation) -> Relation:
    stream = r.stream.join(s.stream, on="b", suffix="_s").select(
        "b", a=dbsp.col("a") + dbsp.col("a_s"), f=dbsp.col("f_s")
    )
    return Relation(
        stream, f"select x.b, x.a + y.a as a, y.f from ({r.sql}) x join ({s.sql}) y on x.b = y.b",
        (*r.operators, *s.operators, "join"),
    )  # fmt: skip


def extend(inner: st.SearchStrategy[Relation]) -> list[st.SearchStrategy[Relation]]:
    """Relations made of others."""
    return [
        st.builds(joined, inner, inner),
    ]

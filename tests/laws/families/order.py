"""Operators that look at rows in an order."""

from __future__ import annotations

from hypothesis import strategies as st

import dbsp
from tests.laws.relation import Relation


def top(r: Relation, k: int) -> Relation:
    order = "a desc nulls last, b nulls last, f nulls last"
    return Relation(
        r.stream.top_k(k, by=dbsp.desc("a"), partition_by="b"),
        f"select b, a, f from ({r.sql}) qualify row_number() over (partition by b order by {order}) <= {k}",
        (*r.operators, "top_k"),
    )


def extend(inner: st.SearchStrategy[Relation]) -> list[st.SearchStrategy[Relation]]:
    """Relations made of others."""
    return [
        st.builds(top, inner, st.integers(1, 3)),
    ]

"""Recursion, and DBSP's own operators where they say what a table's query says."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

import dbsp
from dbsp import col
from dbsp.core import delay, incremental, integrate, lifted_distinct, lifted_join
from tests.laws.relation import LEFT, Relation


def climbing(r: Relation) -> Relation:
    """Rows whose number goes up to 3, one a round; numbers far below, which sums and functions make, stay as they are."""

    def body(x: Any) -> Any:
        return x.filter((col("a") < 3) & (col("a") > -20)).select("b", "f", a=col("a") + 1)

    stream = dbsp.recursive(r.stream, body, max_rounds=30)
    sql = f"""with recursive x(b, a, f) as (select b, a, f from ({r.sql})
        union select b, a + 1, f from x where a < 3 and a > -20) select * from x"""
    return Relation(stream.select("b", "a", "f"), sql, (*r.operators, "recursion"))


def sinking(r: Relation) -> Relation:
    """The least number of each group, which pulls itself down to 0 where it is small: a min that feeds itself."""

    def body(x: Any) -> Any:
        lower = x.filter((col("a") > 0) & (col("a") < 6)).select("b", "f", a=col("a") - 1)
        both = r.stream.select("b", "a", "f").union(x, lower.select("b", "a", "f"))
        return both.group_by("b").aggregate(a=dbsp.min("a"), f=dbsp.max("f"))

    stream = dbsp.recursive({"x": LEFT}, body, max_rounds=30)["x"]
    sql = f"""select b, case when min(a) > 0 and min(a) < 6 then 0 else min(a) end as a, max(f) as f
        from ({r.sql}) group by b"""
    return Relation(stream.select("b", "a", "f"), sql, (*r.operators, "recursive min"))


def by_definition(r: Relation) -> Relation:
    """Distinct as the paper defines it: D ∘ ↑distinct ∘ I."""
    sql = f"select distinct b, a, f from ({r.sql})"
    return Relation(incremental(lifted_distinct, r.stream), sql, (*r.operators, "D of distinct of I"))


def join_by_rule(r: Relation, s: Relation) -> Relation:
    """The join as the bilinear rule makes it of joins within a step."""

    def join(left: Any, right: Any) -> Any:
        return lifted_join(left, right, "a").select("b", "a", f="f_right")

    x, y = r.stream, s.stream
    stream = join(x, y).union(join(delay(integrate(x)), y), join(x, delay(integrate(y))))
    sql = f"select x.b, x.a, y.f from ({r.sql}) x join ({s.sql}) y on x.a = y.a"
    return Relation(stream, sql, (*r.operators, *s.operators, "bilinear rule"))


def extend(inner: st.SearchStrategy[Relation]) -> list[st.SearchStrategy[Relation]]:
    """Relations made of others."""
    return [
        st.builds(climbing, inner),
        st.builds(sinking, inner),
        st.builds(by_definition, inner),
        st.builds(join_by_rule, inner, inner),
    ]

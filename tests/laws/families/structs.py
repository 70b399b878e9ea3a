"""Structs made, kept whole by joins, groups, sets and lists, and taken apart again."""

from __future__ import annotations

from hypothesis import strategies as st

import dbsp
from tests.laws.relation import Relation


def distinct_structs(r: Relation, limit: int) -> Relation:
    """Null structs, structs of nulls, structs in structs."""
    inner = dbsp.struct("a", "f")
    whole = dbsp.when(dbsp.col("a") > limit, dbsp.struct("b", n=inner)).otherwise(None)
    made = r.stream.select(s=whole, k=dbsp.struct("a")).distinct()
    stream = made.unnest("s").unnest("n").select("b", f="f", a=dbsp.coalesce(dbsp.col("a"), dbsp.col("k.a")))
    sql = f"""
        select s.b as b, coalesce(s.n.a, k.a) as a, s.n.f as f from (
            select distinct case when a > {limit} then {{'b': b, 'n': {{'a': a, 'f': f}}}} end as s, {{'a': a}} as k
            from ({r.sql})
        )
    """
    return Relation(stream.select("b", "a", "f"), sql, (*r.operators, "distinct structs"))


def by_struct(r: Relation, limit: int) -> Relation:
    """A struct as the key of a group and of a join; a null key is equal to no other."""
    key = dbsp.when(dbsp.col("a") < limit, dbsp.struct("a", "b")).otherwise(None)
    keyed = r.stream.with_columns(k=key)
    counts = keyed.group_by("k").aggregate(n=dbsp.count())
    stream = keyed.join(counts, on="k").select(b="k.b", a=dbsp.col("k.a") + dbsp.col("n"), f="f")
    sql = f"""
        with keyed as (select *, case when a < {limit} then {{'a': a, 'b': b}} end as k from ({r.sql})),
            counts as (select k, count(*)::bigint as n from keyed group by k)
        select k.b as b, k.a + n as a, f from keyed join counts using (k) where k is not null
    """
    return Relation(stream, sql, (*r.operators, "struct keys"))


def listed(r: Relation, limit: int, outer: bool) -> Relation:
    """Lists of structs, some of them null, and back to rows."""
    element = dbsp.when(dbsp.col("a") > limit, dbsp.struct("a", "f")).otherwise(None)
    lists = r.stream.group_by("b").aggregate(items=dbsp.array_agg(element)).distinct()
    rows = lists.explode("items", position="n", outer=outer).unnest("items")
    sql = f"select b, case when a > {limit} then a end as a, case when a > {limit} then f end as f from ({r.sql})"
    return Relation(rows.select("b", "a", "f"), sql, (*r.operators, "lists of structs"))


def greatest_struct(r: Relation, least: bool) -> Relation:
    """The order of structs is that of their fields, a null field above all."""
    name = "min" if least else "max"
    best = getattr(dbsp, name)(dbsp.struct("a", "f"))
    stream = r.stream.group_by("b").aggregate(s=best)
    sql = f"select b, s.a as a, s.f as f from (select b, {name}({{'a': a, 'f': f}}) as s from ({r.sql}) group by b)"
    return Relation(stream.unnest("s").select("b", "a", "f"), sql, (*r.operators, f"{name} of structs"))


def extend(inner: st.SearchStrategy[Relation]) -> list[st.SearchStrategy[Relation]]:
    """Relations made of others."""
    return [
        st.builds(distinct_structs, inner, st.integers(-2, 2)),
        st.builds(by_struct, inner, st.integers(-1, 3)),
        st.builds(listed, inner, st.integers(-2, 2), st.booleans()),
        st.builds(greatest_struct, inner, st.booleans()),
    ]

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


def ordered_by_field(r: Relation, last: bool) -> Relation:
    """The first row of a group by fields, one of them computed with."""
    name = "last" if last else "first"
    held = r.stream.select("b", s=dbsp.struct("a", n=dbsp.struct("f")))
    some = dbsp.col("s.a").is_not_null()
    order = [dbsp.desc("s.n.f", nulls_first=True), dbsp.asc(dbsp.col("s.a") > 0), "s.a"]
    stream = held.group_by("b").aggregate(
        a=getattr(dbsp, name)("s.a", order_by=order).where(some), f=dbsp.first("s.n.f", order_by="s.a").where(some)
    )
    sql = f"""
        select b, {name}(a order by f desc nulls first, a > 0, a) filter (where a is not null) as a,
            first(f order by a, f nulls last) filter (where a is not null) as f
        from ({r.sql}) group by b
    """
    return Relation(stream, sql, (*r.operators, "order by fields"))


def near_by_field(r: Relation, s: Relation, within: int) -> Relation:
    """Pairs whose times are fields."""
    left, right = (side.stream.select("b", "f", at=dbsp.struct("a")) for side in (r, s))
    pairs = left.interval_join(right, on="at.a", by="b", within=within)
    stream = pairs.group_by("b").aggregate(a=dbsp.sum("at_right.a"), f=dbsp.sum("f"))
    sql = f"""
        select x.b, sum(y.a)::bigint as a, sum(x.f) as f from ({r.sql}) x join ({s.sql}) y
            on x.b = y.b and y.a::hugeint - x.a::hugeint between -{within} and {within} group by x.b
    """
    return Relation(stream, sql, (*r.operators, *s.operators, "interval by fields"))


def extend(inner: st.SearchStrategy[Relation]) -> list[st.SearchStrategy[Relation]]:
    """Relations made of others."""
    return [
        st.builds(distinct_structs, inner, st.integers(-2, 2)),
        st.builds(by_struct, inner, st.integers(-1, 3)),
        st.builds(listed, inner, st.integers(-2, 2), st.booleans()),
        st.builds(greatest_struct, inner, st.booleans()),
        st.builds(ordered_by_field, inner, st.booleans()),
        st.builds(near_by_field, inner, inner, st.integers(0, 2)),
    ]

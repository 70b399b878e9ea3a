"""Operators that look at one row at a time."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import strategies as st

import dbsp
from tests.laws.relation import LEFT, Relation


def filtered(r: Relation, limit: int) -> Relation:
    return Relation(
        r.stream.filter((dbsp.col("a") > limit) | dbsp.col("f").is_null()),
        f"select b, a, f from ({r.sql}) where a > {limit} or f is null",
        (*r.operators, "filter"),
    )


def mapped(r: Relation, plus: int) -> Relation:
    return Relation(
        r.stream.select("b", a=dbsp.col("a") + plus, f=dbsp.col("f") * 0.5),
        f"select b, a + {plus} as a, f * 0.5 as f from ({r.sql})",
        (*r.operators, "select"),
    )


def row_function(row: dict[str, Any]) -> dict[str, Any]:
    return {"b": row["b"], "a": None if row["a"] is None else -row["a"], "f": row["f"]}


def by_user(r: Relation) -> Relation:
    return Relation(
        r.stream.map(row_function, schema=LEFT), f"select b, -a as a, f from ({r.sql})", (*r.operators, "map")
    )


def repeat(row: dict[str, Any]) -> list[dict[str, Any]]:
    return [row] * ((row["a"] or 0) % 3)


def flat(r: Relation) -> Relation:
    return Relation(
        r.stream.flat_map(repeat, schema=LEFT),
        f"select b, a, f from ({r.sql}) q, range(((coalesce(a, 0) % 3) + 3) % 3)",
        (*r.operators, "flat_map"),
    )


def exploded(r: Relation, outer: bool) -> Relation:
    stream = r.stream.with_columns(p=dbsp.col("b").split(" ")).explode("p", position="n", outer=outer)
    sql = f"""
        select q.p as b, coalesce(n, 0)::bigint + coalesce(a, 0) as a, f
        from ({r.sql}) x {"left " if outer else ""}join lateral (
            select unnest(str_split(x.b, ' ')) as p, generate_subscripts(str_split(x.b, ' '), 1) as n
        ) q on true
    """
    number = dbsp.coalesce(dbsp.col("n"), dbsp.lit(0)) + dbsp.coalesce(dbsp.col("a"), dbsp.lit(0))
    return Relation(stream.select(b="p", a=number, f="f"), sql, (*r.operators, "explode"))


def unpivoted(r: Relation) -> Relation:
    stream = r.stream.with_columns(half=dbsp.col("f") * 0.5).unpivot(["f", "half"], name="n", value="v")
    named = dbsp.when(dbsp.col("n") == "f", dbsp.col("b")).otherwise(dbsp.col("n"))
    sql = f"select b, a, f from ({r.sql}) union all select 'half' as b, a, f * 0.5 as f from ({r.sql})"
    return Relation(stream.select("a", b=named, f="v").select("b", "a", "f"), sql, (*r.operators, "unpivot"))


def by_list(r: Relation) -> Relation:
    listed = r.stream.select("a", "f", words=dbsp.col("b").split(" "))
    both = listed.distinct().join(listed.group_by("words").aggregate(n=dbsp.count()), on="words")
    sql = f"""
        select b, a + n as a, f from (select distinct b, a, f from ({r.sql}))
        join (select b, count(*)::bigint as n from ({r.sql}) group by b) using (b)
    """
    stream = both.select("f", b=dbsp.col("words").list_join(" "), a=dbsp.col("a") + dbsp.col("n")).select("b", "a", "f")
    return Relation(stream, sql, (*r.operators, "lists"))


def halved(rows: pa.RecordBatch) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([rows["b"], rows["a"], pc.multiply(rows["f"], 0.5)], names=["b", "a", "f"])


def by_batch(r: Relation) -> Relation:
    sql = f"select b, a, f * 0.5 as f from ({r.sql})"
    return Relation(r.stream.map_batches(halved, schema=LEFT, check=True), sql, (*r.operators, "map_batches"))


def extend(inner: st.SearchStrategy[Relation]) -> list[st.SearchStrategy[Relation]]:
    """Relations made of others."""
    return [
        st.builds(filtered, inner, st.integers(-2, 2)),
        st.builds(mapped, inner, st.integers(-2, 2)),
        st.builds(by_user, inner),
        st.builds(flat, inner),
        st.builds(exploded, inner, st.booleans()),
        st.builds(by_batch, inner),
        st.builds(unpivoted, inner),
        st.builds(by_list, inner),
    ]

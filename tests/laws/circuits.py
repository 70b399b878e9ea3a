"""Random circuits, each with the SQL that says the same: the material of the equalities.

Every relation has the columns (b: string, a: int64, f: float64), so that any operator can follow any other. Floats are
small multiples of a quarter, so that every sum is exact and DuckDB's is too; exact sums have tests of their own.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa
from hypothesis import strategies as st

import dbsp

LEFT = {"b": dbsp.STRING, "a": dbsp.INT64, "f": dbsp.FLOAT64}
KEYED = {"id": dbsp.INT64, **LEFT}
t = dbsp.table("t", LEFT)
u = dbsp.table("u", KEYED, primary_key="id")


@dataclass(frozen=True)
class Relation:
    """A stream and the query that means the same over tables t and u."""

    stream: Any
    sql: str
    operators: tuple[str, ...]


def base(which: str) -> Relation:
    stream = t if which == "t" else u.select("b", "a", "f")
    return Relation(stream, f"select b, a, f from {which}", (which,))


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


def joined(r: Relation, s: Relation) -> Relation:
    stream = r.stream.join(s.stream, on="b", suffix="_s").select(
        "b", a=dbsp.col("a") + dbsp.col("a_s"), f=dbsp.col("f_s")
    )
    return Relation(
        stream, f"select x.b, x.a + y.a as a, y.f from ({r.sql}) x join ({s.sql}) y on x.b = y.b",
        (*r.operators, *s.operators, "join"),
    )  # fmt: skip


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


def distinct(r: Relation) -> Relation:
    return Relation(r.stream.distinct(), f"select distinct b, a, f from ({r.sql})", (*r.operators, "distinct"))


def union(r: Relation, s: Relation) -> Relation:
    sql = f"select * from ({r.sql}) union all select * from ({s.sql})"
    return Relation(r.stream.union(s.stream), sql, (*r.operators, *s.operators, "union"))


def difference(r: Relation, s: Relation) -> Relation:
    sql = f"select * from ({r.sql}) except select * from ({s.sql})"
    return Relation(r.stream.difference(s.stream), sql, (*r.operators, *s.operators, "difference"))


def top(r: Relation, k: int) -> Relation:
    order = "a desc nulls last, b nulls last, f nulls last"
    return Relation(
        r.stream.top_k(k, by=dbsp.desc("a"), partition_by="b"),
        f"select b, a, f from ({r.sql}) qualify row_number() over (partition by b order by {order}) <= {k}",
        (*r.operators, "top_k"),
    )


def relations() -> st.SearchStrategy[Relation]:
    """Trees of up to a handful of operators over the two tables."""
    leaves = st.sampled_from(["t", "u"]).map(base)
    one = [distinct, grouped, extremes, by_user, flat]

    def extend(inner: st.SearchStrategy[Relation]) -> st.SearchStrategy[Relation]:
        return st.one_of(
            st.builds(filtered, inner, st.integers(-2, 2)),
            st.builds(mapped, inner, st.integers(-2, 2)),
            st.builds(top, inner, st.integers(1, 3)),
            *[st.builds(f, inner) for f in one],
            *[st.builds(f, inner, inner) for f in (joined, union, difference)],
        )

    return st.recursive(leaves, extend, max_leaves=4)


def recomputed(sql: str, tables: dict[str, list[dict[str, Any]]]) -> Counter[tuple[Any, ...]]:
    """DuckDB's answer over the tables as they are now."""
    with duckdb.connect(config={"threads": 1}) as connection:
        for name, columns in (("t", LEFT), ("u", KEYED)):
            rows = pa.Table.from_pylist(tables[name], schema=pa.schema(list(columns.items())))
            connection.register(f"{name}_rows", rows)
            connection.execute(f"create table {name} as select * from {name}_rows")
        return Counter(canonical(row) for row in connection.sql(sql).fetchall())


def canonical(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """-0.0 is 0.0 and a NaN equals itself."""
    return tuple(_one(v) for v in row)


def _one(value: Any) -> Any:
    if not isinstance(value, float):
        return value
    return "nan" if math.isnan(value) else value + 0.0

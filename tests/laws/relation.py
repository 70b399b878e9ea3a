"""What every generated circuit is made of: a stream beside the SQL that says the same.

Every relation has the columns (b: string, a: int64, f: float64), so that any operator can follow any other. Floats are
small multiples of a quarter, so that every sum is exact and DuckDB's is too; exact sums have tests of their own.
"""

from __future__ import annotations

import atexit
import math
from collections import Counter
from dataclasses import dataclass
from functools import cache
from typing import Any

import duckdb
import pyarrow as pa

import dbsp
from tests import duck

LEFT = {"b": dbsp.STRING, "a": dbsp.INT64, "f": dbsp.FLOAT64}
KEYED = {"id": dbsp.INT64, **LEFT}
t = dbsp.table("t", LEFT)
u = dbsp.table("u", KEYED, primary_key="id")
p = dbsp.table("p", LEFT, append_only=True)
"""What was ever pushed to t."""


@dataclass(frozen=True)
class Relation:
    """A stream and the query that means the same over tables t, u and p."""

    stream: Any
    sql: str
    operators: tuple[str, ...]


def base(which: str) -> Relation:
    stream = {"t": t, "p": p}.get(which) or u.select("b", "a", "f")
    return Relation(stream, f"select b, a, f from {which}", (which,))


def recomputed(sql: str, tables: dict[str, list[dict[str, Any]]]) -> Counter[tuple[Any, ...]]:
    """DuckDB's answer over the tables as they are now."""
    connection = oracle()
    for name, columns in (("t", LEFT), ("u", KEYED), ("p", LEFT)):
        rows = pa.Table.from_pylist(tables.get(name, []), schema=pa.schema(list(columns.items())))
        connection.register(f"{name}_rows", rows)
        connection.execute(f"create or replace table {name} as select * from {name}_rows")
    return Counter(canonical(row) for row in connection.sql(sql).fetchall())


@cache
def oracle() -> duckdb.DuckDBPyConnection:
    """One database for all examples of a process: to open one takes longer than an answer."""
    made = duck.connect()
    made.execute("PRAGMA disable_optimizer")  # generated statements find its faults, and the tables are small
    atexit.register(oracle.cache_clear)  # else DuckDB complains that it was left
    return made


def canonical(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """-0.0 is 0.0 and a NaN equals itself."""
    return tuple(_one(v) for v in row)


def _one(value: Any) -> Any:
    if not isinstance(value, float):
        return value
    return "nan" if math.isnan(value) else value + 0.0

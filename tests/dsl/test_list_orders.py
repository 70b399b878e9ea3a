"""Lists, and structs that hold some, wherever an order is asked for: DuckDB's answers, before and after changes.

The order is that of the elements, one by one, a null one above every value; of the lengths, where a list begins with another.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import dbsp
from tests import duck

LISTS: dict[pa.DataType, list[Any]] = {
    dbsp.list_of(dbsp.INT64): [[1], [-1], [256], [255], [], [1, -5], [1, None], [None], [None, 0], [2**62], [-(2**62)], None],
    dbsp.list_of(dbsp.FLOAT64): [[1.5], [-1.5], [0.0], [-2.0, 1.0], [float("nan")], [-1e-300], [None], [], [1.5, 2.5], None],
    dbsp.list_of(dbsp.STRING): [["b"], ["a", "b"], ["aaaaaaaaaa"], ["aaaaaaaaab"], [""], [], ["aa"], ["a", None], [None], None],
    dbsp.list_of(dbsp.list_of(dbsp.INT32)): [[[300], [1]], [[2]], [[-2], []], [[]], [], [None], [[300]], [[None]], None],
    dbsp.struct_of({"l": dbsp.list_of(dbsp.INT64), "n": dbsp.INT64}): [
        {"l": [1], "n": 2}, {"l": [-1], "n": 3}, {"l": [256], "n": 1}, {"l": [], "n": 0}, {"l": [1], "n": 1}, {"l": [None]},
    ],
}  # fmt: skip

T = "t where l is not null"
WAYS = [
    "select id, rank() over (partition by k order by l) as n from t",
    "select id, row_number() over (partition by k order by l desc nulls last, id) as n from t",
    "select id, l from t order by l, id limit 5",
    "select id, l from t order by l desc nulls last, id limit 5",
    f"select k, min(l) as low, max(l) as high from {T} group by k",
    f"select k, arg_min(id, l) as low, arg_max(id, l) as high from {T} and id < 100 group by k",
    "select k, first(id order by l, id) as low, last(id order by l, id) as high from t group by k",
    "select k, array_agg(id order by l, id) as ids from t group by k",
    "select distinct on (k) k, id from t order by k, l, id",
    f"select id, min(l) over (partition by k order by id rows between 2 preceding and current row) as low from {T}",
]


def shown(rows: list[tuple[Any, ...]]) -> list[str]:
    """The rows in one order, a NaN as itself."""
    return sorted(repr(row) for row in rows)


@pytest.mark.parametrize("sql", WAYS)
@pytest.mark.parametrize("type_", LISTS, ids=str)
def test_lists_are_ordered_as_in_duckdb(type_: pa.DataType, sql: str) -> None:
    columns = {"id": dbsp.INT64, "k": dbsp.INT64, "l": type_}
    values = LISTS[type_]
    rows = [{"id": n, "k": n % 2, "l": value} for n, value in enumerate(values)]
    rows += [{"id": 100 + n, "k": 2, "l": value} for n, value in enumerate(reversed(values))]
    gone, stay = rows[::5], [row for at, row in enumerate(rows) if at % 5]
    stream = dbsp.sql(sql, t=dbsp.table("t", columns))
    with dbsp.open(dbsp.circuit("demo", {"v": stream})) as run, duck.connect() as oracle:
        for change, what, there in ((run.push, rows, rows), (run.delete, gone, stay)):
            change("t", what)
            run.step()
            oracle.register("t", pa.Table.from_pylist(there, schema=pa.schema(list(columns.items()))))
            ours = [row for row, weight in run.view("v").to_rows() for _ in range(weight)]
            assert shown(ours) == shown(oracle.sql(sql).fetchall())

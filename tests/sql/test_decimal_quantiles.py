"""Medians and quantiles of decimals are decimals: the values and types of DuckDB, in groups and in frames, while rows go."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from functools import cache

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dbsp
from tests.pace import examples

QUERIES = (
    "select k, median(d) as a, quantile_cont(d, 0.25) as b, quantile_cont(d, 0.75) as c, quantile_disc(d, 0.9) as e"
    " from t group by k",
    "select k, n, median(d) over (partition by k order by n rows between 2 preceding and current row) as m from t",
    "select k, n, quantile_cont(d, 0.375) over (partition by k order by n"
    " rows between unbounded preceding and current row) as m from t",
)
WIDTHS = ((4, 1, 9999), (18, 2, 10**12), (38, 6, 10**15))
"""Precision, scale, largest number. DuckDB interpolates in floats, which are exact here: the fractions are dyadic."""


@cache
def circuit_over(precision: int, scale: int) -> tuple[dict[str, pa.DataType], dbsp.Circuit]:
    columns = {"k": dbsp.STRING, "n": dbsp.INT64, "d": dbsp.decimal(precision, scale)}
    table = dbsp.table("t", columns, primary_key="n")
    return columns, dbsp.circuit("q", {f"v{at}": dbsp.sql(query, t=table) for at, query in enumerate(QUERIES)})


@pytest.mark.parametrize(("precision", "scale", "most"), WIDTHS)
@settings(max_examples=examples(20))
@given(data=st.data())
def test_the_answers_are_duckdb_s(precision: int, scale: int, most: int, data: st.DataObject) -> None:
    numbers = st.one_of(st.none(), st.integers(-most, most).map(lambda n: Decimal(n).scaleb(-scale)))
    rows = data.draw(st.lists(st.tuples(st.sampled_from("ab"), numbers), min_size=1, max_size=12))
    gone = data.draw(st.sets(st.integers(0, len(rows) - 1)))
    columns, circuit = circuit_over(precision, scale)
    whole = [{"k": k, "n": n, "d": d} for n, (k, d) in enumerate(rows)]
    left = pa.Table.from_pylist([row for row in whole if row["n"] not in gone], pa.schema(list(columns.items())))
    with duckdb.connect() as judge, dbsp.open(circuit) as run:
        judge.register("t", left)
        run.push("t", whole)
        run.step()
        run.delete("t", [{"n": n} for n in gone])
        run.step()
        for at, query in enumerate(QUERIES):
            view = run.view(f"v{at}").to_arrow()
            expected = judge.sql(query).to_arrow_table()
            names = expected.column_names
            assert [view.schema.field(name).type for name in names] == [
                expected.schema.field(name).type for name in names
            ]
            assert Counter(_rows(view.select(names))) == Counter(_rows(expected))


def _rows(table: pa.Table) -> list[tuple[object, ...]]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def test_digits_beyond_a_float_are_kept() -> None:
    """DuckDB loses them between two numbers; a number that stands alone it gives back as well."""
    table = dbsp.table("t", {"d": dbsp.decimal(38, 2)})
    low, high = Decimal("123456789012345678901234567890.01"), Decimal("123456789012345678901234567893.04")
    circuit = dbsp.circuit("q", {"v": table.aggregate(m=dbsp.median("d"), q=dbsp.quantile_cont("d", 0.75))})
    with dbsp.open(circuit) as run:
        run.push("t", [{"d": low}, {"d": high}])
        run.step()
        assert run.view("v").to_rows() == [
            ((Decimal("123456789012345678901234567891.52"), Decimal("123456789012345678901234567892.28")), 1)
        ]
        run.delete("t", [{"d": high}])
        run.step()
        assert run.view("v").to_rows() == [((low, low), 1)]

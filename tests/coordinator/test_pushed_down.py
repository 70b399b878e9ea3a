"""The result of a query over the rows that its bounds leave is that over all rows: NaN, nulls, -0.0, texts, decimals, dates."""

from __future__ import annotations

import json
import math
from datetime import date, datetime
from decimal import Decimal
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dbsp.coordinator.query.pushdown import needed_parts
from dbsp.coordinator.query.statement import _walk
from dbsp.coordinator.serving import query_ranges
from dbsp.coordinator.serving.query_parts import part_of
from dbsp.runtime.ranges import ColumnRange
from dbsp.zset.schema import Schema
from tests.coordinator.held_views import HeldViews
from tests.pace import examples

NUMBERS = [0, 1, -1, 2, 7, 127, -128]
FLOATS = [0.0, -0.0, math.nan, math.inf, -math.inf, 0.1, -2.5, 7.0, 1e300, 5e-324]
DECIMALS = [Decimal(text) for text in ("0.00", "-0.01", "0.10", "2.50", "7.00", "99999999.99")]
TEXTS = ["", "a", "A", "aa", "b", "ä", "z\x00", "é", "e\u0301", "\U0001d504", "\uffff", "2024-01-01", "5"]
DAYS = [date(1, 1, 1), date(1969, 12, 31), date(2024, 1, 1), date(2024, 1, 2), date(9999, 12, 31)]
MOMENTS = [
    datetime(1969, 12, 31, 23, 59, 59, 999999),
    datetime(2024, 1, 1),
    datetime(2024, 1, 1, 0, 0, 0, 1),
    datetime(2024, 1, 2),
]
COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "small": (pa.int8(), NUMBERS),
    "whole": (pa.int64(), [*NUMBERS, 2**53, 2**53 + 1, 2**63 - 1, -(2**63)]),
    "short": (pa.float32(), FLOATS),
    "real": (pa.float64(), FLOATS),
    "money": (pa.decimal128(10, 2), DECIMALS),
    "big": (pa.decimal128(38, 2), DECIMALS),
    "name": (pa.string(), TEXTS),
    "day": (pa.date32(), DAYS),
    "moment": (pa.timestamp("us"), MOMENTS),
    "instant": (pa.timestamp("us", "UTC"), MOMENTS),
}
CONSTANTS = [
    "0", "-0.0", "0.1", "1", "7", "-1", "2.5", "2.505", "127", "128", "-129", "9007199254740993", "9223372036854775807", "1e16",
    "99999999999999999999", "0.1000000000000000055", "'nan'::double", "'inf'::double", "''", "'a'", "'A'", "'ä'", "'é'",
    "'2024-01-01'", "date '2024-01-01'", "'2024-01-01 00:00:00.000001'", "timestamp '2024-01-01 00:00:00'", "'0001-01-01'",
    "date '9999-12-31'", "null", "'2024-01-01'::text", "5::bigint",
]  # fmt: skip
SIGNS = ["<", "<=", ">", ">=", "="]

comparisons = st.one_of(
    st.builds("{} {} {}".format, st.sampled_from(sorted(COLUMNS)), st.sampled_from(SIGNS), st.sampled_from(CONSTANTS)),
    st.builds("{2} {1} {0}".format, st.sampled_from(sorted(COLUMNS)), st.sampled_from(SIGNS), st.sampled_from(CONSTANTS)),
    st.builds(
        "{} between {} and {}".format, st.sampled_from(sorted(COLUMNS)), st.sampled_from(CONSTANTS), st.sampled_from(CONSTANTS)
    ),
)  # fmt: skip


class Whole:
    """A table in DuckDB, in which a condition is asked for, and from which a read leaves out rows."""

    def __init__(self, table: pa.Table) -> None:
        self.numbered = table.append_column("place", pa.array(range(len(table)))).append_column(
            "weight", pa.array([1] * len(table))
        )
        self.schema = Schema.of({**{name: pa_type for name, (pa_type, _) in COLUMNS.items()}, "place": pa.int64()})
        self.connection = duckdb.connect(":memory:", config={"threads": 1})
        rows = self.numbered.drop_columns(["weight"])
        self.connection.register("rows", rows)
        self.connection.execute("create table v as select * from rows")

    def check(self, where: str) -> int:
        """Check that no row of the result is left out; return how many others are."""
        sql = f"select place from v where {where}"
        try:
            result = {place for (place,) in self.connection.execute(sql).fetchall()}
        except duckdb.Error:
            return 0  # not a statement of these types
        ((text,),) = self.connection.execute("select json_serialize_sql(?)", [sql]).fetchall()
        tree = json.loads(text)
        needed = needed_parts(tree["statements"][0]["node"], [node.tree for node in _walk(tree)], ("v",))["v"]
        part = part_of("v", needed, self.schema, frozenset(self.schema.names))
        read = pa.concat_tables(HeldViews(1, {"v": self.numbered}).read("v", part.wanted))
        left = set(read.column("place").to_pylist())
        assert result <= left, f"{where}: rows {sorted(result - left)} are left out"
        return len(self.numbered) - len(left)


@pytest.fixture(scope="module")
def whole() -> Whole:
    return Whole(every_value())


@settings(max_examples=examples(300), deadline=None, suppress_health_check=list(HealthCheck))
@given(where=st.lists(comparisons, min_size=1, max_size=3))
def test_bounds_leave_out_no_row_of_the_result(mixed: Whole, where: list[str]) -> None:
    mixed.check(" and ".join(where))


@pytest.fixture(scope="module")
def mixed() -> Whole:
    """Rows whose columns all have values, of which one in nine is null."""
    random = Random(7)
    columns = [
        pa.array([random.choice(values) if random.randrange(9) else None for _ in range(200)], pa_type)
        for pa_type, values in COLUMNS.values()
    ]
    return Whole(pa.table(columns, names=[*COLUMNS]))


def every_value() -> pa.Table:
    """Each value of each column, the others null."""
    columns: dict[str, list[Any]] = {name: [] for name in COLUMNS}
    for name, (_, values) in COLUMNS.items():
        for value in [*values, None]:
            for other, column in columns.items():
                column.append(value if other == name else None)
    return pa.table([pa.array(columns[name], pa_type) for name, (pa_type, _) in COLUMNS.items()], names=[*COLUMNS])


def sign_by_sign(whole: Whole, name: str) -> int:
    return sum(whole.check(f"{name} {sign} {constant}") for sign in SIGNS for constant in CONSTANTS)


@pytest.mark.parametrize("name", sorted(COLUMNS))
def test_each_column_with_each_constant(whole: Whole, name: str) -> None:
    assert sign_by_sign(whole, name) > 100, "nothing was pushed down"


def test_a_bound_that_is_off_by_one_is_noticed(whole: Whole, monkeypatch: pytest.MonkeyPatch) -> None:
    original = query_ranges._narrower

    def off(before: ColumnRange, is_low: bool, value: pa.Scalar, is_in: bool) -> ColumnRange:
        return original(before, is_low, value, is_in=is_in and is_low)

    monkeypatch.setattr(query_ranges, "_narrower", off)
    for name in ("whole", "name", "day", "moment", "money"):
        with pytest.raises(AssertionError, match=f"{name} <= "):
            sign_by_sign(whole, name)

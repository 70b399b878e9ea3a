"""An expression where some rows fail: values and reasons are those of each row evaluated alone."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dbsp
from dbsp import col
from dbsp.expr import expression as expressions
from dbsp.expr.bisection import reason_of
from dbsp.expr.expression import Call, Expression
from dbsp.expr.methods.applied import unwrap
from dbsp.expr.outcomes import outcomes
from dbsp.expr.resolving import resolve
from dbsp.expr.rows import ROW_ERRORS, Subset
from dbsp.zset.batch import Batch
from dbsp.zset.schema import Schema

COLUMNS = {
    "a": dbsp.INT64, "b": dbsp.INT64, "u": dbsp.UINT64, "f": dbsp.FLOAT64, "g": dbsp.FLOAT64, "d": dbsp.decimal(38, 2),
    "e": dbsp.decimal(10, 0), "s": dbsp.STRING, "t": dbsp.TIMESTAMP,
}  # fmt: skip
SCHEMA: Schema = dbsp.table("t", COLUMNS).schema
INTEGERS = st.sampled_from([0, 1, -1, 2, 7, 2**62, 2**63 - 1, -(2**63), None])
FLOATS = st.sampled_from([0.0, -0.0, 1.5, -2.0, float("nan"), float("inf"), 1e300, None])
ROW = st.fixed_dictionaries({
    "a": INTEGERS, "b": INTEGERS, "u": st.sampled_from([0, 1, 5, 2**64 - 1, None]), "f": FLOATS, "g": FLOATS,
    "d": st.sampled_from([Decimal(0), Decimal("1.25"), Decimal(10**35), Decimal(-(10**35)), None]),
    "e": st.sampled_from([Decimal(0), Decimal(3), Decimal(-7), None]),
    "s": st.sampled_from(["1", "-7", "x", "", "300", "2026-01-02", None]),
    "t": st.sampled_from([datetime(2026, 1, 2, tzinfo=UTC).replace(tzinfo=None), None]),
})  # fmt: skip
FAILING: dict[str, Any] = {
    "quotients": col("a") // col("b") + col("b") // col("a"),
    "unsigned": col("u") // col("u") - 1,
    "remainder": (col("a") + 1) % col("b"),
    "of a constant": 12 // col("b") + 12 % col("a"),
    "by a constant zero": col("a") // 0,
    "a constant alone": col("a") + dbsp.lit(1) // dbsp.lit(0),
    "floats": col("f") / col("g") + 1.0 / col("f"),
    "decimals": col("d") / col("e") + col("e"),
    "narrow decimals": col("e") / col("e").abs() + col("d").cast(dbsp.decimal(30, 2)) / col("e"),
    "product": col("d") * col("d"),
    "sum": col("a") + col("b") - col("u").cast(dbsp.INT64),
    "text": col("s").cast(dbsp.INT8) + col("s").cast(dbsp.INT64) // col("a"),
    "date": col("s").strptime("%Y-%m-%d").year() // col("b"),
    "root": col("f").sqrt() + col("g").ln(),
    "angle": dbsp.lit(0.0).atan2(col("f")) + col("g").sqrt(),
    "by need": dbsp.when(col("a") // col("b") > 0, col("b") // col("a")).otherwise(col("a") + 1),
    "first": dbsp.coalesce(col("a") // col("b"), col("b") // col("a")),
    "both": (col("a") // col("b") > 0) & (col("b") // col("a") > 0),
    "tried": (col("a") // col("b")).or_null() + col("b") // col("a"),
    "two tried": (col("d") / col("e")).or_null(),
}


def alone(expression: Expression, batch: Batch, row: int) -> tuple[Any, str | None]:
    try:
        return expression.evaluate(Subset(batch, pa.array([row]))).to_pylist()[0], None
    except ROW_ERRORS as error:
        return None, reason_of(error)


@pytest.mark.parametrize("name", FAILING)
@given(rows=st.lists(ROW, min_size=1, max_size=12))
def test_values_and_reasons_are_those_of_each_row_alone(name: str, rows: list[dict[str, Any]]) -> None:
    expression = resolve(unwrap(FAILING[name]), SCHEMA)
    batch = Batch.from_arrow(pa.Table.from_pylist(rows, schema=SCHEMA.to_arrow()), SCHEMA)
    values, reasons = outcomes(expression, batch)
    found = [(value, reasons.get(row)) for row, value in enumerate(values.to_pylist())]
    assert repr(found) == repr([alone(expression, batch, row) for row in range(len(batch))])
    assert values.type == expression.type(SCHEMA)


@pytest.mark.parametrize("name", ["quotients", "narrow decimals", "text"])
def test_many_failing_rows_cost_little(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A quarter of the rows fail: by halves alone that were tens of thousands of evaluations."""
    calls = 0
    compute = Call.compute

    def counted(self: Call, data: list[Any]) -> Any:
        nonlocal calls
        calls += 1
        return compute(self, data)

    monkeypatch.setattr(expressions.Call, "compute", counted)
    rows = [
        {
            "a": n % 4,
            "b": n % 7,
            "u": 1,
            "f": 1.0,
            "g": 1.0,
            "d": Decimal(n),
            "e": Decimal(n % 4),
            "s": "x" if n % 4 else "1",
        }
        for n in range(4000)
    ]
    batch = Batch.from_arrow(pa.Table.from_pylist(rows, schema=SCHEMA.to_arrow()), SCHEMA)
    _, reasons = outcomes(resolve(unwrap(FAILING[name]), SCHEMA), batch)
    assert len(reasons) >= 1000
    assert calls < 100

"""Rows that do not fit a table are one error that names the column and says what to write."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import dbsp
from dbsp.errors import CircuitError

TABLE = dbsp.table("t", {"id": dbsp.INT32, "paid": dbsp.decimal(6, 2)}, primary_key="id")
CIRCUIT = dbsp.circuit("c", {"v": TABLE})


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"id": "x"}], "table=t column=id type=dbsp.INT32"),
        ([{"id": 2**40}], "column=id"),
        ([{"id": 1, "paid": "3.50"}], 'write decimal.Decimal("1.5"), with at most 2 digits'),
        ([{"id": 1, "paid": Decimal("1.234")}], "column=paid"),
        (pa.table({"id": [2**40]}), "column=id"),
        ([1], "not a row: table=t row=1"),
        (5, "not a row: table=t row=5"),
        ("text", "not a row"),
        ({"id": 5}, "not a column: table=t column=id got=5; push a list of dicts"),
        ({"id": [5], "paid": "text"}, "not a column: table=t column=paid got='text'"),
        ([{"idd": 1}], "no such column"),
    ],
)
def test_rows_that_do_not_fit(rows: Any, message: str) -> None:
    with dbsp.open(CIRCUIT, workers=1) as run:
        with pytest.raises(CircuitError) as caught:
            run.push("t", rows)
        assert message in str(caught.value)
        run.push("t", [{"id": 1, "paid": Decimal("1.5")}, {"id": 2}])
        run.step()
        assert run.view("v").to_pylist() == [{"id": 1, "paid": Decimal("1.50")}, {"id": 2, "paid": None}]

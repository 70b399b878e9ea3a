"""Rows that do not fit a table are one error that names the column and says what to write."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import dbsp
from dbsp.errors import CircuitError
from dbsp.io.formats import decode_json

TABLE = dbsp.table("t", {"id": dbsp.INT32, "paid": dbsp.decimal(6, 2)}, primary_key="id")
CIRCUIT = dbsp.circuit("c", {"v": TABLE})


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"id": "x"}], "table=t column=id type=dbsp.INT32"),
        ([{"id": 2**40}], "column=id"),
        ([{"id": 1, "paid": "3.505"}], 'write decimal.Decimal("1.5") or "1.5", with at most 2 digits'),
        ([{"id": 1, "paid": Decimal("1.234")}], "column=paid"),
        (pa.table({"id": [2**40]}), "column=id"),
        ([1], "not a row: table=t row=1"),
        (5, "not a row: table=t row=5"),
        ("text", "not a row"),
        ({"id": 5}, "not a column: table=t column=id got=5; push a list of dicts"),
        ({"id": [5], "paid": "text"}, "not a column: table=t column=paid got='text'"),
        ([{"idd": 1}], "no such column"),
        ([{"id": 1.5}], "column=id type=dbsp.INT32 error=1.5 is not a value of this type"),
        ([{"id": float("inf")}], "column=id"),
        (
            [{"id": 1}, {"id": 2}, {"id": Decimal("2.9")}, {"id": 3.5}],
            "row=2 table=t column=id type=dbsp.INT32 error=Decimal('2.9')",
        ),
        ({"id": [1, 2, 2**40]}, "row=2 table=t column=id type=dbsp.INT32"),
        ({"id": [1, "x"]}, "row=1 table=t column=id type=dbsp.INT32"),
        (pa.table({"id": [1.0, 1.5]}), "row=1 table=t column=id"),
        (
            {"id": [1, 2], "paid": [1]},
            "columns of different lengths: table=t rows={'id': 2, 'paid': 1}; give every column one value",
        ),
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


def test_a_day_of_no_calendar_is_refused() -> None:
    """Nobody could read it again: a dead letter, a view, a query."""
    table = dbsp.table("t", {"day": dbsp.DATE, "times": dbsp.list_of(dbsp.TIMESTAMP)})
    far = pa.array([4_000_000], pa.int32()).cast(pa.date32()), pa.array([[2**62]], pa.list_(pa.int64()))
    with dbsp.open(dbsp.circuit("c", {"v": table})) as run:
        for column, values in (("day", far[0]), ("times", far[1].cast(pa.list_(pa.timestamp("us"))))):
            with pytest.raises(CircuitError, match=f"column={column}.*outside of the years 1 to 9999"):
                run.push("t", pa.table({column: values}))
        run.push("t", [{"day": dt.date.max, "times": [dt.datetime.max, dt.datetime.min, None]}])
        run.step()
        assert run.view("v").to_pylist() == [{"day": dt.date.max, "times": [dt.datetime.max, dt.datetime.min, None]}]


CUT = {"n": dbsp.INT64, "f": dbsp.FLOAT32, "day": dbsp.DATE, "l": dbsp.list_of(dbsp.STRING)}


@pytest.mark.parametrize(
    ("column", "value"),
    [("n", Decimal("2.9")), ("f", 1e300), ("day", dt.datetime(2024, 1, 1, 23)), ("l", "abc")],
)
def test_no_value_is_taken_in_part(column: str, value: Any) -> None:
    """However it is pushed."""
    with dbsp.open(dbsp.circuit("c", {"v": dbsp.table("t", CUT)})) as run:
        for rows in ([{}, {column: value}], {column: [None, value]}, pa.table({column: [None, value]})):
            with pytest.raises(CircuitError, match=rf"row=\d table=t column={column} "):
                run.push("t", rows)


def test_of_a_mixed_column_no_value_is_taken_in_part() -> None:
    """What Arrow finds for it holds days alone."""
    days = [dt.date(2024, 1, 1), dt.datetime(2024, 1, 1, 23)]
    with dbsp.open(dbsp.circuit("c", {"v": dbsp.table("t", CUT)})) as run:
        with pytest.raises(CircuitError, match="row=1 table=t column=day"):
            run.push("t", {"day": days})
        run.push("t", {"day": iter([days[0], dt.datetime(2024, 1, 2)]), "n": (1, 2)})
        run.step()
        assert sorted(row["day"].day for row in run.view("v").to_pylist()) == [1, 2]


TIMES = {
    "day": dbsp.DATE,
    "at": dbsp.TIMESTAMP,
    "utc": dbsp.TIMESTAMP_UTC,
    "time": dbsp.TIME,
    "paid": dbsp.decimal(6, 2),
}
HALF_TEN = dt.time(9, 30)


@pytest.mark.parametrize(
    "row",
    [
        {
            "day": "2024-05-31",
            "at": "2024-05-31T09:30:00",
            "utc": "2024-05-31T09:30:00Z",
            "time": "09:30",
            "paid": "3.5",
        },
        {
            "day": "2024-05-31",
            "at": "2024-05-31 09:30",
            "utc": "2024-05-31T11:30+02:00",
            "time": "09:30:00.0",
            "paid": "3.50",
        },
        {"day": "2024-05-31", "at": "2024-05-31 09:30", "utc": "2024-05-31T09:30", "time": "09:30", "paid": 3.5},
    ],
)
def test_texts_of_decimals_dates_and_times_are_read_as_in_json(row: dict[str, Any]) -> None:
    day = dt.date(2024, 5, 31)
    at = dt.datetime.combine(day, HALF_TEN)
    want = {"day": day, "at": at, "utc": at.replace(tzinfo=dt.UTC), "time": HALF_TEN, "paid": Decimal("3.50")}
    table = dbsp.table("t", TIMES)
    with dbsp.open(dbsp.circuit("c", {"v": table})) as run:
        run.push("t", [row, want, dict.fromkeys(TIMES)])
        run.step()
        assert run.view("v").to_pylist().count(want) == 2
        run.delete("t", [row])
        run.step()
        assert run.view("v").to_pylist().count(want) == 1


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("day", dt.datetime(2024, 5, 31, 10)),
        ("day", 19_000),
        ("at", 1_700_000_000),
        ("utc", 1.5),
        ("time", 7),
        ("day", "31.5.2024"),
        ("at", "2024-05-31T09:30Z"),
        ("time", "noon"),
        ("paid", "much"),
    ],
)
def test_a_value_of_another_form_is_refused_with_the_form(column: str, value: Any) -> None:
    message = pytest.raises(CircuitError, match=f"column={column} .*; write ")
    with dbsp.open(dbsp.circuit("c", {"v": dbsp.table("t", TIMES)})) as run, message:
        run.push("t", [{column: value}])


def test_a_time_with_a_zone_is_told_its_type() -> None:
    circuit = dbsp.circuit("c", {"v": dbsp.table("t", {"at": dbsp.TIMESTAMP})})
    text = "2024-05-31T10:00:00Z"
    with dbsp.open(circuit) as run, pytest.raises(CircuitError, match=r"dbsp\.TIMESTAMP_UTC"):
        run.push("t", [{"at": text}])
    (bad,) = decode_json(f'{{"at": "{text}"}}'.encode(), circuit.tables[0]).bad
    assert bad.reason == f"column at: a time with a zone, declare the column dbsp.TIMESTAMP_UTC: {text}"

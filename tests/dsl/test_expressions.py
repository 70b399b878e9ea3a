"""Expressions where DuckDB is no oracle: laziness, decimals, casts, NaN, text forms, substitution, pickling."""

from __future__ import annotations

import datetime as dt
import decimal
import math
import pickle
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dbsp
from dbsp import Expr, col, lit, when
from dbsp.expr.catalog import FUNCTIONS
from dbsp.expr.expression import Call, ColumnRef, Literal, conjuncts
from dbsp.expr.methods.applied import unwrap
from dbsp.expr.resolving import resolve
from dbsp.expr.rows import ROW_ERRORS
from dbsp.zset.batch import Batch
from dbsp.zset.schema import Column, Schema
from tests.pace import examples


def run(expr: Expr, **columns: tuple[pa.DataType, list]) -> list:
    """The values of an expression over these columns, its type checked."""
    schema = Schema.of({name: type_ for name, (type_, _) in columns.items()})
    batch = Batch.of(schema, [pa.array(values, type_) for type_, values in columns.values()])
    expression = resolve(unwrap(expr), schema)
    values = expression.evaluate(batch)
    assert isinstance(values, pa.Array)
    assert values.type == expression.type(schema)
    assert len(values) == len(batch)
    return values.to_pylist()


def ints(*values):
    return (dbsp.INT64, list(values))


def test_a_branch_that_is_not_taken_does_not_fail():
    x = ints(0, 5, None)
    assert run(when(col("x") != 0, 10 / col("x")).otherwise(-1.0), x=x) == [-1.0, 2.0, -1.0]
    assert run((col("x") != 0) & (10 // col("x") > 1), x=x) == [False, True, None]
    assert run((col("x") == 0) | (10 // col("x") > 1), x=x) == [True, True, None]
    assert run(dbsp.coalesce(col("x"), 1 // (col("x").fill_null(1) - 1)), x=ints(2, 1)) == [2, 1]
    nested = when(col("x") > 3, when(col("x") < 10, 100 // (col("x") - 3)).otherwise(0)).otherwise(7)
    assert run(nested, x=ints(3, 5, 11)) == [7, 50, 0]


@pytest.mark.parametrize(
    "expr",
    [
        1 / col("x"),
        1 // col("x"),
        1 % col("x"),
        1.0 / col("x"),
        col("x") + (2**63 - 1) + 1,
        when(col("x") == 0, 1 // col("x")).otherwise(0),
    ],
)
def test_a_row_that_fails_raises(expr):
    with pytest.raises(ROW_ERRORS):
        run(expr, x=ints(1, 0))


def test_a_constant_that_fails_does_so_only_where_there_are_rows():
    assert run(lit(1) // 0 + col("x"), x=ints()) == []
    with pytest.raises(ROW_ERRORS):
        run(lit(1) // 0 + col("x"), x=ints(1))


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1))
def test_floor_division_and_remainder_are_pythons(x, y):
    def ours(expr):
        try:
            return run(expr, x=ints(x), y=ints(y))[0]
        except ROW_ERRORS:
            return None

    def python(f):
        try:
            value = f()
        except ZeroDivisionError:
            return None
        return value if -(2**63) <= value < 2**63 else None

    assert ours(col("x") // col("y")) == python(lambda: x // y)
    assert ours(col("x") % col("y")) == python(lambda: x % y)


money = st.decimals(min_value=-(10**8), max_value=10**8, places=2, allow_nan=False)


@settings(max_examples=examples(80))
@given(money, money)
def test_decimals_are_exact(x, y):
    columns = {"x": (dbsp.decimal(12, 2), [x]), "y": (dbsp.decimal(12, 2), [y])}
    assert run(col("x") + col("y"), **columns) == [x + y]
    assert run(col("x") - col("y"), **columns) == [x - y]
    assert run(col("x") * col("y"), **columns) == [x * y]
    if y:
        with decimal.localcontext(prec=80):
            expected = (x / y).quantize(Decimal("0.000001"), rounding=decimal.ROUND_HALF_UP)
        assert run(col("x") / col("y"), **columns) == [expected]


def test_the_widest_decimals_add_and_multiply_or_fail():
    big = Decimal("9" * 36 + ".99")
    columns = {"x": (dbsp.decimal(38, 2), [big])}
    assert run(col("x") - col("x"), **columns) == [Decimal("0.00")]
    with pytest.raises(ROW_ERRORS):
        run(col("x") + col("x") * 0 + big, **columns)
    with pytest.raises(ROW_ERRORS):
        run(col("x") * col("x"), **columns)


@pytest.mark.parametrize("type_", [dbsp.FLOAT32, dbsp.FLOAT64])
def test_constants_beside_floats_are_told_like_them(type_):
    values, lists = [0.0, -0.0, 1.5, math.nan], [[0.0], [-0.0], [1.5], [math.nan]]
    for constant, equal in ((-0.0, [True, True, False, False]), (math.nan, [False, False, False, True])):
        assert run(col("x").is_in([constant, 7.0]), x=(type_, values)) == equal
        assert run(col("x") == constant, x=(type_, values)) == equal
        assert run(col("x").list_contains(constant), x=(dbsp.list_of(type_), lists)) == equal


def test_nan_equals_itself_and_is_greatest():
    f = (dbsp.FLOAT64, [math.nan, 1.0, math.inf, None])
    assert run(col("f") == lit(math.nan), f=f) == [True, False, False, None]
    assert run(col("f") > math.inf, f=f) == [True, False, False, None]
    assert run(col("f") <= col("f"), f=f) == [True, True, True, None]
    assert run(col("f").is_in([math.nan]), f=f) == [True, False, False, None]


CASTS = [
    (dbsp.STRING, ["12", "x", "", None, "99999999999"], dbsp.INT32, [12, None, None, None, None]),
    (dbsp.FLOAT64, [2.0, 2.5, math.nan, 1e20], dbsp.INT64, [2, None, None, None]),
    (dbsp.INT64, [1, 300, -1], dbsp.UINT8, [1, None, None]),
    (dbsp.INT64, [2**60 + 1], dbsp.FLOAT64, [float(2**60)]),
    (dbsp.INT64, [10, 12345], dbsp.decimal(4, 1), [Decimal("10.0"), None]),
    (dbsp.decimal(6, 2), [Decimal("1.20"), Decimal("1.25")], dbsp.decimal(4, 1), [Decimal("1.2"), None]),
    (dbsp.STRING, ["2013-01-05", "soon"], dbsp.DATE, [dt.date(2013, 1, 5), None]),
    (
        dbsp.STRING,
        ["10:30:00", "10:30:00.25", "25:00:00"],
        dbsp.TIME,
        [dt.time(10, 30), dt.time(10, 30, 0, 250000), None],
    ),
    (dbsp.TIMESTAMP, [dt.datetime(1969, 12, 31, 23, 0)], dbsp.DATE, [dt.date(1969, 12, 31)]),
    (dbsp.BOOL, [True, None], dbsp.INT8, [1, None]),
    (dbsp.FLOAT64, [-0.0, 1.5], dbsp.STRING, ["0.0", "1.5"]),
    (dbsp.BINARY, [b"a", b"\xff"], dbsp.STRING, ["a", None]),
]


@pytest.mark.parametrize(("source", "values", "target", "expected"), CASTS)
def test_casts(source, values, target, expected):
    assert run(col("x").cast(target, strict=False), x=(source, values)) == expected
    fits = [value for value, result in zip(values, expected, strict=True) if (value is None) == (result is None)]
    assert run(col("x").cast(target), x=(source, fits)) == [
        e for e, v in zip(expected, values, strict=True) if v in fits
    ]
    for value in values:
        if value not in fits:
            with pytest.raises(ROW_ERRORS):
                run(col("x").cast(target), x=(source, [value]))


def test_constants_take_the_type_beside_them():
    moments = (dbsp.TIMESTAMP_UTC, [dt.datetime(2013, 1, 1, 5, tzinfo=dt.UTC)])
    assert run(col("t") >= "2013-01-01T05:00:00+00:00", t=moments) == [True]
    assert run(col("t").hour() + lit(1), t=moments) == [6]
    assert run(col("t").truncate("month"), t=moments) == [dt.datetime(2013, 1, 1, tzinfo=dt.UTC)]
    assert run(col("u") == 2**64 - 1, u=(dbsp.UINT64, [2**64 - 1, 0])) == [True, False]
    assert run(col("i") + 1000, i=(dbsp.INT8, [1])) == [1001]
    assert run(col("d") > 1, d=(dbsp.decimal(4, 2), [Decimal("1.01")])) == [True]
    assert run(col("d") >= "2013-01-01", d=(dbsp.DATE, [dt.date(2013, 1, 1)])) == [True]
    assert run(when(col("i") > 0, 1).otherwise(2.5), i=(dbsp.INT8, [1, 0])) == [1.0, 2.5]
    assert run(when(col("i") > 0, None).otherwise("x"), i=(dbsp.INT8, [1, 0])) == [None, "x"]


def test_substitution_keeps_the_meaning():
    schema = Schema((Column("a", dbsp.INT64), Column("b", dbsp.INT64, nullable=False)))
    predicate = resolve(unwrap((col("x") > 3) & col("y").is_null()), Schema.of({"x": dbsp.INT64, "y": dbsp.INT64}))
    below = {"x": resolve(unwrap(col("a") + col("b")), schema), "y": ColumnRef("b")}
    pushed = predicate.substitute(below)
    assert str(pushed) == "(((a + b) > 3) & b.is_null())"
    assert pushed.columns() == {"a", "b"}
    assert [str(part) for part in conjuncts(pushed)] == ["((a + b) > 3)", "b.is_null()"]


def test_every_function_is_found_by_its_name_and_travels():
    for name, function in FUNCTIONS.items():
        assert function.name == name
        assert pickle.loads(pickle.dumps(function)) is function
    call = Call(FUNCTIONS["add"], (ColumnRef("x"), Literal(1, dbsp.INT64)))
    assert pickle.loads(pickle.dumps(call)) == call


def test_literals_are_equal_by_type_and_text():
    assert Literal(1, dbsp.INT64) != Literal(True, dbsp.BOOL)
    assert Literal(1) != Literal(True)
    assert Literal(0.0, dbsp.FLOAT64) == Literal(-0.0, dbsp.FLOAT64)
    assert Literal(math.nan, dbsp.FLOAT64) == pickle.loads(pickle.dumps(Literal(math.nan, dbsp.FLOAT64)))
    assert len({Literal(1), Literal(True), Literal(1.0)}) == 3


def test_rounding_goes_away_from_zero():
    assert run(col("f").round(), f=(dbsp.FLOAT64, [0.5, -0.5, 1.5, 2.4])) == [1.0, -1.0, 2.0, 2.0]
    assert run(col("d").round(1), d=(dbsp.decimal(6, 2), [Decimal("0.25"), Decimal("-0.25")])) == [
        Decimal("0.30"),
        Decimal("-0.30"),
    ]

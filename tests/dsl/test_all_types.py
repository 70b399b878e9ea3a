"""Comparing, choosing, testing for null and membership work for every column type, eagerly and by need."""

from __future__ import annotations

import datetime as dt
import math
import operator
from decimal import Decimal

import pyarrow as pa
import pytest

import dbsp
from dbsp import col
from dbsp.expr.methods.applied import unwrap
from dbsp.expr.resolving import resolve
from dbsp.zset.batch import Batch
from dbsp.zset.schema import SCALARS, Schema

SMALL_TO_LARGE = {
    dbsp.BOOL: [False, True],
    dbsp.FLOAT32: [-0.5, 0.0, 1.5, math.inf],
    dbsp.FLOAT64: [-0.5, 0.0, 1.5, math.inf],
    dbsp.STRING: ["", "a", "b"],
    dbsp.BINARY: [b"", b"\x00", b"\xff"],
    dbsp.DATE: [dt.date(1960, 1, 1), dt.date(2013, 1, 1)],
    dbsp.TIME: [dt.time(0, 0), dt.time(10, 30)],
    dbsp.TIMESTAMP: [dt.datetime(1960, 1, 1), dt.datetime(2013, 1, 1)],
    dbsp.TIMESTAMP_UTC: [dt.datetime(1960, 1, 1, tzinfo=dt.UTC), dt.datetime(2013, 1, 1, tzinfo=dt.UTC)],
    dbsp.DURATION: [dt.timedelta(-1), dt.timedelta(0), dt.timedelta(1)],
    dbsp.decimal(6, 2): [Decimal("-1.00"), Decimal("0.00"), Decimal("9.99")],
    **{type_: [0, 1, 100] for type_ in (dbsp.INT8, dbsp.INT16, dbsp.INT32, dbsp.INT64)},
    **{type_: [0, 1, 100] for type_ in (dbsp.UINT8, dbsp.UINT16, dbsp.UINT32, dbsp.UINT64)},
}
# A division that fails where z is zero: it forces evaluation by need.
FAILS = 1 // col("z")


def test_every_type_is_here():
    assert SMALL_TO_LARGE.keys() >= SCALARS


def run(expr, type_, left, right=None):
    schema = Schema.of({"x": type_, "y": type_, "z": dbsp.INT64})
    right = left if right is None else right
    zeros = [index % 2 for index in range(len(left))]
    batch = Batch.of(schema, [pa.array(left, type_), pa.array(right, type_), pa.array(zeros)])
    values = resolve(unwrap(expr), schema).evaluate(batch)
    assert values.type == resolve(unwrap(expr), schema).type(schema)
    return values.to_pylist()


@pytest.mark.parametrize("type_", SMALL_TO_LARGE, ids=str)
def test_comparisons(type_):
    values = SMALL_TO_LARGE[type_]
    pairs = [(x, y) for x in values for y in values]
    left, right = [x for x, _ in pairs], [y for _, y in pairs]
    for compare in (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge):
        assert run(compare(col("x"), col("y")), type_, left, right) == [compare(x, y) for x, y in pairs]
    assert run(col("x") == col("y"), type_, [values[0], None], [None, None]) == [None, None]


@pytest.mark.parametrize("type_", SMALL_TO_LARGE, ids=str)
def test_choices(type_):
    values = SMALL_TO_LARGE[type_]
    rows = [values[0], values[-1], None, values[1]]
    first = values[0]
    assert run(dbsp.coalesce(col("x"), first), type_, rows) == [values[0], values[-1], first, values[1]]
    assert run(col("x").is_null(), type_, rows) == [False, False, True, False]
    eager = dbsp.when(col("z") == 1, col("x")).otherwise(col("y"))
    assert run(eager, type_, rows, list(reversed(rows))) == [rows[3], rows[1], rows[1], rows[3]]
    lazy = dbsp.when((col("z") == 1) & (FAILS == 1), col("x")).otherwise(None)
    assert run(lazy, type_, rows) == [None, rows[1], None, rows[3]]
    by_need = dbsp.when(col("z") == 0, col("x")).when(FAILS == 1, col("y")).otherwise(first)
    assert run(by_need, type_, rows, list(reversed(rows))) == [rows[0], rows[2], rows[2], rows[0]]
    filled = dbsp.coalesce(col("x"), dbsp.when(FAILS == 1, dbsp.lit(first, type_)).otherwise(first))
    assert run(filled, type_, [values[1], None, values[1], None]) == [values[1], first, values[1], first]


@pytest.mark.parametrize("type_", SMALL_TO_LARGE, ids=str)
def test_membership(type_):
    values = SMALL_TO_LARGE[type_]
    assert run(col("x").is_in(values[:1]), type_, [*values, None]) == [True, *([False] * (len(values) - 1)), None]
    assert run(col("x").is_in([values[0], None]), type_, [*values, None]) == [True, *([None] * len(values))]
    assert run(col("x").is_in([]), type_, [values[0], None]) == [False, None]


@pytest.mark.parametrize("type_", SMALL_TO_LARGE, ids=str)
def test_constants_and_text(type_):
    value = SMALL_TO_LARGE[type_][1]
    assert run(dbsp.lit(value, type_), type_, [value, value]) == [value, value]
    assert run(dbsp.lit(None, type_), type_, [value]) == [None]
    assert len(run(col("x").cast(dbsp.STRING, strict=False), type_, [value, None])) == 2 or type_ == dbsp.DURATION

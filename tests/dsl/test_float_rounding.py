"""Floats rounded to places: DuckDB's values, to the bit, up to 22 places, of which powers of ten are floats."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest

import dbsp
from dbsp import col
from dbsp.circuit.fingerprint import node_tokens
from dbsp.expr.float_round import rounded_floats
from tests import duck

CHANCE = np.random.default_rng(9)
VALUES = np.concatenate([
    CHANCE.integers(0, 10_000_000, 3000) / 1000, CHANCE.integers(0, 1_000_000, 3000) / 10_000,
    CHANCE.integers(-9999, 9999, 500) / 8,
    CHANCE.random(500) * 10.0 ** CHANCE.integers(-300, 300, 500), CHANCE.integers(0, 1000, 500) * 5.0,
    np.nextafter(CHANCE.integers(0, 1000, 500) * 5.0, 0),
    [2.675, 4.425, 1.005, 0.285, -2.675, 24.999999999999996, 4503599627370495.5, 1e22, 1.7e308, 5e-324],
    [math.inf, -math.inf, math.nan],
])  # fmt: skip


@pytest.mark.parametrize("digits", [1, 2, 3, 4, 7, 15, 20, 22, 400, -1, -2, -5, -300, -400])
@pytest.mark.parametrize("type_", [dbsp.FLOAT64, dbsp.FLOAT32])
def test_places_are_duckdbs(digits: int, type_: pa.DataType) -> None:
    values = pa.array(VALUES).cast(type_)
    with duck.connect() as connection:
        connection.register("t", pa.table({"x": values}))
        wanted = connection.sql(f"select round(x, {digits}) as r from t").to_arrow_table()["r"].combine_chunks()
    made = rounded_floats(values, digits)
    assert made.type == wanted.type == type_
    np.testing.assert_array_equal(np.asarray(made), np.asarray(wanted))


def test_a_half_is_told_by_the_value() -> None:
    t = dbsp.table("t", {"x": dbsp.FLOAT64})
    view = t.select(two=col("x").round(2), ten=round(col("x"), -1), none=col("x").round())
    with dbsp.open(dbsp.circuit("c", {"v": view})) as run:
        run.push("t", [{"x": 2.675}, {"x": 0.125}, {"x": -15.0}, {"x": 1e308}, {"x": None}])
        assert {row for row, _ in run.step()["v"].to_rows()} == {
            (2.67, 0.0, 3.0), (0.13, 0.0, 0.0), (-15.0, -20.0, -15.0), (1e308, 1e308, 1e308), (None, None, None)
        }  # fmt: skip
        assert not run.dead_letters()


def test_the_rule_is_part_of_the_fingerprint() -> None:
    """State of values rounded by another rule is that of another circuit."""
    t = dbsp.table("t", {"x": dbsp.FLOAT64, "i": dbsp.INT64, "d": dbsp.decimal(9, 3)})

    def said(value: dbsp.Expr) -> str:
        return str(node_tokens(dbsp.circuit("c", {"v": t.select(v=value)})))

    assert "round_float" in said(col("x").round(2))
    assert not any("round_float" in said(value) for value in (col("x").round(), col("i").round(-1), col("d").round(2)))

"""Floats as texts: DuckDB's, of floats of 64 bits Python's too."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dbsp
from dbsp import col
from dbsp.circuit.fingerprint import node_tokens
from dbsp.expr.float_text import text_of_floats
from tests import duck
from tests.pace import examples

F64 = npt.NDArray[np.float64]
EDGES = [
    *(base * 10.0**power for base in (1, 9.999999999999999, 1.25, -3) for power in range(-12, 24)),
    *(float(np.nextafter(10.0**power, side)) for power in (-5, -4, 10, 13, 15, 16) for side in (-1.0, 1e30)),
    *(2.0**power + part for power in (49, 50, 51, 52, 53) for part in (0, 0.125, 0.25, 0.5, 1, 2)),
    *(0.0, 5e-324, 1.7976931348623157e308, math.inf, -math.inf, math.nan),
]  # fmt: skip


def told_by_duckdb(values: npt.NDArray[np.floating[np.float64]] | F64) -> list[str]:
    with duck.connect() as connection:
        connection.register("t", pa.table({"x": values}))
        texts: list[str] = connection.sql("select x::varchar as s from t").to_arrow_table()["s"].to_pylist()
        return texts


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.one_of(st.floats(), st.sampled_from(EDGES)), max_size=20))
def test_a_text_is_pythons(drawn: list[float]) -> None:
    """Those of all bits; a negative zero is zero."""
    assert text_of_floats(pa.array(drawn, pa.float64())).to_pylist() == [repr(value + 0.0) for value in drawn]


def test_a_text_is_duckdbs() -> None:
    chance = np.random.default_rng(7)
    scaled = chance.random(5000) * 10.0 ** chance.integers(-9, 20, 5000)
    some = np.concatenate([EDGES, scaled, np.round(scaled, 2), np.trunc(scaled)])
    assert text_of_floats(pa.array(some)).to_pylist() == told_by_duckdb(some)


def test_a_real_has_its_own_digits_and_is_read_back() -> None:
    """DuckDB writes more than are needed of some that lie in the middle between two texts."""
    chance = np.random.default_rng(8)
    some = (chance.random(5000) * 10.0 ** chance.integers(-9, 20, 5000)).astype(np.float32)
    some = np.concatenate(
        [some, np.array([0.1, 4.425, 3, 1e-4, 1e15, 1e16, 16777216, math.nan, -math.inf], np.float32)]
    )
    texts = text_of_floats(pa.array(some)).to_pylist()
    others = [(mine, its) for mine, its in zip(texts, told_by_duckdb(some), strict=True) if mine != its]
    assert len(others) < len(some) / 50
    assert all(len(mine) <= len(its) and np.float32(mine) == np.float32(its) for mine, its in others)
    assert texts[-9:-2] == ["0.1", "4.425", "3.0", "0.0001", "1000000000000000.0", "1e+16", "16777216.0"]


@pytest.mark.parametrize("type_", [dbsp.FLOAT64, dbsp.FLOAT32])
def test_nulls_and_nothing(type_: pa.DataType) -> None:
    assert text_of_floats(pa.array([None, 1.5, 2e12, None, 1e-7], type_)).to_pylist() == [
        None, "1.5", "2000000000000.0", None, "1e-07"
    ]  # fmt: skip
    assert text_of_floats(pa.array([], type_)).to_pylist() == []


def test_the_cast_is_this_text_and_says_so_in_the_fingerprint() -> None:
    """State with texts in another form is that of another circuit."""
    t = dbsp.table("t", {"x": dbsp.FLOAT64})
    view = t.select(s=col("x").cast(dbsp.STRING), c=dbsp.concat_ws("", "a", dbsp.lit(1e15).cast(dbsp.STRING)))
    assert "x.cast(" in dbsp.circuit("c", {"v": view}).explain()
    with dbsp.open(dbsp.circuit("c", {"v": view})) as run:
        run.push("t", [{"x": 3.0}, {"x": -0.0}, {"x": None}])
        assert {row for row, _ in run.step()["v"].to_rows()} == {
            ("3.0", "a1000000000000000.0"), ("0.0", "a1000000000000000.0"), (None, "a1000000000000000.0")
        }  # fmt: skip
    assert "float_text" in str(node_tokens(dbsp.circuit("c", {"v": view})))

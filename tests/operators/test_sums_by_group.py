"""Sums of rows of few keys: what is added up by group is what rows of sums add up to."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import dbsp
from dbsp.errors import CapacityError
from dbsp.operators.groups import distinct_form as distinct_module
from dbsp.operators.groups.distinct_form import DistinctForm
from dbsp.operators.groups.linear_form import LinearForm
from dbsp.operators.groups.measures import Bits, Limbs, Squares, Trues, Valid
from dbsp.operators.groups.row_form import RowForm
from dbsp.zset.batch import Batch, arrange
from dbsp.zset.hashing import narrow_hash
from dbsp.zset.kernels.groups import PROBED_ROWS, ROWS_MIN

SCHEMA = dbsp.Schema.of({"k": dbsp.STRING, "x": dbsp.INT64, "y": dbsp.INT64, "m": dbsp.decimal(30, 2), "b": dbsp.BOOL})
MEASURES = (Valid("x"), Limbs("x", 2), Limbs("y", 2), Limbs("m", 4), Squares("y", 4), Trues("b"), Bits("y", 64))
FORM = LinearForm(keys=SCHEMA.select(("k",)), measures=MEASURES)


def made(rows: int, most: int, keys: int) -> Batch:
    """Rows of a few keys with nulls and extremes, with weights of either sign up to `most`."""
    random = np.random.default_rng(rows)
    values = random.choice(np.array([0, 1, -1, 2**63 - 1, -(2**63), 12345678901]), rows)
    nulls = random.random(rows) < 0.1
    columns = (
        pa.array([f"key {key}" for key in random.integers(0, keys, rows)]),
        pa.array(values, mask=nulls),
        pa.array(values[::-1].copy()),
        pa.array(random.integers(-(10**9), 10**9, rows)).cast(pa.decimal128(30, 2)),
        pa.array(random.random(rows) < 0.5, mask=nulls),
    )
    return Batch.of(SCHEMA, columns, random.integers(-most, most + 1, rows))


def by_rows(batch: Batch) -> Batch:
    """A row of sums for each row, arranged."""
    slots = np.column_stack([batch.weight, *(slot for measure in MEASURES for slot in measure.of(batch))])
    return arrange(Batch(schema=FORM.keys, columns=batch.columns[:1], weights=slots), FORM.arrangement())


@pytest.mark.parametrize("most", [1, 1 << 15])
@pytest.mark.parametrize("rows", [ROWS_MIN - 1, ROWS_MIN, 5000])
def test_what_is_added_up_by_group(rows: int, most: int) -> None:
    batch = made(rows, most, 20)
    ours = FORM.of(batch)
    assert (ours.arrangement is not None) == (rows >= ROWS_MIN)
    assert arrange(ours, FORM.arrangement()).to_rows() == by_rows(batch).to_rows()


def test_a_sum_that_leaves_64_bits_on_the_way_is_made_of_rows() -> None:
    """Its terms may bring it back."""
    batch = made(ROWS_MIN, 1, 1)
    weights = np.ones((ROWS_MIN, 1), np.int64)
    weights[:4, 0] = 2**62, 2**62, -(2**62), -(2**62)
    form = LinearForm(keys=FORM.keys, measures=())
    ours = form.of(Batch(schema=batch.schema, columns=batch.columns, weights=weights))
    assert ours.arrangement is None
    assert arrange(ours, form.arrangement()).weights.tolist() == [[ROWS_MIN - 4]]


def test_keys_that_share_a_hash_are_apart() -> None:
    batch = made(5000, 3, 20)
    with narrow_hash(2):
        ours = FORM.of(batch)
        assert ours.arrangement is None
        assert arrange(ours, FORM.arrangement()).to_rows() == by_rows(batch).to_rows()


@pytest.mark.parametrize("filters", [("b",), (None, "b"), ("b", None, "late", "b")])
@pytest.mark.parametrize("most", [1, 1 << 40, 1 << 61])
def test_values_that_repeat_are_added_up_under_each_filter(
    filters: tuple[str | None, ...], most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if each row were sorted by itself: nulls, rows that no filter lets through, and sums that leave 64 bits on the way."""
    batch = made(3 * PROBED_ROWS, most, 5)
    late = pa.array(np.arange(len(batch)) > len(batch) // 2)
    schema = dbsp.Schema((*SCHEMA.columns, dbsp.Column("late", dbsp.BOOL)))
    batch = Batch(schema=schema, columns=(*batch.columns, late), weights=batch.weights)
    values = RowForm(keys=SCHEMA.select(("k",)), columns=(SCHEMA["x"],), present=("x",))
    form = DistinctForm(values=values, filters=filters)
    ours = form.of(batch)
    assert (ours.arrangement is not None) == (most < 1 << 61)
    monkeypatch.setattr(distinct_module, "few_rows", lambda *_: None)
    by_rows = form.of(batch)
    assert by_rows.arrangement is None
    assert rows_or_refusal(ours, form) == rows_or_refusal(by_rows, form)


def rows_or_refusal(batch: Batch, form: DistinctForm) -> object:
    """The rows, arranged; None where a sum does not fit."""
    try:
        return arrange(batch, form.arrangement()).to_rows()
    except CapacityError:
        return None

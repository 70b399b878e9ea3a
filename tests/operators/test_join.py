from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dbsp
from dbsp.errors import CapacityError
from dbsp.operators.joins.join import JoinOperator
from dbsp.operators.joins.products import product
from tests.operators.driver import Driver, Rows, batch, total
from tests.operators.histories import hashed, hashes, histories, keys, numbers, quick

LEFT = dbsp.Schema.of({"k": dbsp.STRING, "x": dbsp.INT64})
RIGHT = dbsp.Schema.of({"l": dbsp.STRING, "y": dbsp.INT64})
OUT = dbsp.Schema.of({"k": dbsp.STRING, "x": dbsp.INT64, "y": dbsp.INT64})
JOIN = JoinOperator(
    left=LEFT, right=RIGHT, left_on=("k",), right_on=("l",), schema=OUT,
    columns=((0, "k", "k"), (0, "x", "x"), (1, "y", "y")),
)  # fmt: skip
rows = st.tuples(keys, numbers)


def pairs_of(left: Rows, right: Rows) -> Rows:
    return total(
        ((k, x, y), a * b) for (k, x), a in left.items() for (key, y), b in right.items() if k is not None and k == key
    )


@quick
@given(histories(rows), histories(rows), hashes)
def test_join_is_the_join_of_what_is_there(left: list[Any], right: list[Any], bits: int | None) -> None:
    with hashed(bits):
        driver = Driver(JOIN)
        for at in range(max(len(left), len(right))):
            driver.step(
                batch(LEFT, left[at] if at < len(left) else []), batch(RIGHT, right[at] if at < len(right) else [])
            )
            here = [total(pair for step in side[: at + 1] for pair in step) for side in (left, right)]
            assert driver.answer == pairs_of(*here)


def test_null_keys_are_not_kept() -> None:
    driver = Driver(JOIN)
    driver.step(batch(LEFT, [((None, 1), 1), (("a", 1), 1)]), batch(RIGHT, [((None, 2), 1)]))
    assert driver.answer == {}
    assert driver.stored(0) == {("a", 1): 1}
    assert driver.stored(1) == {}


def test_weights_multiply_and_an_overflow_is_an_error() -> None:
    driver = Driver(JOIN)
    driver.step(batch(LEFT, [(("a", 1), 3)]), batch(RIGHT, [(("a", 2), -5)]))
    assert driver.answer == {("a", 1, 2): -15}
    with pytest.raises(CapacityError, match="weight overflow"):
        Driver(JOIN).step(batch(LEFT, [(("a", 1), 2**40)]), batch(RIGHT, [(("a", 2), 2**40)]))


def test_products_near_the_limit_are_exact() -> None:
    most = np.iinfo(np.int64).max
    assert product(np.array([most, 1]), np.array([1, most])).tolist() == [most, most]
    assert product(np.array([-(2**62)]), np.array([2])).tolist() == [-(2**63)]
    with pytest.raises(CapacityError):
        product(np.array([2**62]), np.array([2]))

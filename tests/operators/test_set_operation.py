from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import dbsp
from dbsp.operators.set_operation import SetOperation
from tests.operators.driver import Driver, batch, total
from tests.operators.histories import floats, hashed, hashes, histories, keys, quick

SCHEMA = dbsp.Schema.of({"k": dbsp.STRING, "f": dbsp.FLOAT64})
DISTINCT = SetOperation(kind="distinct", schema=SCHEMA)
DIFFERENCE = SetOperation(kind="difference", schema=SCHEMA)
rows = st.tuples(keys, floats)


@quick
@given(histories(rows), hashes)
def test_distinct_holds_every_row_of_positive_weight_once(history: list[Any], bits: int | None) -> None:
    with hashed(bits):
        driver = Driver(DISTINCT)
        for at, step in enumerate(history):
            driver.step(batch(SCHEMA, step))
            here = total(pair for step in history[: at + 1] for pair in step)
            assert driver.answer == {row: 1 for row, weight in here.items() if weight > 0}


@quick
@given(histories(rows), histories(rows), hashes)
def test_difference_is_except(left: list[Any], right: list[Any], bits: int | None) -> None:
    with hashed(bits):
        driver = Driver(DIFFERENCE)
        for at in range(max(len(left), len(right))):
            driver.step(
                batch(SCHEMA, left[at] if at < len(left) else []), batch(SCHEMA, right[at] if at < len(right) else [])
            )
            a, b = (total(pair for step in side[: at + 1] for pair in step) for side in (left, right))
            assert driver.answer == {row: 1 for row, weight in a.items() if weight > 0 and b[row] <= 0}


def test_nothing_is_kept_of_what_is_gone() -> None:
    driver = Driver(DISTINCT)
    driver.step(batch(SCHEMA, [(("a", -0.0), 1), (("a", 0.0), 1), (("b", None), 1)]))
    assert driver.answer == {("a", 0.0): 1, ("b", None): 1}
    driver.step(batch(SCHEMA, [(("a", 0.0), -2), (("b", None), -1)]))
    assert driver.answer == {}
    assert driver.stored(0) == {}

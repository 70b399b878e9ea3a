from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import dbsp
from dbsp.expr.build import unwrap
from dbsp.expr.expression import resolve
from dbsp.expr.functions import UserFunction
from dbsp.operators.apply import Apply, Keep, Project
from dbsp.operators.map_rows import MapRows
from dbsp.operators.union import Union
from tests.operators.driver import Driver, batch, total
from tests.operators.histories import quick

SCHEMA = dbsp.Schema.of({"a": dbsp.INT64, "b": dbsp.INT64})
OUT = dbsp.Schema.of({"q": dbsp.INT64, "b": dbsp.INT64})


def expression(expr: Any) -> Any:
    return resolve(unwrap(expr), SCHEMA)


DIVIDE = Apply(
    stages=(
        Keep(predicate=expression(dbsp.col("b") < 100), schema=SCHEMA),
        Project(
            columns=(("q", expression(dbsp.col("a") // dbsp.col("b"))), ("b", expression(dbsp.col("b")))), schema=OUT
        ),
        Keep(predicate=resolve(unwrap(dbsp.col("q") != 3), OUT), schema=OUT),
    ),
    schema=OUT,
)
values = st.sampled_from([None, 0, 1, 2, 7, 200])
pairs = st.lists(st.tuples(st.tuples(values, values), st.sampled_from([1, -1, 3])), max_size=20)


@quick
@given(pairs)
def test_a_chain_is_its_stages_row_by_row_and_failed_rows_leave(rows: list[Any]) -> None:
    driver = Driver(DIVIDE)
    driver.step(batch(SCHEMA, rows))
    kept = [((a, b), w) for (a, b), w in rows if b is not None and b < 100]
    failed = [((a, b), w) for (a, b), w in kept if a is not None and b == 0]
    fine = [((None if a is None else a // b, b), w) for (a, b), w in kept if not (a is not None and b == 0)]
    assert driver.answer == total((row, w) for row, w in fine if row[0] is not None and row[0] != 3)
    assert [(json.loads(text), w) for text, _, w in driver.dead] == [({"a": a, "b": b}, w) for (a, b), w in failed]
    assert all("divi" in reason for _, reason, _ in driver.dead)


@quick
@given(pairs)
def test_policy_null_makes_the_value_null(rows: list[Any]) -> None:
    divide = Apply(stages=DIVIDE.stages[1:2], schema=OUT)
    driver = Driver(divide, policy="null")
    driver.step(batch(SCHEMA, rows))
    assert driver.answer == total(((None if a is None or not b else a // b, b), w) for (a, b), w in rows)
    assert driver.dead == []


def test_a_failing_retraction_takes_its_insertion_along() -> None:
    driver = Driver(DIVIDE)
    driver.step(batch(SCHEMA, [((1, 0), 1), ((4, 2), 1)]))
    driver.step(batch(SCHEMA, [((1, 0), -1)]))
    assert driver.answer == {(2, 2): 1}
    assert [weight for _, _, weight in driver.dead] == [1, -1]


def twice(row: dict[str, Any]) -> list[dict[str, Any]]:
    if row["a"] == 7:
        raise ValueError("seven")
    return [{"q": row["a"], "b": row["b"]}] * 2


@quick
@given(pairs)
def test_flat_map_keeps_weights_and_drops_failed_rows(rows: list[Any]) -> None:
    driver = Driver(MapRows(function=UserFunction.of(twice, OUT, "flat")))
    driver.step(batch(SCHEMA, rows))
    assert driver.answer == total((row, 2 * w) for row, w in rows if row[0] != 7)
    sevens = total((row, w) for row, w in rows if row[0] == 7)
    assert {(json.loads(text)["b"], w) for text, _, w in driver.dead} == {(row[1], w) for row, w in sevens.items()}
    assert all("seven" in reason for _, reason, _ in driver.dead)


def test_union_adds() -> None:
    driver = Driver(Union(schema=SCHEMA))
    driver.step(batch(SCHEMA, [((1, 1), 1)]), batch(SCHEMA, [((1, 1), -1), ((2, None), 3)]))
    assert driver.answer == {(2, None): 3}

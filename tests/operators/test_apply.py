from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import dbsp
from dbsp.expr.functions import UserFunction
from dbsp.expr.methods.applied import unwrap
from dbsp.expr.resolving import resolve
from dbsp.operators.apply import Apply, Keep, Project, Stage
from dbsp.operators.map_rows import MapRowsOperator
from dbsp.operators.operator import StepContext
from dbsp.operators.union import UnionOperator
from dbsp.zset.batch import Batch
from dbsp.zset.coded import is_coded
from tests.operators.driver import Driver, NodeState, batch, total
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
    driver = Driver(MapRowsOperator(function=UserFunction.of(twice, OUT, "flat")))
    driver.step(batch(SCHEMA, rows))
    assert driver.answer == total((row, 2 * w) for row, w in rows if row[0] != 7)
    sevens = total((row, w) for row, w in rows if row[0] == 7)
    assert {(json.loads(text)["b"], w) for text, _, w in driver.dead} == {(row[1], w) for row, w in sevens.items()}
    assert all("seven" in reason for _, reason, _ in driver.dead)


def test_union_adds() -> None:
    driver = Driver(UnionOperator(schema=SCHEMA))
    driver.step(batch(SCHEMA, [((1, 1), 1)]), batch(SCHEMA, [((1, 1), -1), ((2, None), 3)]))
    assert driver.answer == {(2, None): 3}


MOMENTS = dbsp.Schema.of({"t": dbsp.TIMESTAMP, "n": dbsp.INT64})
TEXTS = dbsp.Schema.of({"text": dbsp.STRING, "n": dbsp.INT64})
moments = st.sampled_from([None, *(dt.datetime(2024, 2, day, hour) for day in (1, 2) for hour in (0, 23))])


@quick
@given(
    st.lists(st.tuples(moments, st.integers(-1, 3)), max_size=20),
    st.sampled_from(["%Y-%m-%d", "%m", "%H:%M", "%Y-%m-%d %H:%M:%S"]),
)
def test_texts_of_times_are_held_as_codes(rows: list[tuple[dt.datetime | None, int]], shown: str) -> None:
    """Each text once, whatever moments share it; right behind a filter, behind rows that failed, and in another stage."""
    text = resolve(unwrap(dbsp.col("t").strftime(shown)), MOMENTS)
    failing = resolve(unwrap(dbsp.lit(6) // dbsp.col("n")), MOMENTS)
    project = Project(columns=(("text", text), ("n", failing)), schema=TEXTS)
    positive = Keep(predicate=resolve(unwrap(dbsp.col("n") >= 0), MOMENTS), schema=MOMENTS)
    longer = resolve(unwrap(dbsp.col("text") + "!"), TEXTS)
    again = Project(columns=(("text", longer), ("n", resolve(unwrap(dbsp.col("n")), TEXTS))), schema=TEXTS)
    rows_in = batch(MOMENTS, [(row, 1) for row in rows])
    wanted = [(None if t is None else t.strftime(shown), 6 // n) for t, n in rows if n > 0]
    made = applied(rows_in, positive, project)
    assert by_text(made.to_rows()) == by_text((row, 1) for row in wanted)
    held = made.held_column("text")
    assert is_coded(held) or not wanted
    if wanted:
        assert held.dictionary.value_counts().field("counts").to_pylist() == [1] * len(held.dictionary)
    after = applied(rows_in, positive, project, again).column("text").to_pylist()
    assert by_text(after) == by_text(None if text is None else text + "!" for text, _ in wanted)


def applied(rows: Batch, *stages: Stage) -> Batch:
    """What a chain makes of rows, whose failures leave."""
    context = StepContext(number=0, error_policy="dead-letter")
    return Apply(stages=stages, schema=TEXTS).step(context, NodeState(None, ()), (rows,))


def by_text(rows: Iterable[Any]) -> list[Any]:
    """In some order."""
    return sorted(rows, key=repr)

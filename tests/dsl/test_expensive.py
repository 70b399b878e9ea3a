"""An expensive value is computed for the rows alone that need it, and the answers are those of every row by itself."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dbsp
from dbsp import Expr, col, when
from dbsp.expr.conditional import CASE
from dbsp.expr.expression import Call, ColumnRef, Function
from dbsp.expr.logic import AND, IS_NOT_NULL, OR, SPARED_ROWS_MIN
from dbsp.expr.methods.applied import unwrap
from dbsp.expr.resolving import resolve
from dbsp.zset.batch import Batch
from dbsp.zset.schema import Schema
from tests.pace import examples

SCHEMA = Schema.of({"n": dbsp.INT64, "s": dbsp.STRING})
SMALL = SPARED_ROWS_MIN // 2
ROWS = 4 * SMALL
HOST = col("s").regexp_extract("//([a-z]+)", 1)
CHOICES: dict[str, Expr] = {
    "otherwise": when(col("n") == 0, "none").when(col("n") == 1, col("s")).otherwise(HOST),
    "first": when(col("n") > 1, HOST).when(col("n") == 1, "one").otherwise(None),
    "both": when(col("n") < 2, HOST).otherwise(col("s").regexp_replace("[a-z]", "x")),
    "in a condition, too": when(col("s").regexp_match("b"), HOST).otherwise("no b"),
    "deep inside": when(col("n") == 0, 0).otherwise(col("s").regexp_count("[a-z]").fill_null(-1) + col("n")),
    "within another": when(col("n") == 0, "a").otherwise(when(col("n") == 1, "b").otherwise(HOST)),
    "fails elsewhere": when(col("n") == 0, 0).otherwise(col("s").regexp_count("[a-z]") // col("n")),
    "and": (col("n") == 1) & (col("s").regexp_count("b") > 0),
    "or": (col("n") == 1) | (col("s").regexp_count("[a-z]") > 3),
    "and, or": (col("n") > 0) & ((col("s").regexp_count("B") > 0) | (HOST == "ab")) | (col("n") == 0),
    "and fails elsewhere": (col("n") > 0) & (col("s").regexp_count("[a-z]") // col("n") > 0),
    "a condition fails elsewhere": when(col("n") == 0, "zero").when(6 // col("n") == 2, HOST).otherwise("other"),
}  # fmt: skip


def rows(numbers: list[int | None], texts: list[str | None]) -> Batch:
    """`ROWS` rows that take turns with these."""
    columns = (numbers, dbsp.INT64), (texts, dbsp.STRING)
    return Batch.of(SCHEMA, [pa.array((values * ROWS)[:ROWS], type_) for values, type_ in columns])


@pytest.mark.parametrize("choice", CHOICES)
@settings(max_examples=examples(30))
@given(
    numbers=st.lists(st.none() | st.integers(0, 4), min_size=1, max_size=9),
    texts=st.lists(st.sampled_from([None, "", "http://ab/c", "x//bé", "//B//b"]), min_size=1, max_size=7),
)
def test_the_same_as_in_small_batches(choice: str, numbers: list[int | None], texts: list[str | None]) -> None:
    """Small batches compute all of their rows, as far as nothing fails."""
    expression, batch = resolve(unwrap(CHOICES[choice]), SCHEMA), rows(numbers, texts)
    small = [expression.evaluate(batch.slice(at, at + SMALL)) for at in range(0, ROWS, SMALL)]
    found = expression.evaluate(batch)
    assert found.type == expression.type(SCHEMA)
    assert found.equals(pa.concat_arrays(small))


@pytest.mark.parametrize(
    ("expensive", "taken", "computed"),
    [(True, 0, 0), (True, 10, 10), (True, ROWS, ROWS), (True, ROWS - 1, ROWS), (False, 10, ROWS)],
)
def test_how_many_rows_are_computed(expensive: bool, taken: int, computed: int) -> None:
    """Those that take it, unless nearly all do; all rows of what costs little."""
    seen: list[int] = []

    def counted(values: pa.Array) -> pa.Array:
        seen.append(len(values))
        return values

    function = Function(
        name="counted",
        fit=lambda operands: operands.args,
        result=lambda type_: type_,
        compute=counted,
        expensive=expensive,
    )
    numbers = pa.array([int(row < taken) for row in range(ROWS)], dbsp.INT64)
    batch = Batch.of(SCHEMA, [numbers, pa.array(["x"] * ROWS)])
    one, other = (resolve(unwrap(condition), SCHEMA) for condition in (col("n") == 1, col("n") == 0))
    text = Call(function, (ColumnRef("s"),))
    condition = Call(IS_NOT_NULL, (text,))
    calls = {
        "value": Call(CASE, (one, text, ColumnRef("s"))),
        "otherwise": Call(CASE, (other, ColumnRef("s"), text)),
        "and": Call(AND, (one, condition)),
        "or": Call(OR, (other, condition)),
    }
    for name, call in calls.items():
        seen.clear()
        call.evaluate(batch)
        assert seen == [computed], name

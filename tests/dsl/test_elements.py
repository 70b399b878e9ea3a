"""Functions over the elements of lists: equal bodies are equal expressions, bodies travel, and mistakes are named."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import pytest

import dbsp
from dbsp import col
from dbsp.errors import CircuitError
from dbsp.expr.methods.applied import unwrap

LISTS = dbsp.table("t", {"l": dbsp.list_of(dbsp.INT64), "n": dbsp.INT64, "s": dbsp.STRING})
ARROW = (
    "select list_filter(l, x -> x > n) as f, list_transform(l, (x, i) -> list_transform(l, y -> y + x * i)) as m from t"
)


def test_a_body_is_known_by_its_text_and_survives_pickling() -> None:
    one, same = (unwrap(col("l").list_filter(lambda element: element > col("n"))) for _ in range(2))
    other, renamed = unwrap(col("l").list_filter(lambda x: x >= col("n"))), one.substitute({"n": unwrap(col("m"))})
    assert one == same == pickle.loads(pickle.dumps(one))
    assert one not in (other, renamed)
    assert renamed == unwrap(col("l").list_filter(lambda x: x > col("m")))
    assert renamed.columns() == {"l", "m"}
    assert str(one) == "list_filter(l, n, lambda element, $0: (element > $0))"


def test_both_ways_to_write_a_lambda_make_one_circuit() -> None:
    new = ARROW.replace("(x, i) ->", "lambda x, i:").replace("x ->", "lambda x:").replace("y ->", "lambda y:")
    arrow, plain = (dbsp.circuit("v", {"v": dbsp.sql(text, t=LISTS)}) for text in (ARROW, new))
    assert arrow.fingerprint == plain.fingerprint


def test_a_column_that_only_a_body_reads_is_kept() -> None:
    """Pruning of columns sees through bodies: the filter between them and the table keeps `n`."""
    kept = LISTS.filter(col("s") == "a").select(l=col("l").list_filter(lambda x: x > col("n")))
    with dbsp.open(dbsp.circuit("v", {"v": kept}), workers=2) as run:
        run.push("t", [{"l": [1, 2, None], "n": 1, "s": "a"}, {"l": [5], "n": None, "s": "a"}])
        assert sorted(run.step()["v"].to_rows()) == [(([],), 1), (([2],), 1)]
        run.delete("t", [{"l": [1, 2, None], "n": 1, "s": "a"}])
        assert run.step()["v"].to_rows() == [(([2],), -1)]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: col("l").list_filter(3), "write .list_filter(lambda x: …), or lambda x, i: … with the position"),
        (lambda: col("l").list_transform(lambda a, b, c: a), "a function of one or two parameters is wanted"),
        (lambda: LISTS.select(y=col("l").list_filter(lambda x: x + 1)), "the function of list_filter is no condition"),
        (lambda: LISTS.select(y=col("n").list_transform(lambda x: x)), "it is for lists"),
        (lambda: LISTS.select(y=col("l").list_transform(lambda x: x + col("q"))), 'no such column: column="q"'),
        (lambda: LISTS.select(y=col("l").list_transform(lambda x: x and 1)), "an expression is not true or false, but a"),
        (lambda: dbsp.list_value(1, 2), "list_value of constants alone"),
        (lambda: LISTS.select(y=dbsp.list_value(col("n"), col("s"))), "list_value does not work on these types"),
        (lambda: dbsp.sql("select list_filter(n, lambda x: x > 1) from t", t=LISTS), "it is list_filter(list, lambda)"),
        (lambda: dbsp.sql("select list_filter(l, lambda x: x + 1) from t", t=LISTS), "not a condition: type=int64 text='x + 1'"),
        (lambda: dbsp.sql("select list_filter(l, n) from t", t=LISTS), "a lambda of one or two parameters is wanted"),
        (lambda: dbsp.sql("select list_transform(l, lambda x: sum(x)) from t", t=LISTS), "unnest the list in FROM"),
        (lambda: dbsp.sql("select [] as e from t", t=LISTS), "an empty list has no type here"),
    ],
)  # fmt: skip
def test_a_mistake_is_named(call: Callable[[], object], said: str) -> None:
    with pytest.raises(CircuitError) as caught:
        call()
    assert said in str(caught.value)

"""Joins beyond the inner one, driven alone, beside plain Python; hashes collide."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dbsp
from dbsp.expr.methods.applied import unwrap
from dbsp.expr.resolving import resolve
from dbsp.operators.joins.asof_join import AsofJoinOperator
from dbsp.operators.joins.conditional_join import ConditionalJoin, TimeInterval
from dbsp.operators.joins.join_shape import JoinShape
from dbsp.operators.joins.lookup_join import REASON, LookupJoinOperator
from dbsp.operators.joins.outer_join import OuterJoin
from dbsp.operators.joins.semi_join import SemiJoin
from dbsp.operators.operator import Operator
from tests.operators.driver import Driver, Rows, batch, total
from tests.operators.histories import History, hashed, hashes, histories, keys, proper, quick
from tests.pace import examples

LEFT = dbsp.Schema.of({"k": dbsp.STRING, "x": dbsp.INT64})
RIGHT = dbsp.Schema.of({"l": dbsp.STRING, "y": dbsp.INT64})
BOTH = dbsp.Schema.of({"k": dbsp.STRING, "x": dbsp.INT64, "y": dbsp.INT64})
PAIRS = ((0, "k", "k"), (0, "x", "x"), (1, "y", "y"))
LEAST, MOST = -(2**63), 2**63 - 1
rows = st.tuples(keys, st.sampled_from([None, LEAST, LEAST + 1, -2, 0, 1, 2, 3, MOST - 1, MOST]))


def shape(null_safe: bool = False, *, left_only: bool = False) -> JoinShape:
    schema = LEFT if left_only else BOTH
    columns = PAIRS[:2] if left_only else PAIRS
    return JoinShape(
        left=LEFT, right=RIGHT, left_on=("k",), right_on=("l",), columns=columns, schema=schema, null_safe=null_safe
    )


def expected(left: Rows, right: Rows, how: str, meets: Any, null_safe: bool = False) -> Rows:
    def pair(a: Any, b: Any) -> bool:
        return a[0] == b[0] and (null_safe or a[0] is not None) and meets(a[1], b[1])

    made = []
    for a, n in left.items():
        partners = [(b, m) for b, m in right.items() if pair(a, b)]
        if (how == "semi" and partners) or (how in ("left", "full", "anti") and not partners):
            made.append(((*a, None) if how not in ("semi", "anti") else a, n))
        if how not in ("semi", "anti"):
            made += [((*a, b[1]), n * m) for b, m in partners]
    if how in ("right", "full"):
        made += [((b[0], None, b[1]), m) for b, m in right.items() if not any(pair(a, b) for a in left)]
    return total(made)


def play(operator: Operator, left: History, right: History, bits: int | None, answer: Any) -> None:
    with hashed(bits):
        driver = Driver(operator)
        left, right = proper(left), proper(right)
        for at in range(max(len(left), len(right))):
            driver.step(
                batch(LEFT, left[at] if at < len(left) else []), batch(RIGHT, right[at] if at < len(right) else [])
            )
            here = [total(pair for step in side[: at + 1] for pair in step) for side in (left, right)]
            assert driver.answer == answer(*here)


HISTORY = histories(rows)


@quick
@given(HISTORY, HISTORY, hashes, st.sampled_from([(0,), (1,), (0, 1)]), st.booleans())
def test_outer_join(left: History, right: History, bits: int | None, kept: tuple[int, ...], safe: bool) -> None:
    how = {(0,): "left", (1,): "right"}.get(kept, "full")
    operator = OuterJoin(shape=shape(safe), preserved=kept)
    play(operator, left, right, bits, lambda a, b: expected(a, b, how, lambda x, y: True, safe))


@quick
@given(HISTORY, HISTORY, hashes, st.booleans(), st.booleans())
def test_semi_join(left: History, right: History, bits: int | None, anti: bool, safe: bool) -> None:
    operator = SemiJoin(shape=shape(safe, left_only=True), anti=anti)
    play(operator, left, right, bits, lambda a, b: expected(a, b, "anti" if anti else "semi", lambda x, y: True, safe))


HOWS = st.sampled_from(["inner", "left", "right", "full", "semi", "anti"])


@quick
@given(HISTORY, HISTORY, hashes, HOWS, st.booleans())
def test_conditional_join(left: History, right: History, bits: int | None, how: str, safe: bool) -> None:
    operator = ConditionalJoin(
        shape=shape(safe, left_only=how in ("semi", "anti")), how=how, reads=PAIRS,
        where=resolve(unwrap(dbsp.col("x") < dbsp.col("y")), BOTH),
    )  # fmt: skip
    less = lambda x, y: None not in (x, y) and x < y  # noqa: E731
    play(operator, left, right, bits, lambda a, b: expected(a, b, how, less, safe))


BOUND = st.one_of(st.none(), st.sampled_from([-(2**64), -3, -1, 0, 1, 2, 2**63, 2**64]))


@quick
@given(HISTORY, HISTORY, hashes, HOWS, BOUND, BOUND)
def test_interval_join(
    left: History, right: History, bits: int | None, how: str, lower: int | None, upper: int | None
) -> None:
    operator = ConditionalJoin(
        shape=shape(left_only=how in ("semi", "anti")), how=how,
        interval=TimeInterval(left="x", right="y", lower=lower, upper=upper),
    )  # fmt: skip

    def near(x: int | None, y: int | None) -> bool:
        if x is None or y is None:
            return False
        return (lower is None or y - x >= lower) and (upper is None or y - x <= upper)

    play(operator, left, right, bits, lambda a, b: expected(a, b, how, near))


FEW = st.tuples(st.sampled_from(["a", "a", "b", None]), st.sampled_from([None, LEAST, -2, 0, 1, 2, 3, 4, 5, MOST]))


@settings(quick, max_examples=examples(200))
@given(
    histories(FEW, 6),
    histories(FEW, 6),
    hashes,
    st.booleans(),
    st.booleans(),
    st.sampled_from([None, 0, 1, 3, 2**64]),
    st.booleans(),
)
def test_asof_join(
    left: History, right: History, bits: int | None, forward: bool, exact: bool, tolerance: int | None, outer: bool
) -> None:
    operator = AsofJoinOperator(
        shape=shape(), left_time="x", right_time="y", forward=forward, exact=exact, tolerance=tolerance, outer=outer
    )

    def answer(a: Rows, b: Rows) -> Rows:
        made = []
        for (k, x), n in a.items():
            sign = 1 if forward else -1
            ahead = [sign * (y - x) for key, y in b if key == k and None not in (k, x, y)]
            near = [d for d in ahead if (d > 0 or (exact and d == 0)) and (tolerance is None or d <= tolerance)]
            if near or outer:
                made.append(((k, x, x + sign * min(near) if near else None), n))
        return total(made)

    play(operator, left, right, bits, answer)


def test_asof_ties_are_broken_by_all_columns() -> None:
    right = dbsp.Schema.of({"l": dbsp.STRING, "y": dbsp.INT64, "z": dbsp.STRING})
    out = dbsp.Schema.of({"x": dbsp.INT64, "z": dbsp.STRING})
    tied = JoinShape(
        left=LEFT, right=right, left_on=("k",), right_on=("l",), columns=((0, "x", "x"), (1, "z", "z")), schema=out
    )
    driver = Driver(
        AsofJoinOperator(
            shape=tied, left_time="x", right_time="y", forward=False, exact=True, tolerance=None, outer=True
        )
    )
    quotes = [(("a", 1, "q"), 1), (("a", 1, "p"), 2), (("a", 1, None), 1)]
    driver.step(batch(LEFT, [(("a", 5), 2)]), batch(right, quotes))
    assert driver.answer == {(5, "p"): 2}
    assert driver.step(batch(LEFT, []), batch(right, [(("a", 1, "p"), -1)])) == {}
    driver.step(batch(LEFT, []), batch(right, [(("a", 1, "p"), -1)]))
    assert driver.answer == {(5, "q"): 2}


@pytest.mark.parametrize("outer", [False, True])
def test_lookup_join_takes_what_is_there(outer: bool) -> None:
    driver = Driver(LookupJoinOperator(shape=shape(), outer=outer))
    driver.step(batch(LEFT, [(("a", 1), 1), ((None, 2), 1)]), batch(RIGHT, [(("a", 7), 1), (("b", 8), 1)]))
    nothing = {(None, 2, None): 1} if outer else {}
    assert driver.answer == {("a", 1, 7): 1} | nothing
    assert driver.step(batch(LEFT, []), batch(RIGHT, [(("a", 7), -1)])) == {}
    driver.step(batch(LEFT, [(("a", 3), 1), (("a", 4), 1), (("a", 4), -1), (("a", 1), -1)]), batch(RIGHT, []))
    assert driver.answer == {("a", 1, 7): 1} | nothing | ({("a", 3, None): 1} if outer else {})
    assert driver.dead == [('{"k": "a", "x": 1}', REASON, -1)]


def failing(how: str) -> ConditionalJoin:
    where = resolve(unwrap(dbsp.col("x") // dbsp.col("y") > 0), BOTH)
    return ConditionalJoin(shape=shape(left_only=how == "semi"), how=how, reads=PAIRS, where=where)


def test_a_pair_on_which_the_condition_fails_is_no_pair_and_is_noted_as_it_comes_and_goes() -> None:
    driver = Driver(failing("left"))
    driver.step(batch(LEFT, [(("a", 4), 2)]), batch(RIGHT, [(("a", 0), 1), (("a", 2), 1)]))
    assert driver.answer == {("a", 4, 2): 2}
    driver.step(batch(LEFT, []), batch(RIGHT, [(("a", 2), -1)]))
    assert driver.answer == {("a", 4, None): 2}
    driver.step(batch(LEFT, []), batch(RIGHT, [(("a", 0), -1)]))
    assert driver.answer == {("a", 4, None): 2}
    payload = '{"k": "a", "x": 4, "y": 0}'
    assert [(content, weight) for content, _, weight in driver.dead] == [(payload, 2), (payload, -2)]


def test_what_fails_does_not_depend_on_how_rows_are_stored() -> None:
    """A row that came, went and came again is in several runs, and is noted once."""
    driver = Driver(failing("left"))
    for weight in (1, -1, 1):
        driver.step(batch(LEFT, []), batch(RIGHT, [(("a", 0), weight), (("b", weight), weight)]))
    driver.step(batch(LEFT, [(("a", 4), 1)]), batch(RIGHT, []))
    assert [weight for _, _, weight in driver.dead] == [1]


def test_policy_null_takes_a_failure_for_not_true() -> None:
    driver = Driver(failing("semi"), policy="null")
    driver.step(batch(LEFT, [(("a", 4), 1)]), batch(RIGHT, [(("a", 0), 1)]))
    assert (driver.answer, driver.dead) == ({}, [])
    driver.step(batch(LEFT, []), batch(RIGHT, [(("a", 2), 1)]))
    assert driver.answer == {("a", 4): 1}

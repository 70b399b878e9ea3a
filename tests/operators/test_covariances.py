"""Covariances, correlations and lines of least squares against exact fractions: what came and went leaves no trace."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.operators.histories import hashed, hashes, histories, keys, proper, quick
from tests.operators.test_aggregates import any_float
from tests.operators.test_group_by import Grouped, floats, grouped, integers, money, texts, total

CALLS = ("covar_pop f x", "covar_samp f x", "corr f x", "regr_slope f x", "regr_intercept f x", "regr_r2 f x")
LEEWAY = 2.0**-50


def row(x: Any, f: Any) -> tuple[Any, ...]:
    return ("a", x, f, None, None, None)


def exact(pairs: list[tuple[float, float]]) -> list[Fraction | float | None]:
    """The results of CALLS over pairs (y, x); `corr` is squared, with its sign."""
    n = len(pairs)
    if any(not math.isfinite(v) for pair in pairs for v in pair):
        return [math.nan, math.nan if n > 1 else None, *[math.nan] * 4]
    ys, xs = [Fraction(y) for y, _ in pairs], [Fraction(x) for _, x in pairs]
    cross = n * sum(y * x for y, x in zip(ys, xs, strict=True)) - sum(ys) * sum(xs)
    xx, yy = n * sum(x * x for x in xs) - sum(xs) ** 2, n * sum(y * y for y in ys) - sum(ys) ** 2
    slope = cross / xx if xx else None
    return [
        cross / Fraction(n * n) if n else None,
        cross / Fraction(n * (n - 1)) if n > 1 else None,
        (cross * abs(cross)) / (xx * yy) if xx and yy else None,
        slope,
        None if slope is None else (sum(ys) - slope * sum(xs)) / n,
        None if not xx else cross**2 / (xx * yy) if yy else Fraction(1),
    ]


def near(found: float | None, wanted: Fraction | float | None, once: bool) -> bool:
    """Whether a result is the wanted one: to the bit if it is rounded once, else to a few units in the last place."""
    if found is None or wanted is None:
        return found is None and wanted is None
    if isinstance(wanted, float) or found == "nan":
        return found == "nan" and isinstance(wanted, float)
    try:
        nearest = float(wanted)
    except OverflowError:
        nearest = math.inf if wanted > 0 else -math.inf
    if once or math.isinf(nearest) or math.isinf(found):
        return found == nearest or abs(nearest) > 1.7e308
    return abs(Fraction(found) - wanted) <= abs(wanted) * Fraction(LEEWAY) + Fraction(5e-324)


def agree(found: tuple[Any, ...], pairs: list[tuple[float, float]]) -> None:
    covariance, sample, correlation, *others = found
    wanted = exact(pairs)
    assert near(covariance, wanted[0], True)
    assert near(sample, wanted[1], True)
    squared = correlation if correlation in ("nan", None) else correlation * abs(correlation)
    assert near(squared, wanted[2], False)
    assert all(near(a, b, False) for a, b in zip(others, wanted[3:], strict=True)), (others, wanted[3:])


numbers = st.one_of(st.sampled_from([0, 1, -7, 2**40 + 1]), st.integers(-(2**53), 2**53))


@quick
@given(st.lists(st.tuples(any_float, numbers), max_size=8), st.lists(st.tuples(any_float, numbers), max_size=4))
def test_what_came_and_went_leaves_no_trace(kept: list[Any], gone: list[Any]) -> None:
    driver = Grouped(("k",), *CALLS)
    driver.feed([(row(x, y), 1) for y, x in kept + gone] + [(row(None, 1.0), 1), (row(1, None), 1)])
    driver.feed([(row(x, y), -1) for y, x in gone])
    ((found, weight),) = driver.answer.items()
    assert weight == 1
    agree(found[1:], kept)


@quick
@given(history=histories(st.tuples(keys, integers, floats, money, texts, st.none())), bits=hashes)
def test_over_histories(history: list[Any], bits: int | None) -> None:
    history = proper(history)
    with hashed(bits):
        driver = Grouped(("k",), *CALLS)
        for at, step in enumerate(history):
            driver.feed(step)
            groups = grouped(total(pair for step in history[: at + 1] for pair in step), 1)
            assert {answer[:1] for answer in driver.answer} == set(groups)
            for answer, weight in driver.answer.items():
                assert weight == 1
                pairs = [(r[2], float(r[1])) for r in groups[answer[:1]] if r[1] is not None and r[2] is not None]
                agree(answer[1:], [(math.nan if y == "nan" else y, x) for y, x in pairs])


@pytest.mark.parametrize(
    ("pairs", "wanted"),
    [
        ([], (None, None, None, None, None, None)),
        ([(1.0, 2)], (0.0, None, None, None, None, None)),
        ([(1.0, 2), (3.0, 2)], (0.0, 0.0, None, None, None, None)),
        ([(1.0, 2), (1.0, 3)], (0.0, 0.0, None, 0.0, 1.0, 1.0)),
        ([(5.0, 1), (9.0, 3)], (2.0, 4.0, 1.0, 2.0, 3.0, 1.0)),
        ([(5.0, 1), (1.0, 3)], (-2.0, -4.0, -1.0, -2.0, 7.0, 1.0)),
        ([(math.inf, 1), (1.0, 3)], ("nan",) * 6),
    ],
)
def test_few_pairs_and_constant_sides(pairs: list[Any], wanted: tuple[Any, ...]) -> None:
    driver = Grouped(("k",), *CALLS)
    driver.feed([(row(x, y), 1) for y, x in pairs] + [(row(None, 1.0), 1)])
    assert driver.answer == {("a", *wanted): 1}


def test_decimals_count_as_floats_and_pairs_are_kept_once() -> None:
    driver = Grouped(("k",), "corr m x", "regr_slope m x", "corr x m")
    assert [a.weights for a in driver.operator.arrangements()] == [1, 5, 5]
    driver.feed([(("a", x, None, Decimal(x) / 4, None, None), 1) for x in range(5)])
    assert driver.answer == {("a", 1.0, 0.25, 1.0): 1}


def test_nothing_stays_of_a_group_that_vanished() -> None:
    driver = Grouped(("k",), *CALLS)
    driver.feed([(row(x, y), 1) for x, y in ((1, 0.1), (2, math.nan), (3, 1e300))])
    driver.feed([(row(x, y), -1) for x, y in ((1, 0.1), (2, math.nan), (3, 1e300))])
    assert not driver.answer
    assert not any(driver.stored(i) for i in range(len(driver.traces)))

"""Aggregates against plain Python: exact to the bit, whatever came and went; nothing left behind."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbsp.operators.groups.mode_part import ModePart
from dbsp.zset.hashing import narrow_hash
from dbsp.zset.kernels import variances
from tests.operators.driver import plain, total
from tests.operators.histories import floats, hashed, hashes, histories, keys, proper, quick
from tests.operators.test_group_by import Grouped, grouped, integers, money, texts, values

any_float = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([5e-324, -5e-324, 2.2e-308, 1e-160, 1.0, 1e16, 1.0 + 2**-52, -1e154, 1.7e308, 0.1, 0.2, 0.3]),
)
wide = st.one_of(st.integers(-(2**63), 2**63 - 1), st.sampled_from([-(2**63), 2**63 - 1, 0, 1, -1]))


def variance_of(found: list[Any], less: int) -> float | None:
    """The nearest float to the true variance."""
    n = len(found)
    if n <= less:
        return None
    if any(isinstance(v, float) and not math.isfinite(v) for v in found):
        return math.nan
    exact = list(map(Fraction, found))
    try:
        return float((n * sum(v * v for v in exact) - sum(exact) ** 2) / (n * (n - less)))
    except OverflowError:
        return math.inf


def row(**fields: Any) -> tuple[Any, ...]:
    return ("a", *(fields.get(name) for name in "xfmsg"))


def test_the_oracle_is_the_library_s() -> None:
    for found in ([0.1, 0.2, 0.3], [1e16, 1.0, -1e16], [5, 2**62, -(2**62)]):
        assert variance_of(found, 1) == float(statistics.variance(list(map(Fraction, found))))
        assert variance_of(found, 0) == float(statistics.pvariance(list(map(Fraction, found))))


@quick
@given(st.lists(any_float, min_size=1, max_size=10), st.lists(any_float, max_size=5))
def test_variances_of_floats_are_rounded_once_and_forget(kept: list[float], gone: list[float]) -> None:
    driver = Grouped(("k",), "var_pop f", "var_samp f", "stddev_pop f")
    driver.feed([(row(f=v), 1) for v in kept + gone])
    driver.feed([(row(f=v), -1) for v in gone])
    population = variance_of(kept, 0)
    assert population is not None
    assert driver.answer == {plain(("a", population, variance_of(kept, 1), math.sqrt(population))): 1}


@quick
@given(st.lists(wide, min_size=1, max_size=10), st.lists(wide, max_size=5))
def test_variances_of_integers_are_rounded_once(kept: list[int], gone: list[int]) -> None:
    driver = Grouped(("k",), "var_pop x", "var_samp x")
    driver.feed([(row(x=v), 1) for v in kept + gone])
    driver.feed([(row(x=v), -1) for v in gone])
    assert driver.answer == {("a", variance_of(kept, 0), variance_of(kept, 1)): 1}


@quick
@given(st.lists(st.integers(-(10**25) + 1, 10**25 - 1), min_size=1, max_size=8))
def test_variances_of_decimals_are_rounded_once(cents: list[int]) -> None:
    driver = Grouped(("k",), "var_pop m", "var_samp m")
    driver.feed([(row(m=Decimal(c).scaleb(-2)), 1) for c in cents])
    found = [Fraction(c, 100) for c in cents]
    assert driver.answer == {("a", variance_of(found, 0), variance_of(found, 1)): 1}


@quick
@given(st.lists(st.integers(-(10**25) + 1, 10**25 - 1), min_size=1, max_size=30, unique=True))
def test_the_median_of_one_decimal_is_itself(cents: list[int]) -> None:
    driver = Grouped(("k",), "median m")
    driver.feed([((str(c), *row(m=Decimal(c).scaleb(-2))[1:]), 1) for c in cents])
    assert driver.answer == {(str(c), Decimal(c).scaleb(-2)): 1 for c in cents}


def shape_of(found: list[Any], power: int) -> float | None:
    """The skewness or kurtosis of a sample, from exact sums."""
    n, exact = len(found), list(map(Fraction, found))
    if n < power or len(set(exact)) == 1:
        return None
    mean = sum(exact) / n
    two, high = (sum((v - mean) ** p for v in exact) for p in (2, power))
    if power == 4:
        return float(Fraction(n - 1, (n - 2) * (n - 3)) * ((n + 1) * n * high / two**2 - 3 * (n - 1)))
    ratio = math.sqrt((high / n) ** 2 / (two / n) ** 3)
    return (1 if high > 0 else -1) * math.sqrt(n * (n - 1)) / (n - 2) * ratio


spaced = st.one_of(st.integers(-1000, 1000).map(float), st.integers(-1000, 1000).map(lambda n: math.ldexp(n, 990)))


@quick
@given(st.lists(spaced, min_size=1, max_size=12), st.lists(spaced, max_size=5))
def test_shapes_are_those_of_the_rows_that_are_left(kept: list[float], gone: list[float]) -> None:
    driver = Grouped(("k",), "skewness f", "kurtosis f")
    driver.feed([(row(f=v), 1) for v in kept + gone])
    driver.feed([(row(f=v), -1) for v in gone])
    ((_, lean, tails),) = driver.answer
    for found, power in ((lean, 3), (tails, 4)):
        true = shape_of(kept, power)
        assert found is None if true is None else math.isclose(found, true, rel_tol=1e-9, abs_tol=1e-9)


def test_a_long_number_is_rounded_to_the_nearest() -> None:
    half = (1 << 53) + 1  # just between two floats
    cases = ((half, False, 0), (half, True, 0), (half << 40, True, 9), (3, False, -1076), (1, True, -1075))
    for number, sticky, exponent in cases:
        limbs = np.array([number >> (32 * i) & 0xFFFFFFFF for i in range(4)], np.uint64)
        exact = Fraction(number) + (Fraction(1, 4) if sticky else 0)
        assert variances._nearest(limbs, 4, sticky, exponent) == float(exact * Fraction(2) ** exponent)


def test_a_variance_is_nan_while_there_is_no_number() -> None:
    driver = Grouped(("k",), "var_pop f")
    driver.feed([(row(f=1.0), 1), (row(f=3.0), 1), (row(f=math.inf), 1)])
    assert driver.answer == {("a", "nan"): 1}
    driver.feed([(row(f=math.inf), -1)])
    assert driver.answer == {("a", 1.0): 1}


def ordered(found: list[Any]) -> list[Any]:
    """Ascending, NaN last."""
    return sorted(found, key=lambda v: (isinstance(v, float) and math.isnan(v), v))


def disc(found: list[Any], part: int, whole: int) -> Any:
    return ordered(found)[max(0, math.ceil(Fraction(part * len(found), whole)) - 1)] if found else None


def cont(found: list[Any], part: int, whole: int) -> float | Decimal | None:
    if not found:
        return None
    place = Fraction((len(found) - 1) * part, whole)
    if isinstance(found[0], Decimal):
        below, above = (Fraction(ordered(found)[at(place)]) for at in (math.floor, math.ceil))
        exact = below + (above - below) * (place - math.floor(place))
        places = 2  # of the column; with more than 18 digits it is cut downwards, as in DuckDB
        return Decimal(math.floor(exact * 10**places)).scaleb(-places)
    low = float(ordered(found)[math.floor(place)])
    high = float(ordered(found)[math.ceil(place)])
    beyond = float(place - math.floor(place))
    return low if low == high or beyond == 0 else low * (1 - beyond) + high * beyond


ALL = ("median x", "cont10 x", "p90 f", "p90 s", "p90 m", "median m", "cont10 m",
       "bit_xor x", "bit_or x", "bit_and x", "joined s",
       "arg_min x f", "arg_max s m", "var_pop x", "mode f", "mode s")  # fmt: skip


def expected(group: list[tuple[Any, ...]]) -> tuple[Any, ...]:
    x, f, m, s = (values(group, at) for at in (1, 2, 3, 4))
    xor = 0
    for number in x:
        xor ^= number
    both = [(r[2], r[1]) for r in group if r[1] is not None and r[2] is not None]
    least = min(((math.isnan(a) if isinstance(a, float) else a == "nan", a, b) for a, b in both), default=None)
    most = [(r[3], r[4]) for r in group if r[3] is not None and r[4] is not None]
    best = max((a for a, _ in most), default=None)
    return (
        cont(x, 1, 2), cont(x, 1, 10), disc(f, 9, 10), disc(s, 9, 10), disc(m, 9, 10),
        cont(m, 1, 2), cont(m, 1, 10),
        xor if x else None, _bits(x, any) if x else None, _bits(x, all) if x else None,
        "|".join(sorted(s)) if s else None, None if least is None else least[2],
        min((b for a, b in most if a == best), default=None), variance_of(x, 0), commonest(f), commonest(s),
    )  # fmt: skip


def commonest(found: list[Any]) -> Any:
    """The most frequent value, the least of those; NaN is one value, the greatest."""
    counts = Counter("nan" if isinstance(v, float) and math.isnan(v) else v for v in found)
    peak = max(counts.values(), default=0)
    return min((v for v, n in counts.items() if n == peak), key=lambda v: (v == "nan", v), default=None)


def _bits(found: list[int], of: Any) -> int:
    unsigned = sum(of((v >> bit) & 1 for v in found) << bit for bit in range(64))
    return unsigned - (unsigned >> 63 << 64)


@quick
@given(history=histories(st.tuples(keys, integers, floats, money, texts, st.none())), bits=hashes)
def test_every_aggregate_at_once(history: list[Any], bits: int | None) -> None:
    history = proper(history)
    with hashed(bits):
        driver = Grouped(("k",), *ALL)
        for at, step in enumerate(history):
            driver.feed(step)
            here = total(pair for step in history[: at + 1] for pair in step)
            wanted = {key: expected(group) for key, group in grouped(here, 1).items()}
            assert driver.answer == total(((*key, *w), 1) for key, w in wanted.items())
        for step in history:
            driver.feed([(r, -weight) for r, weight in step])
        assert driver.answer == {}


@pytest.mark.parametrize("call", [*ALL, "sum f", "count_distinct s", "max f"])
def test_nothing_stays_of_a_group_that_vanished(call: str) -> None:
    driver = Grouped(("k",), call)
    pairs = [(row(x=i, f=i / 3, m=Decimal(i) / 4, s=f"text number {i % 7}"), 1) for i in range(50)]
    driver.feed(pairs[:20])
    driver.feed(pairs[20:])
    driver.feed([(r, -1) for r, _ in pairs[10:]])
    driver.feed([(r, -1) for r, _ in pairs[:10]])
    assert [driver.stored(index) for index in range(len(driver.traces))] == [{}] * len(driver.traces)


@pytest.mark.parametrize("gone", range(1, 20))
def test_the_pivot_stays_however_many_rows_leave_the_low_heap(gone: int) -> None:
    """Also where all rows that are read at once move, so that the one that stays is read later."""
    driver = Grouped(("k",), "cont10 x")
    pairs = [(row(x=i), 1) for i in range(10 * gone + 10)]
    driver.feed(pairs)
    driver.feed([(r, -1) for r, _ in pairs[10:]])
    driver.feed([(r, -1) for r, _ in pairs[:10]])
    assert [driver.stored(index) for index in range(len(driver.traces))] == [{}] * len(driver.traces)


EVERY = (
    *ALL,
    "sum f",
    "avg m",
    "min s",
    "max f",
    "count_distinct x",
    "count x",
    "corr f x",
    "covar_samp x f",
)


@quick
@given(
    rows=st.lists(st.tuples(keys, integers, floats, money, texts, st.none()), min_size=1, max_size=8),
    data=st.data(), bits=hashes,
)  # fmt: skip
def test_answers_are_those_of_the_z_set_alone(rows: list[Any], data: st.DataObject, bits: int | None) -> None:
    """Whatever is below zero: however the same change is cut into steps, and whatever came and went on the way."""
    weights = data.draw(st.lists(st.integers(-3, 3), min_size=len(rows), max_size=len(rows)))
    detours = data.draw(st.lists(st.lists(st.integers(-3, 3), min_size=len(rows), max_size=len(rows)), max_size=4))
    with hashed(bits):
        once, often = Grouped(("k",), *EVERY), Grouped(("k",), *EVERY)
        once.feed(list(zip(rows, weights, strict=True)))
        left = list(weights)
        for step in detours:
            often.feed(list(zip(rows, step, strict=True)))
            left = [a - b for a, b in zip(left, step, strict=True)]
        often.feed(list(zip(rows, left, strict=True)))
        assert often.answer == once.answer
        held = total(zip(rows, weights, strict=True))
        for answer in once.answer:
            of = total(((row[1],), w) for row, w in held.items() if row[0] == answer[0] and row[1] is not None)
            there = [value for (value,), weight in of.items() for _ in range(weight)]
            assert answer[1] == cont(there, 1, 2)


def test_a_quantile_moves_no_more_rows_than_changed() -> None:
    driver = Grouped(("k",), "median x")
    driver.feed([(row(x=v), 1) for v in range(20_000)])
    before = [len(driver.stored(index)) for index in range(1, 5)]
    for v in range(20):
        driver.feed([(row(x=-1 - v), 1), (row(x=30_000 + v), 1), (row(x=40_000 + v), 1)])
        low, high = len(driver.stored(1)), len(driver.stored(2))
        assert low + high == 20_000 + 3 * (v + 1)
    assert abs(len(driver.stored(1)) - before[0]) <= 40
    assert driver.answer == {("a", 10_009.5): 1}


def test_a_mode_that_nothing_touches_is_not_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only where it loses, and nothing that changed takes its place, is the order of frequency read."""
    searched = []
    real = ModePart._searched

    def counting(self: ModePart, *arguments: Any) -> Any:
        searched.append(1)
        return real(self, *arguments)

    monkeypatch.setattr(ModePart, "_searched", counting)
    driver = Grouped(("k",), "mode x")
    driver.feed([(row(x=v), 1) for v in range(1000)])
    driver.feed([(row(x=-5), 1), (row(x=500), 1)])
    driver.feed([(row(x=700), -1), (row(x=400), 2)])
    assert driver.answer == {("a", 400): 1}
    assert not searched
    driver.feed([(row(x=400), -2)])
    assert driver.answer == {("a", 500): 1}
    driver.feed([(row(x=500), -1), (row(x=400), 1)])
    assert driver.answer == {("a", 400): 1}
    assert len(searched) == 1


def test_a_value_below_zero_is_no_mode() -> None:
    driver = Grouped(("k",), "mode x", "count")
    driver.feed([(row(x=5), 1), (row(x=9), -3), (row(x=1), 1)])
    driver.feed([(row(x=1), -2), (row(x=None), 4)])
    assert driver.answer == {("a", 5, 1): 1}
    driver.feed([(row(x=9), 5), (row(x=5), -1)])
    assert driver.answer == {("a", 9, 5): 1}


def test_negative_rows_within_a_group_are_mended_when_the_positive_ones_come() -> None:
    driver = Grouped(("k",), "median x", "p90 s", "var_pop x", "joined s")
    driver.feed([(row(x=5, s="m"), 1), (row(x=9, s="z"), -1), (row(x=1, s="a"), -1)])
    driver.feed([(row(x=7, s="q"), 3)])
    driver.feed([(row(x=9, s="z"), 1), (row(x=1, s="a"), 2)])
    assert driver.answer == {("a", 7.0, "q", variance_of([5, 7, 7, 7, 1], 0), "a|m|q|q|q"): 1}


def test_keys_of_one_hash_have_medians_of_their_own() -> None:
    with narrow_hash(bits=0):
        driver = Grouped(("k",), "median x", "p90 s")
        pairs = [((key, i * step, None, None, key, None), 1) for key, step in (("a", 1), ("b", 10)) for i in range(30)]
        driver.feed(pairs)
        driver.feed([(r, -1) for r, _ in pairs if r[1] > 15])
        small = [r[1] for r, _ in pairs if r[1] <= 15 and r[0] == "b"]
        assert driver.answer == {("a", 7.5, "a"): 1, ("b", cont(small, 1, 2), "b"): 1}

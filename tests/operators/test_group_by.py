from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dbsp
from dbsp.aggregates.counts import Count, CountDistinct, Mode
from dbsp.aggregates.covariances import Paired
from dbsp.aggregates.kind import AggregateCall, Argument
from dbsp.aggregates.lists import ArrayAgg, StringAgg
from dbsp.aggregates.logic import Bit
from dbsp.aggregates.positions import ArgExtreme, Extreme
from dbsp.aggregates.quantiles import Quantile
from dbsp.aggregates.shapes import Shape
from dbsp.aggregates.sums import Avg, Sum
from dbsp.aggregates.variances import Variance
from dbsp.operators.groups.combine import Combine
from dbsp.operators.groups.group_by import GroupByOperator
from dbsp.operators.groups.limbs import joined, quotients, split
from dbsp.operators.groups.once import Once
from dbsp.operators.operator import StepContext
from dbsp.plan.grouping import asked_by
from dbsp.zset.batch import Batch
from tests.operators.driver import Driver, Rows, batch, plain, total
from tests.operators.histories import floats, hashed, hashes, histories, keys, proper, quick

MONEY = dbsp.decimal(25, 2)
SCHEMA = dbsp.Schema.of(
    {"k": dbsp.STRING, "x": dbsp.INT64, "f": dbsp.FLOAT64, "m": MONEY, "s": dbsp.STRING, "g": dbsp.FLOAT32}
)
integers = st.sampled_from([None, 0, 1, -7, 2**62, -(2**62), 2**40 + 1])
money = st.sampled_from([None, Decimal("0.01"), Decimal("-2.50"), Decimal("99999999999999999999.99"), Decimal("-1e20")])
texts = st.sampled_from([None, "12345678a", "12345678b", ""])
small_floats = st.sampled_from([None, 0.5, -0.25, float("nan")])
rows = st.tuples(keys, integers, floats, money, texts, small_floats)


KINDS: dict[str, Any] = {
    "count": Count(), "sum": Sum(), "avg": Avg(), "min": Extreme(False), "max": Extreme(True),
    "count_distinct": CountDistinct(), "mode": Mode(), "var_pop": Variance(0, False), "var_samp": Variance(1, False),
    "stddev_pop": Variance(0, True), "median": Quantile(1, 2, True), "p90": Quantile(9, 10, False),
    "cont10": Quantile(1, 10, True), "arg_min": ArgExtreme(False), "arg_max": ArgExtreme(True),
    **{name: Paired(name) for name in ("covar_pop", "covar_samp", "corr", "regr_slope", "regr_intercept", "regr_r2")},
    "bit_and": Bit("and"), "bit_or": Bit("or"), "bit_xor": Bit("xor"), "joined": StringAgg("|"), "listed": ArrayAgg(),
    "skewness": Shape(3), "kurtosis": Shape(4),
}  # fmt: skip


def aggregate(keys_: tuple[str, ...], *calls: str) -> tuple[GroupByOperator, list[Combine]]:
    """A group-by of calls such as "sum x", and what combines its inputs."""
    made = [AggregateCall(name=c, kind=KINDS[c.split()[0]], columns=tuple(c.split()[1:])) for c in calls]
    result = [call.kind.result(call.name, tuple(map(_argument, call.columns))) for call in made]
    keyed = SCHEMA.select(keys_)
    linear, others = asked_by(made, keyed, SCHEMA, dbsp.Schema(tuple(result))).parts()
    forms = list(dict.fromkeys(part.form() for part in (linear, *others)))
    operator = GroupByOperator(
        keys=keyed, linear=linear, others=others, schema=dbsp.Schema((*keyed.columns, *result)),
        streams=tuple(forms.index(part.form()) for part in (linear, *others)),
    )  # fmt: skip
    return operator, [Combine(form=form) for form in forms]


def _argument(column: str) -> Argument:
    return Argument(column, column, SCHEMA[column].type, True)


class Grouped(Driver):
    """A group-by with its combines before it, fed loose halves as if two workers had sent them."""

    def __init__(self, keys_: tuple[str, ...], *calls: str, policy: str = "dead-letter") -> None:
        operator, self.combines = aggregate(keys_, *calls)
        super().__init__(operator, policy)

    def feed(self, pairs: list[Any]) -> Rows:
        whole = batch(SCHEMA, pairs)
        half = len(whole) // 2
        context = StepContext(number=0)
        inputs = []
        for combine in self.combines:
            sent = [
                combine.step(context, None, (part,)) for part in (whole.slice(0, half), whole.slice(half, len(whole)))
            ]  # type: ignore[arg-type]
            inputs.append(_concat([part.loose() for part in sent]))
        if len(self.operator.keys) == 0:
            inputs.append(Once().step(StepContext(number=self.steps, depends_on=Once.depends_on_time), None, ()))  # type: ignore[arg-type]
        return self.step(*inputs)


def _concat(batches: list[Batch]) -> Batch:
    schema = batches[0].schema
    columns = [pa.concat_arrays([b.columns[i] for b in batches]) for i in range(len(schema))]
    return Batch(schema=schema, columns=tuple(columns), weights=np.concatenate([b.weights for b in batches]))


def grouped(here: dict[tuple[Any, ...], int], by: int) -> dict[tuple[Any, ...], list[tuple[Any, ...]]]:
    groups: dict[tuple[Any, ...], list[tuple[Any, ...]]] = {}
    for row, weight in here.items():
        groups.setdefault(row[:by], []).extend([row] * weight)
    return groups


def values(group: list[tuple[Any, ...]], at: int) -> list[Any]:
    return [math.nan if row[at] == "nan" else row[at] for row in group if row[at] is not None]


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def least(found: list[Any], greatest: bool = False) -> Any:
    numbers = [v for v in found if not _is_nan(v)]
    if greatest and len(numbers) < len(found):
        return math.nan
    if not numbers:
        return math.nan if found else None
    return max(numbers) if greatest else min(numbers)


def distinct(found: list[Any]) -> int:
    return len({"nan" if _is_nan(v) else v for v in found})


@pytest.mark.parametrize("by", [1, 0])
@quick
@given(history=histories(rows), bits=hashes)
def test_every_aggregate_at_once(by: int, history: list[Any], bits: int | None) -> None:
    calls = ("count", "count x", "avg x", "sum m", "avg m", "sum f", "avg f", "sum g", "min f", "max f", "min s",
             "max s", "max m", "count_distinct f", "count_distinct s", "min x")  # fmt: skip
    history = proper(history)
    with hashed(bits):
        driver = Grouped(("k",)[:by], *calls)
        for at, step in enumerate(history):
            driver.feed(step)
            here = total(pair for step in history[: at + 1] for pair in step)
            groups = grouped(here, by) if by else {(): [], **grouped(here, by)}
            assert driver.answer == total((wanted(key, group), 1) for key, group in groups.items())
        assert not driver.dead


def wanted(key: tuple[Any, ...], group: list[tuple[Any, ...]]) -> tuple[Any, ...]:
    x, f, m, s, g = (values(group, at) for at in (1, 2, 3, 4, 5))

    def mean(found: list[Any]) -> float | None:
        whole = math.fsum(found) if found else 0.0
        if not math.isfinite(whole):
            return whole
        return float(sum(map(Fraction, found)) / len(found)) if found else None

    total_f, total_g = (math.fsum(v) if v else None for v in (f, g))
    return (
        *key, len(group), len(x), mean(x), sum(m) if m else None, mean(m), total_f,
        mean(f), total_g, least(f), least(f, True), least(s), least(s, True),
        least(m, True), distinct(f), distinct(s), least(x),
    )  # fmt: skip


@quick
@given(history=histories(rows), bits=hashes)
def test_integer_sums_are_exact_or_fail(history: list[Any], bits: int | None) -> None:
    history = proper(history)
    with hashed(bits):
        driver = Grouped(("k",), "sum x")
        for at, step in enumerate(history):
            driver.feed(step)
            here = total(pair for step in history[: at + 1] for pair in step)
            sums = {key: sum(v) if (v := values(group, 1)) else None for key, group in grouped(here, 1).items()}
            fitting = {(*key, s): 1 for key, s in sums.items() if s is None or -(2**63) <= s < 2**63}
            assert driver.answer == fitting
        assert len(driver.dead) >= len(sums) - len(fitting)


def test_a_null_sum_leaves_when_its_group_overflows() -> None:
    big, nothing = ("a", 2**62, None, None, None, None), ("a", None, None, None, None, None)
    driver = Grouped(("k",), "sum x")
    driver.feed([(nothing, 1)])
    assert driver.answer == {("a", None): 1}
    driver.feed([(big, 2)])
    assert driver.answer == {}
    driver.feed([(big, -2)])
    assert driver.answer == {("a", None): 1}


def test_a_sum_that_overflows_goes_by_the_policy_and_comes_back() -> None:
    big = ("a", 2**62, None, None, None, None)
    for policy in ("dead-letter", "null"):
        driver = Grouped(("k",), "sum x", policy=policy)
        driver.feed([(big, 1)])
        driver.feed([(big, 1)])
        assert driver.answer == ({} if policy == "dead-letter" else {("a", None): 1})
        assert len(driver.dead) == (policy == "dead-letter")
        driver.feed([(big, -1)])
        assert driver.answer == {("a", 2**62): 1}


def test_float_sums_do_not_drift_and_forget_what_is_gone() -> None:
    def row(f: float) -> tuple[Any, ...]:
        return ("a", None, f, None, None, None)

    driver = Grouped(("k",), "sum f")
    rng = np.random.default_rng(5)
    noise = [float(v) for v in rng.normal(size=200) * 10.0 ** rng.integers(-300, 300, 200)]
    driver.feed([(row(0.1), 1), (row(0.2), 1), (row(float("inf")), 1)])
    for at in range(0, 200, 40):
        driver.feed([(row(v), 1) for v in noise[at : at + 40]])
    assert driver.answer == {("a", float("inf")): 1}
    driver.feed([(row(v), -1) for v in noise] + [(row(float("inf")), -1)])
    assert driver.answer == {("a", math.fsum([0.1, 0.2])): 1}
    driver.feed([(row(0.1), -1), (row(0.2), -1)])
    assert driver.answer == {}
    assert driver.stored(0) == {}
    assert driver.stored(1) == {}


def test_unchanged_rows_are_not_given_again() -> None:
    driver = Grouped(("k",), "max x", "count_distinct s")
    driver.feed([(("a", 5, None, None, "s", None), 1)])
    assert driver.feed([(("a", 3, None, None, "s", None), 1)]) == {}


@quick
@given(st.lists(st.integers(-(10**38) + 1, 10**38 - 1), max_size=6))
def test_limbs_are_the_number(numbers: list[int]) -> None:
    with_points = pa.array([Decimal(n) for n in numbers], pa.decimal128(38, 0))
    limbs = np.column_stack(split(with_points)) if numbers else np.zeros((0, 4), np.int64)
    low, high, fits = joined(limbs.sum(axis=0, keepdims=True))
    if fits.all():
        assert (int(high[0]) << 64) + int(low[0]) == sum(numbers)
    if numbers and fits.all():
        assert quotients(low, high, np.array([len(numbers)]), 0)[0] == sum(numbers) / len(numbers)


@quick
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=12))
def test_sums_of_any_floats_are_those_of_fsum(numbers: list[float]) -> None:
    try:
        expected = math.fsum(numbers)
    except OverflowError:
        return
    driver = Grouped((), "sum f")
    driver.feed([((None, None, v, None, None, None), 1) for v in numbers])
    assert driver.answer == {plain((expected,)): 1}

"""Window functions beside sorting each partition in plain Python: large partitions, small changes."""

from __future__ import annotations

import math
import operator
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import cmp_to_key, lru_cache, reduce
from itertools import accumulate, pairwise
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dbsp
from dbsp.operators.groups.covariance_part import PairCall, PairForm, PairMoments
from dbsp.operators.groups.quantile_part import QuantilePlace
from dbsp.operators.order import blocks
from dbsp.operators.order.window import WindowOperator
from dbsp.operators.order.window_calls import COVARIANCES, WindowCall
from dbsp.operators.order.window_places import Frame
from dbsp.trace.spine import Spine
from dbsp.zset.kernels import variances
from tests.operators.driver import NAN, Driver, Rows, batch, plain, total
from tests.operators.histories import hashed, hashes
from tests.operators.test_aggregates import commonest, cont, disc, variance_of
from tests.pace import examples

SCHEMA = dbsp.Schema.of({"p": dbsp.STRING, "s": dbsp.STRING, "t": dbsp.INT64, "x": dbsp.FLOAT64})
COLUMNS = SCHEMA.names
texts = st.sampled_from(["12345678a", "12345678b", "12345678", "z", "", None])
floats = st.sampled_from([None, 0.0, 0.1, 0.2, -0.3, 1e16, 1.0, -1e16, float("nan"), float("inf")])
times = st.sampled_from([None, 2**63 - 1, -(2**63), *range(16), *range(16)])
rows = st.tuples(st.sampled_from(["a", "a", "a", "a", "a", "b", None]), texts, times, floats)
changes = st.lists(
    st.lists(st.tuples(st.integers(0, 60), rows, st.integers(0, 2)), min_size=1, max_size=3), min_size=2, max_size=5
)
bounds = st.one_of(st.none(), st.integers(0, 4))
sizes = st.sampled_from([1, 2, 3, 7, 1024])
items = st.tuples(st.sampled_from(["t", "s", "x"]), st.booleans(), st.booleans())
orders = st.lists(items, min_size=1, max_size=2, unique_by=lambda item: item[0])
OWN_TYPE = ("min", "max", "sum", "mode", "quantile_disc", "arg_min", "arg_max", "first", "last")
pace = settings(max_examples=examples(30), deadline=None, suppress_health_check=list(HealthCheck))

FUNCTIONS = {
    "lag": WindowCall(name="v", function="lag", column="t", offset=2),
    "lag with a default": WindowCall(name="v", function="lag", column="s", offset=1, default="p"),
    "lead": WindowCall(name="v", function="lead", column="x", offset=3),
    "row_number": WindowCall(name="v", function="row_number"),
    "rank": WindowCall(name="v", function="rank"),
    "dense_rank": WindowCall(name="v", function="dense_rank"),
    "percent_rank": WindowCall(name="v", function="percent_rank"),
    "cume_dist": WindowCall(name="v", function="cume_dist"),
    "ntile": WindowCall(name="v", function="ntile", offset=4),
    "first_value": WindowCall(name="v", function="first_value", column="x"),
    "last_value": WindowCall(name="v", function="last_value", column="t"),
    "nth_value": WindowCall(name="v", function="nth_value", column="x", offset=3),
    "lag over nulls": WindowCall(name="v", function="lag", column="t", offset=2, skips=True),
    "lag over nulls with a default": WindowCall(
        name="v", function="lag", column="s", offset=1, default="p", skips=True
    ),
    "lead over nulls": WindowCall(name="v", function="lead", column="x", offset=3, skips=True),
    "first_value over nulls": WindowCall(name="v", function="first_value", column="s", skips=True),
    "last_value over nulls": WindowCall(name="v", function="last_value", column="x", skips=True),
    "nth_value over nulls": WindowCall(name="v", function="nth_value", column="s", offset=4, skips=True),
}


def schema(calls: list[WindowCall]) -> dbsp.Schema:
    return dbsp.Schema((*SCHEMA.columns, *(dbsp.Column(call.name, type_of(call)) for call in calls)))


def type_of(call: WindowCall) -> Any:
    if call.function in ("percent_rank", "cume_dist", "avg", "var_samp", "stddev_pop", "quantile_cont", *COVARIANCES):
        return dbsp.FLOAT64
    if call.function in ("lag", "lead", "first_value", "last_value", "nth_value", *OWN_TYPE):
        return SCHEMA[str(call.column)].type
    return dbsp.INT64


def before(left: Any, right: Any, descending: bool, nulls_first: bool) -> int:
    if left is None or right is None:
        return 0 if left is right else (-1 if (left is None) == nulls_first else 1)
    if isinstance(left, float | int):
        left, right = (math.isnan(left), left), (math.isnan(right), right)
        if left[0] and right[0]:
            return 0
    sign = 0 if left == right else -1 if left < right else 1
    return -sign if descending else sign


class Expected:
    """All rows of one partition in order, one per place, and the value of a call for each."""

    def __init__(self, places: list[tuple[Any, ...]], order: list[tuple[str, bool, bool]]) -> None:
        self.order = order
        ties = [(name, False, False) for name in COLUMNS if name not in {name for name, _, _ in order}]
        self.rows = sorted(places, key=cmp_to_key(lambda a, b: self.compare(a, b, [*order, *ties])))
        steps = [self.compare(left, right, order) != 0 for left, right in pairwise(self.rows)]
        self.ties = [0, *accumulate(steps)]
        """Which run of rows that tie each place is in, counted from the first."""

    def compare(self, left: Any, right: Any, order: list[tuple[str, bool, bool]]) -> int:
        for name, descending, nulls_first in order:
            at = COLUMNS.index(name)
            found = before(left[at], right[at], descending, nulls_first)
            if found:
                return found
        return 0

    def value(self, call: WindowCall, at: int) -> Any:
        rows, n = self.rows, len(self.rows)
        column = COLUMNS.index(call.column) if call.column else 0
        match call.function:
            case "row_number":
                return at + 1
            case "rank" | "percent_rank":
                smaller = self.ties.index(self.ties[at])
                return smaller + 1 if call.function == "rank" else smaller / max(n - 1, 1)
            case "dense_rank":
                return self.ties[at] + 1
            case "cume_dist":
                return bisect_right(self.ties, self.ties[at]) / n
            case "ntile":
                parts = [n // call.offset + (part < n % call.offset) for part in range(call.offset)]
                return next(part + 1 for part in range(call.offset) if at < sum(parts[: part + 1]))
            case "lag" | "lead":
                return self.neighbour(call, at, column)
            case "first_value" | "last_value" | "nth_value":
                found = [r[column] for r in rows if r[column] is not None or not call.skips]
                place = {"first_value": 0, "last_value": len(found) - 1}.get(call.function, call.offset - 1)
                return found[place] if 0 <= place < len(found) else None
        return of_frame(call, [r for i, r in enumerate(rows) if self.in_frame(call, at, i)])

    def neighbour(self, call: WindowCall, at: int, column: int) -> Any:
        other = at + (call.offset if call.function == "lead" else -call.offset)
        if call.skips:
            step = 1 if call.function == "lead" else -1
            some = [
                i
                for i in range(at + step, len(self.rows) if step > 0 else -1, step)
                if self.rows[i][column] is not None
            ]
            other = some[call.offset - 1] if call.offset <= len(some) else -1
        if 0 <= other < len(self.rows):
            return self.rows[other][column]
        return self.rows[at][COLUMNS.index(call.default)] if call.default else None

    def in_frame(self, call: WindowCall, at: int, other: int) -> bool:
        frame = call.frame
        assert frame is not None
        if frame.kind == "rows":
            return (frame.preceding is None or other >= at - frame.preceding) and (
                frame.following is None or other <= at + frame.following
            )
        if frame.of_ties:
            way = self.ties[other] - self.ties[at]
            return (frame.preceding is None or way >= 0) and (frame.following is None or way <= 0)
        name, descending, _ = self.order[0]
        column = COLUMNS.index(name)
        mine, theirs = self.rows[at][column], self.rows[other][column]
        if mine is None or theirs is None:
            if mine is None and theirs is None:
                return True
            return (frame.preceding is None and other < at) or (frame.following is None and other > at)
        behind = (mine - theirs) if descending else (theirs - mine)
        return (frame.preceding is None or -behind <= frame.preceding) and (
            frame.following is None or behind <= frame.following
        )


COUNTED: dict[str, Callable[[list[Any], Any], Any]] = {
    "count_distinct": lambda some, _: len(set(plain(tuple(some)))),
    "mode": lambda some, _: commonest(some),
    "quantile_disc": lambda some, place: disc(some, place.part, place.whole),
    "quantile_cont": lambda some, place: cont(some, place.part, place.whole),
}


OF_SOME: dict[str, Callable[[list[Any]], Any]] = {
    "var_samp": lambda some: variance_of(some, 1),
    "stddev_pop": lambda some: math.sqrt(variance_of(some, 0) or 0.0),
    "bit_and": lambda some: reduce(operator.and_, some),
    "bit_or": lambda some: reduce(operator.or_, some),
    "bit_xor": lambda some: reduce(operator.xor, some),
}


def of_frame(call: WindowCall, held: list[tuple[Any, ...]]) -> Any:
    column = COLUMNS.index(call.column) if call.column else 0
    if call.function in ("first", "last"):
        return placed(call, held, column)
    if call.other is not None:
        return paired(call, [(row[column], row[COLUMNS.index(call.other)]) for row in held])
    return aggregate(call, [row[column] for row in held])


def placed(call: WindowCall, held: list[tuple[Any, ...]], column: int) -> Any:
    """The value in the first row of the call's own order, or the last; ties go by the value."""
    order = [*((COLUMNS.index(by.column), by.descending, by.nulls_first) for by in call.by), (column, False, False)]

    def compare(left: tuple[Any, ...], right: tuple[Any, ...]) -> int:
        ways = (before(left[at], right[at], descending, nulls_first) for at, descending, nulls_first in order)
        return next((way for way in ways if way), 0)

    found = sorted(held, key=cmp_to_key(compare))
    return found[0 if call.function == "first" else -1][column] if found else None


def aggregate(call: WindowCall, values: list[Any]) -> Any:
    some = [v for v in values if v is not None]
    if call.function == "count":
        return len(some) if call.column else len(values)
    if call.function in COUNTED:
        return COUNTED[call.function](some, call.place)
    if not some:
        return None
    if call.function in OF_SOME:
        return OF_SOME[call.function](some)
    if call.function in ("min", "max"):
        extreme = min if call.function == "min" else max
        return extreme(some, key=lambda v: (isinstance(v, float) and math.isnan(v), v))
    if math.inf in some or any(math.isnan(v) for v in some):
        return math.nan if any(math.isnan(v) for v in some) else math.inf
    return float(sum(map(Fraction, some)) / len(some)) if call.function == "avg" else math.fsum(some)


@lru_cache(maxsize=1 << 16)
def afresh(function: str, pairs: tuple[tuple[float, float], ...]) -> Any:
    """A function of pairs (y, x) as a group of them has it, which other tests compare with fractions."""
    keys = dbsp.Schema.of({"g": dbsp.INT64})
    form = PairForm(keys=keys, x="x", y="y")
    rows = batch(dbsp.Schema.of({"g": dbsp.INT64, "y": dbsp.FLOAT64, "x": dbsp.FLOAT64}), [((0, *p), 1) for p in pairs])
    bins = form.of(rows)
    made = PairMoments.room(1)
    order, ends = np.arange(len(bins)), np.array([0, len(bins)])
    which = np.asarray(bins.columns[1]).astype(np.int16) if len(bins) else np.zeros(0, np.int16)
    assert variances.bin_moments(order, ends, which, np.ascontiguousarray(bins.weights), *made.parts())
    return PairCall(name="v", text=function, function=function).column(made)[0].as_py()


def paired(call: WindowCall, pairs: list[tuple[Any, Any]]) -> Any:
    """Of a value and what it goes with."""
    some = [pair for pair in pairs if None not in pair]
    if call.function in COVARIANCES:
        return afresh(call.function, tuple((float(y), float(x)) for y, x in some))
    if not some:
        return None
    extreme = min if call.function == "arg_min" else max
    best = extreme(((math.isnan(by), by) for _, by in some), key=lambda key: (key[0], 0.0 if key[0] else key[1]))
    return min(value for value, by in some if math.isnan(by) == best[0] and (best[0] or by == best[1]))


def wanted(held: list[tuple[Any, ...]], order: list[tuple[str, bool, bool]], calls: list[WindowCall]) -> Rows:
    partitions: dict[Any, list[tuple[Any, ...]]] = {}
    for row in held:
        partitions.setdefault(row[0], []).append(row)
    found = []
    for places in partitions.values():
        expected = Expected(places, order)
        for at, row in enumerate(expected.rows):
            found.append(((*row, *(expected.value(call, at) for call in calls)), 1))
    return total(found)


def check(
    calls: list[WindowCall],
    order: list[tuple[str, bool, bool]],
    first: list[tuple[Any, ...]],
    history: list[list[tuple[int, tuple[Any, ...], int]]],
    bits: int | None,
    block_rows: int = 2,
) -> None:
    with hashed(bits), patch.object(blocks, "block_rows", lambda _: block_rows):
        by = tuple(dbsp.OrderBy(*item) for item in order)
        driver = Driver(
            WindowOperator(input=SCHEMA, partition=("p",), order=by, calls=tuple(calls), schema=schema(calls))
        )
        held = list(first)
        driver.step(batch(SCHEMA, [(row, 1) for row in held]))
        assert driver.answer == wanted(held, order, calls)
        for step in history:
            delta = []
            for at, row, kind in step:
                if kind == 0 or not held:
                    held.append(row)
                    delta.append((row, 1))
                else:
                    gone = held.pop(at % len(held))
                    delta.append((gone, -1))
                    if kind == 2:
                        held.append((gone[0], *row[1:]))
                        delta.append((held[-1], 1))
            driver.step(batch(SCHEMA, delta))
            assert driver.answer == wanted(held, order, calls)


many = st.lists(rows, min_size=10, max_size=40)


@pytest.mark.parametrize("name", FUNCTIONS)
@pace
@given(first=many, history=changes, order=orders, bits=hashes)
def test_a_function_is_that_of_the_sorted_partition(
    name: str, first: list[Any], history: list[Any], order: list[Any], bits: int | None
) -> None:
    check([FUNCTIONS[name]], order, first, history, bits)


def over(frame: Frame) -> list[WindowCall]:
    return [
        WindowCall(name="n", function="count", frame=frame),
        WindowCall(name="total", function="sum", column="x", frame=frame),
        WindowCall(name="m", function="avg", column="x", frame=frame),
        WindowCall(name="v", function="var_samp", column="x", frame=frame),
        WindowCall(name="d", function="stddev_pop", column="t", frame=frame),
        WindowCall(name="low", function="min", column="s", frame=frame),
        WindowCall(name="high", function="max", column="x", frame=frame),
    ]


def sorted_over(frame: Frame) -> list[WindowCall]:
    return [
        WindowCall(name="kinds", function="count_distinct", column="x", frame=frame),
        WindowCall(name="texts", function="count_distinct", column="s", frame=frame),
        WindowCall(name="usual", function="mode", column="x", frame=frame),
        WindowCall(name="text", function="mode", column="s", frame=frame),
        WindowCall(
            name="third",
            function="quantile_disc",
            column="s",
            frame=frame,
            place=QuantilePlace(part=1, whole=3, between=False),
        ),
        WindowCall(
            name="most",
            function="quantile_cont",
            column="x",
            frame=frame,
            place=QuantilePlace(part=9, whole=10, between=True),
        ),
        WindowCall(
            name="middle",
            function="quantile_cont",
            column="t",
            frame=frame,
            place=QuantilePlace(part=1, whole=2, between=True),
        ),
        WindowCall(name="low", function="arg_min", column="s", other="x", frame=frame),
        WindowCall(name="high", function="arg_max", column="t", other="x", frame=frame),
    ]


def paired_over(frame: Frame) -> list[WindowCall]:
    others = {"corr": "x"}
    return [
        WindowCall(name=name, function=name, column="x", other=others.get(name, "t"), frame=frame)
        for name in COVARIANCES
    ]


def placed_over(frame: Frame) -> list[WindowCall]:
    by_text, by_number = (dbsp.OrderBy("s"), dbsp.OrderBy("x", True, True)), (dbsp.OrderBy("x", True, False),)
    return [
        WindowCall(name="one", function="first", column="x", by=by_text, frame=frame),
        WindowCall(name="text", function="first", column="s", by=by_number, frame=frame),
        WindowCall(name="end", function="last", column="s", by=by_number, frame=frame),
        WindowCall(name="last", function="last", column="t", by=by_text, frame=frame),
        *(WindowCall(name=name, function=name, column="t", frame=frame) for name in ("bit_and", "bit_or", "bit_xor")),
    ]


def negative(frame: tuple[int | None, int | None]) -> tuple[int | None, int | None]:
    """The frame with one end on the other side of its own row."""
    before, behind = frame
    if before is None or behind is None:
        return before and -before, behind and -behind
    return (max(frame), -min(frame)) if before % 2 else (-min(frame), max(frame))


ends = st.one_of(st.tuples(bounds, bounds), st.tuples(bounds, bounds).map(negative))
of_ties = st.sampled_from([(None, 0), (0, None), (0, 0), (None, None)])
SEVERAL = {
    "sums and extremes": over, "what sorts its values": sorted_over, "pairs": paired_over, "ends and bits": placed_over
}  # fmt: skip


@pytest.mark.parametrize("several", SEVERAL)
@pace
@given(first=many, history=changes, order=orders, bits=hashes, frame=ends, size=sizes)
def test_a_frame_of_rows_holds_them(
    several: str, first: list[Any], history: list[Any], order: list[Any], bits: int | None, frame: Any, size: int
) -> None:
    calls = SEVERAL[several](Frame(kind="rows", preceding=frame[0], following=frame[1]))
    check(calls, order, first, history, bits, size)


@pytest.mark.parametrize("several", SEVERAL)
@pace
@given(first=many, history=changes, bits=hashes, frame=ends, by=items, size=sizes)
def test_a_frame_of_a_range_holds_what_is_near(
    several: str, first: list[Any], history: list[Any], bits: int | None, frame: Any, by: Any, size: int
) -> None:
    calls = SEVERAL[several](Frame(kind="range", preceding=frame[0], following=frame[1]))
    check(calls, [("t", by[1], by[2])], first, history, bits, size)


@pytest.mark.parametrize("several", SEVERAL)
@pace
@given(first=many, history=changes, order=orders, bits=hashes, frame=of_ties, size=sizes)
def test_a_frame_of_ties_needs_no_distances(
    several: str, first: list[Any], history: list[Any], order: list[Any], bits: int | None, frame: Any, size: int
) -> None:
    calls = SEVERAL[several](Frame(kind="range", preceding=frame[0], following=frame[1]))
    check(calls, order, first, history, bits, size)


@pace
@given(first=many, history=changes, order=orders, bits=hashes)
def test_several_functions_share_a_pass(
    first: list[Any], history: list[Any], order: list[Any], bits: int | None
) -> None:
    calls = [
        WindowCall(name="a", function="lag", column="t", offset=1),
        WindowCall(name="b", function="first_value", column="s"),
        *over(Frame(kind="rows", preceding=1, following=2)),
    ]
    check(calls, order, first, history, bits)


frames = st.one_of(
    st.builds(Frame, kind=st.sampled_from(["rows", "range"]), preceding=st.integers(0, 4), following=st.integers(0, 4)),
    st.builds(Frame, kind=st.sampled_from(["rows", "range"]), preceding=st.just(-1), following=st.just(4)),
    st.builds(Frame, kind=st.sampled_from(["rows", "range"]), preceding=st.just(4), following=st.just(-2)),
)
single = st.one_of(
    st.tuples(st.sampled_from(["lag", "lead"]), st.integers(1, 4)).map(
        lambda drawn: WindowCall(name="v", function=drawn[0], column="x", offset=drawn[1])
    ),
    frames.map(lambda frame: WindowCall(name="v", function="sum", column="x", frame=frame)),
    st.sampled_from([FUNCTIONS[name] for name in ("row_number", "rank", "dense_rank", "last_value")]),
)


@settings(pace, max_examples=examples(150))
@given(first=many, history=changes, bits=hashes, by=items, calls=st.lists(single, min_size=2, max_size=4))
def test_functions_that_look_to_different_sides_and_so_far_are_right_beside_each_other(
    first: list[Any], history: list[Any], bits: int | None, by: Any, calls: list[WindowCall]
) -> None:
    calls = [replace(call, name=f"v{number}") for number, call in enumerate(calls)]
    check(calls, [("t", by[1], by[2])], first, history, bits)


def test_a_row_that_one_function_touches_has_all_its_values_right() -> None:
    """Its other functions look away from the change, behind what the first one reads."""
    rows = [("a", None, t, float(t)) for t in range(10)]
    calls = [
        WindowCall(name="v", function="lag", column="x", offset=2),
        WindowCall(name="w", function="lead", column="x", offset=2),
    ]
    check(calls, [("t", False, False)], rows, [[(4, rows[0], 1)]], None)


def test_dense_rank_reads_what_ties_where_no_value_comes_or_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    """And from the change on where one does."""
    read: list[int] = []
    ranges = Spine.ranges

    def noted(self: Spine, *asked: Any) -> Any:
        found = ranges(self, *asked)
        read[-1] += len(found[1])
        return found

    monkeypatch.setattr(Spine, "ranges", noted)
    calls = [FUNCTIONS["dense_rank"]]
    made = WindowOperator(
        input=SCHEMA, partition=("p",), order=(dbsp.OrderBy("t"),), calls=tuple(calls), schema=schema(calls)
    )
    driver = Driver(made)
    rows = [("a", str(n), n // 10, None) for n in range(1000)]
    given = []
    for delta in ([(row, 1) for row in rows], [(rows[5], -1), (rows[507], -1)], [(row, -1) for row in rows[980:990]]):
        read.append(0)
        given.append(sum(map(abs, driver.step(batch(SCHEMA, delta)).values())))
    assert given == [1000, 2, 10 + 2 * 10]
    assert read == [0, 2 * 20, 10 + 20]
    assert driver.answer == wanted([*rows[:5], *rows[6:507], *rows[508:980], *rows[990:]], [("t", False, False)], calls)


def test_nan_is_shown_as_the_driver_shows_it() -> None:
    assert total([((math.nan,), 1)]) == {(NAN,): 1}

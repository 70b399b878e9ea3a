"""Filters over `now()` against looking at every row at every step: any clock, worker counts, restarts, rescales."""

from __future__ import annotations

import datetime as dt
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import dbsp
from tests.pace import examples

START = dt.datetime(2024, 1, 1)
SCHEMA = {"x": dbsp.INT64, "at": dbsp.TIMESTAMP, "to": dbsp.TIMESTAMP}
t = dbsp.table("t", SCHEMA)
at, to, now = dbsp.col("at"), dbsp.col("to"), dbsp.now()
LONG = dbsp.seconds(5)
Row = tuple[int, dt.datetime | None, dt.datetime | None]


def known(*values: Any) -> bool:
    return all(value is not None for value in values)


CASES: list[tuple[Any, Any]] = [
    (at > now - LONG, lambda a, b, c: known(a) and a > c - LONG),
    (at >= now - LONG, lambda a, b, c: known(a) and a >= c - LONG),
    (at <= now, lambda a, b, c: known(a) and a <= c),
    (at < now + LONG, lambda a, b, c: known(a) and a < c + LONG),
    (now - LONG >= at, lambda a, b, c: known(a) and a <= c - LONG),
    (at.between(now - LONG, now), lambda a, b, c: known(a) and c - LONG <= a <= c),
    ((at <= now) & (now < to), lambda a, b, c: known(a, b) and a <= c < b),
    ((at + LONG > now) & (to > now) & (dbsp.col("x") > 1), lambda a, b, c: known(a, b) and a + LONG > c and b > c),
]

moments = st.one_of(st.none(), st.integers(-3, 14).map(lambda n: START + dt.timedelta(seconds=n)))
rows = st.tuples(st.integers(0, 3), moments, moments)
actions = st.one_of(
    st.tuples(st.just("insert"), rows),
    st.tuples(st.just("insert"), rows),
    st.tuples(st.just("remove"), st.integers(0, 50)),
    st.tuples(st.just("step"), st.sampled_from([0, 1, 2, 7])),
    st.tuples(st.just("step"), st.sampled_from([0, 1, 2, 7])),
    st.tuples(st.just("checkpoint")),
    st.tuples(st.just("restart")),
    st.tuples(st.just("rescale"), st.integers(1, 5)),
)


def as_dict(row: Row) -> dict[str, Any]:
    return dict(zip(SCHEMA, row, strict=True))


@settings(max_examples=examples(80), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, len(CASES) - 1), st.lists(actions, max_size=25), st.integers(1, 3))
@example(5, [("insert", (1, START, None)), ("step", 0), ("step", 7)], 1)
@example(5, [("insert", (1, START + LONG, None)), ("step", 0), ("step", 7), ("restart",), ("step", 7)], 2)
def test_rows_enter_and_leave_with_the_clock(case: int, history: list[tuple[Any, ...]], workers: int) -> None:
    condition, holds = CASES[case]
    table, seen, clock = list[Row](), Counter[Row](), START
    due: dt.datetime | None = None
    with dbsp.open(dbsp.circuit("c", {"v": t.filter(condition)}), workers=workers, partitions=2) as run:
        pushed = False
        for action in [*history, ("step", 0), ("step", 40)]:
            match action:
                case ("insert", row):
                    table.append(row)
                    run.push("t", [as_dict(row)])
                    pushed = True
                case ("remove", at_) if table:
                    run.delete("t", [as_dict(table.pop(at_ % len(table)))])
                    pushed = True
                case ("step", seconds):
                    clock += dt.timedelta(seconds=seconds)
                    change = run.step(clock=clock)["v"].to_rows()
                    for row, weight in change:
                        seen[row] += weight
                    if change and not pushed:
                        assert due is not None
                        assert due <= clock.replace(tzinfo=dt.UTC)
                    want = Counter(r for r in table if holds(r[1], r[2], clock) and (case != 7 or r[0] > 1))
                    assert +seen == want
                    assert not -seen
                    assert Counter(dict(run.view("v").to_rows())) == want
                    due, pushed = run.due, False
                case ("checkpoint",):
                    run.checkpoint()
                case ("restart",):
                    run.restart()
                case ("rescale", count):
                    run.rescale(count)
        assert not run.dead_letters()


def test_what_the_clock_has_passed_is_dropped() -> None:
    view = t.filter(at > now - LONG).group_by().aggregate(n=dbsp.count())
    with dbsp.open(dbsp.circuit("c", {"v": view})) as run:
        sizes = []
        for step in range(300):
            clock = START + dt.timedelta(seconds=step)
            run.push("t", [{"x": n, "at": clock} for n in range(200)])
            run.step(clock=clock)
            run.forget_outputs()
            sizes.append(run.reports[-1].workers[0].state_bytes)
        assert run.view("v").to_rows() == [((1000,), 1)]
        assert max(sizes) < 6 * max(sizes[:10])


def test_the_clock_never_goes_back_in_a_run() -> None:
    with dbsp.open(dbsp.circuit("c", {"v": t.filter(at > now)})) as run:
        run.step(clock=START)
        with pytest.raises(dbsp.CircuitError, match="the clock never goes back") as error:
            run.step(clock=START - LONG)
    shown = [moment.replace(tzinfo=dt.UTC) for moment in (START - LONG, START)]
    assert f"clock={shown[0]} before={shown[1]}" in error.value.message


MOVED_BY_HOURS = 'dbsp.col("at") > dbsp.now() - dbsp.hours(1)'
MOVED_COLUMN = 'day = dbsp.col("at").truncate("day"), then (day <= dbsp.now())'


@pytest.mark.parametrize(
    ("make", "instead"),
    [
        (lambda: t.select(a=dbsp.now()), MOVED_BY_HOURS),
        (lambda: t.filter(at == dbsp.now()), MOVED_COLUMN),
        (lambda: t.filter((at > dbsp.now()) | (to > dbsp.now())), MOVED_BY_HOURS),
        (lambda: t.filter(~(at > dbsp.now())), MOVED_BY_HOURS),
        (lambda: t.filter(at > dbsp.now().truncate("hour")), MOVED_COLUMN),
        (lambda: t.filter(dbsp.col("x") > dbsp.now()), MOVED_BY_HOURS),
        (lambda: t.filter(dbsp.lit(START) > dbsp.now()), MOVED_BY_HOURS),
        (lambda: t.group_by(h=dbsp.now().hour()).aggregate(n=dbsp.count()), MOVED_BY_HOURS),
    ],
)
def test_other_uses_are_refused_with_what_to_write(make: Callable[[], object], instead: str) -> None:
    with pytest.raises(dbsp.CircuitError, match=re.escape(instead)):
        make()

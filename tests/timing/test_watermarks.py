"""Watermarks, late rows and final results against plain Python; state that windows leave behind is dropped."""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import dbsp
from tests.pace import examples, some

START = dt.datetime(2024, 1, 1)
SIZE, LATENESS = 10, 4
t = dbsp.table(
    "t",
    {"k": dbsp.STRING, "at": dbsp.TIMESTAMP, "x": dbsp.FLOAT64},
    watermark={"at": dbsp.seconds(LATENESS)},
)
windows = t.tumble("at", dbsp.seconds(SIZE)).group_by("k", "window_end")
AGGREGATES: dict[str, Any] = {"n": dbsp.count(), "s": dbsp.sum("x"), "hi": dbsp.max("x"), "d": dbsp.count_distinct("x")}
updated = windows.aggregate(**AGGREGATES)
final = windows.aggregate(emit="final", **AGGREGATES)
Row = tuple[str, int | None, float]

rows = st.tuples(st.sampled_from("ab"), st.one_of(st.none(), st.integers(0, 40)), st.sampled_from([0.5, 1.0, 2.0]))
actions = st.one_of(
    st.tuples(st.just("insert"), rows),
    st.tuples(st.just("insert"), rows),
    st.tuples(st.just("remove"), st.integers(0, 50)),
    st.tuples(st.just("step")),
    st.tuples(st.just("step")),
    st.tuples(st.just("checkpoint")),
    st.tuples(st.just("restart")),
    st.tuples(st.just("rescale"), st.integers(1, 5)),
)


def time_of(second: int | None) -> dt.datetime | None:
    return None if second is None else START + dt.timedelta(seconds=second)


def as_dict(row: Row) -> dict[str, Any]:
    return {"k": row[0], "at": time_of(row[1]), "x": row[2]}


def push(second: int) -> list[tuple[Any, ...]]:
    """A row at this second, in a step of its own."""
    return [("insert", ("a", second, 1.0)), ("step",)]


class Oracle:
    """What a reader of the docs would expect, kept in lists."""

    def __init__(self) -> None:
        self.line: int | None = None
        self.seen: int | None = None
        self.rows: list[Row] = []
        self.late: Counter[tuple[str, float, int]] = Counter()
        self.emitted: Counter[Any] = Counter()

    def step(self, changes: list[tuple[Row, int]]) -> None:
        """One step: late rows leave, the waterline rises behind it."""
        if self.seen is not None:
            self.line = self.seen - LATENESS
        late: Counter[Row] = Counter()
        for row, weight in changes:
            if row[1] is not None and self.line is not None and row[1] < self.line:
                late[row] += weight
            elif weight > 0:
                self.rows.append(row)
                if row[1] is not None:
                    self.seen = row[1] if self.seen is None else max(self.seen, row[1])
            else:
                self.rows.remove(row)
        self.late.update((k, x, weight) for (k, _, x), weight in late.items() if weight)
        for group in self.groups():
            if group[1] is not None and self.line is not None and group[1] <= self.line:
                self.emitted[group] = 1

    def groups(self) -> Counter[Any]:
        """One row per group, of the rows accepted so far."""
        found: dict[Any, list[float]] = {}
        for k, at, x in self.rows:
            end = None if at is None else at // SIZE * SIZE + SIZE
            found.setdefault((k, end), []).append(x)
        return Counter((k, end, len(xs), sum(xs), max(xs), len(set(xs))) for (k, end), xs in found.items())


def plain(row: tuple[Any, ...]) -> tuple[Any, ...]:
    end = None if row[1] is None else int((row[1] - START).total_seconds())
    return (row[0], end, *row[2:])


@settings(max_examples=examples(80), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(actions, max_size=30), st.integers(1, 3))
@example([*push(5), ("insert", ("a", 0, 0.5)), ("insert", ("a", 0, 0.5))], 1)  # one letter for two equal rows of a step
@example([*push(14), ("step",), *push(15)], 1)  # a window that begins at the waterline is open
@example([*push(14), *push(10), *push(9)], 2)  # a row at the waterline is in time
@example([*push(30), *push(28), *push(25)], 2)  # the waterline never falls
def test_late_rows_leave_and_closed_windows_stay(history: list[tuple[Any, ...]], workers: int) -> None:
    oracle, waiting, accepted = Oracle(), list[tuple[Row, int]](), list[Row]()
    seen, came = Counter[Any](), Counter[Any]()
    circuit = dbsp.circuit("c", {"updated": updated, "final": final}, materialize=["updated"])
    with dbsp.open(circuit, workers=workers, partitions=2) as run:
        for action in [*history, ("step",), ("step",)]:
            match action:
                case ("insert", row):
                    waiting.append((row, 1))
                    run.push("t", [as_dict(row)])
                case ("remove", at) if accepted:
                    row = accepted.pop(at % len(accepted))
                    waiting.append((row, -1))
                    run.delete("t", [as_dict(row)])
                case ("step",):
                    oracle.step(waiting)
                    waiting, accepted = [], list(oracle.rows)
                    change = run.step()
                    seen.update({plain(r): 0 for r, _ in change["updated"].to_rows()})
                    for r, weight in change["updated"].to_rows():
                        seen[plain(r)] += weight
                    for r, weight in change["final"].to_rows():
                        assert weight > 0
                        came[plain(r)] += weight
                    assert +seen == oracle.groups()
                    assert came == oracle.emitted
                case ("checkpoint",):
                    run.checkpoint()
                case ("restart",):
                    run.restart()
                case ("rescale", count):
                    run.rescale(count)
        assert {plain(r): w for r, w in run.view("updated").to_rows()} == oracle.groups()
        letters = Counter[Any]()
        for letter in run.dead_letters():
            row = json.loads(letter.payload)
            assert letter.reason.startswith("late: at is below the waterline")
            letters[row["k"], row["x"], letter.weight] += 1
        assert letters == oracle.late


def feed(run: Any, step: int, keys: int) -> None:
    at = START + dt.timedelta(seconds=step)
    run.push("t", [{"k": f"key {key}", "at": at, "x": float(key % 7)} for key in range(keys)])
    run.step()
    run.forget_outputs()


SHAPES = {
    "group": windows.aggregate(**AGGREGATES),
    "hop": t.hop("at", dbsp.seconds(10), dbsp.seconds(5)).group_by("k", "window_start").aggregate(m=dbsp.max("x")),
    "distinct": t.select("k", "at").distinct(),
    "top": t.tumble("at", dbsp.seconds(10)).top_k(2, by=dbsp.desc("x"), partition_by=["k", "window_start"]),
    "join": t.select("k", "at").join(t.select("at", "x"), on="at").group_by().aggregate(n=dbsp.count()),
    "derived": t.group_by("k", minute=dbsp.col("at").truncate("minute")).aggregate(s=dbsp.sum("x")),
    "final": final,
    "lag": t.tumble("at", dbsp.seconds(10))
    .window(order_by="x", partition_by=["k", "window_start"])
    .with_columns(before=dbsp.lag("x")),
}


@pytest.mark.parametrize("shape", some(list(SHAPES)))
def test_state_of_closed_windows_is_freed(shape: str) -> None:
    """Hundreds of windows pass: the state stays as large as a few of them, on any number of workers."""
    circuit = dbsp.circuit("c", {"v": SHAPES[shape]}, materialize=False)
    with dbsp.open(circuit, workers=2) as run:
        sizes = []
        for step in range(240):
            feed(run, step, keys=20)
            if step == 120:
                run.rescale(3)
            sizes.append(sum(worker.state_bytes for worker in run.reports[-1].workers))
        assert max(sizes[180:]) < 1.5 * max(sizes[60:120])
        run.push("t", [{"k": "z", "at": START + dt.timedelta(days=1), "x": 0.0}])
        for _ in range(40):
            run.step()
        left = sum(worker.state_bytes for worker in run.reports[-1].workers)
        assert left < max(sizes) / 4


def test_a_row_without_a_watermark_is_never_dropped() -> None:
    bare = dbsp.table("t", {"k": dbsp.STRING, "at": dbsp.TIMESTAMP, "x": dbsp.FLOAT64})
    view = bare.tumble("at", dbsp.seconds(SIZE)).group_by("k", "window_end").aggregate(**AGGREGATES)
    with dbsp.open(dbsp.circuit("c", {"v": view}, materialize=False)) as run:
        sizes = []
        for step in range(200):
            feed(run, step, keys=20)
            sizes.append(run.reports[-1].workers[0].state_bytes)
        assert sizes[199] > 3 * sizes[40]


def test_late_rows_stop_nothing_and_replay_alike() -> None:
    view = t.select("x")
    circuit = dbsp.circuit("c", {"v": view}, error_policy="stop")
    with dbsp.open(circuit, workers=2, partitions=2) as run:
        run.push("t", [as_dict(("a", 30, 1.0))], partition=0)
        run.step()
        run.push("t", [as_dict(("a", 25, 1.0))], partition=1)
        run.step()
        letters = run.dead_letters()
        assert [sum(worker.late for worker in report.workers) for report in run.reports] == [0, 1]
        run.restart()
        assert [letter.weight for letter in letters] == [1]
        assert run.dead_letters() == letters


def test_final_without_a_watermark_says_what_to_write() -> None:
    bare = dbsp.table("u", {"at": dbsp.TIMESTAMP})
    counts = bare.tumble("at", dbsp.seconds(SIZE)).group_by("window_end").aggregate(emit="final", n=dbsp.count())
    with pytest.raises(dbsp.CircuitError, match=r"nothing says when a row is final.*test_watermarks.py.*watermark="):
        dbsp.open(dbsp.circuit("c", {"v": counts}))


@pytest.mark.parametrize(
    "make",
    [
        lambda: dbsp.table("u", {"at": dbsp.TIMESTAMP}, watermark={"at": 5}),  # type: ignore[dict-item]
        lambda: dbsp.table("u", {"at": dbsp.INT64}, watermark={"at": dbsp.seconds(5)}),
        lambda: dbsp.table("u", {"at": dbsp.TIMESTAMP}, watermark={"to": dbsp.seconds(5)}),
        lambda: t.with_watermark("at", dbsp.seconds(-1)),
        lambda: windows.aggregate(emit="last", n=dbsp.count()),
    ],
)
def test_what_does_not_fit_is_refused(make: Any) -> None:
    with pytest.raises(dbsp.CircuitError, match=r"such as|write|there is"):
        make()

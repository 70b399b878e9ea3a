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
SIZE, LATENESS, PARTITIONS, IDLE_S = 10, 4, 2, 60
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
partitions = st.integers(0, PARTITIONS - 1)
actions = st.one_of(
    st.tuples(st.just("insert"), rows, partitions),
    st.tuples(st.just("insert"), rows, partitions),
    st.tuples(st.just("remove"), st.integers(0, 50), partitions),
    st.tuples(st.just("step"), st.sampled_from([0, 0, 25, IDLE_S])),
    st.tuples(st.just("step"), st.just(0)),
    st.tuples(st.just("checkpoint")),
    st.tuples(st.just("restart")),
    st.tuples(st.just("rescale"), st.integers(1, 5)),
)


def time_of(second: int | None) -> dt.datetime | None:
    return None if second is None else START + dt.timedelta(seconds=second)


def as_dict(row: Row) -> dict[str, Any]:
    return {"k": row[0], "at": time_of(row[1]), "x": row[2]}


def push(second: int) -> list[tuple[Any, ...]]:
    """A row at this second in each partition, in a step of its own."""
    return [*(("insert", ("a", second, 1.0), each) for each in range(PARTITIONS)), ("step", 0)]


class Oracle:
    """What a reader of the docs would expect, kept in lists."""

    def __init__(self) -> None:
        self.clock_s = 0
        self.line: int | None = None
        self.seen: dict[int, int] = {}
        self.rests: dict[int, int] = {}
        self.idle: set[int] = set()
        self.rows: list[Row] = []
        self.late: Counter[tuple[str, float, int]] = Counter()
        self.emitted: Counter[Any] = Counter()

    def agree(self, moved: set[int]) -> None:
        """The waterline of a step that has rows of these partitions: the least over those that are not idle."""
        waits = {each: self.clock_s - self.rests.setdefault(each, self.clock_s) for each in range(PARTITIONS)}
        self.idle = {each for each, s in waits.items() if each not in moved and (each in self.idle or s >= IDLE_S)}
        self.rests.update(dict.fromkeys(moved, self.clock_s))
        active = set(range(PARTITIONS)) - self.idle
        if self.seen.keys() >= (active or {-1}):
            line = min(self.seen[each] for each in active) - LATENESS
        elif not active and self.seen:
            line = max(self.seen.values()) - LATENESS
        else:
            return
        self.line = line if self.line is None else max(self.line, line)

    def step(self, changes: list[tuple[Row, int, int]]) -> None:
        """One step: late rows leave, the waterline rises behind it."""
        self.agree({partition for _, _, partition in changes})
        late: Counter[Row] = Counter()
        for row, weight, partition in changes:
            if row[1] is not None and weight > 0:
                self.seen[partition] = max(row[1], self.seen.get(partition, row[1]))
            if row[1] is not None and self.line is not None and row[1] < self.line:
                late[row] += weight
            elif weight > 0:
                self.rows.append(row)
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
@example(
    [*push(5), ("insert", ("a", 0, 0.5), 0), ("insert", ("a", 0, 0.5), 1)], 1
)  # one letter for two equal rows of a step
@example([*push(14), ("step", 0), *push(15)], 1)  # a window that begins at the waterline is open
@example([*push(14), *push(10), *push(9)], 2)  # a row at the waterline is in time
@example([*push(30), *push(28), *push(25)], 2)  # the waterline never falls
@example([("insert", ("a", 30, 1.0), 0), ("step", 0), ("insert", ("a", 5, 1.0), 1), ("step", 0)], 2)  # 1 has had no row
@example(
    [*push(9), ("insert", ("a", 30, 1.0), 0), ("step", IDLE_S), ("step", 0), ("insert", ("a", 9, 1.0), 1)], 2
)  # 1 was idle
def test_late_rows_leave_and_closed_windows_stay(history: list[tuple[Any, ...]], workers: int) -> None:
    oracle, waiting, accepted = Oracle(), list[tuple[Row, int, int]](), list[Row]()
    seen, came = Counter[Any](), Counter[Any]()
    circuit = dbsp.circuit("c", {"updated": updated, "final": final}, materialize=["updated"])
    with dbsp.open(circuit, workers=workers, partitions=PARTITIONS, idle_s=IDLE_S) as run:
        for action in [*history, ("step", 0), ("step", 0)]:
            match action:
                case ("insert", row, partition):
                    waiting.append((row, 1, partition))
                    run.push("t", [as_dict(row)], partition=partition)
                case ("remove", at, partition) if accepted:
                    row = accepted.pop(at % len(accepted))
                    waiting.append((row, -1, partition))
                    run.delete("t", [as_dict(row)], partition=partition)
                case ("step", seconds):
                    oracle.clock_s += seconds
                    oracle.step(waiting)
                    waiting, accepted = [], list(oracle.rows)
                    change = run.step(clock=START + dt.timedelta(seconds=oracle.clock_s))
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


@pytest.mark.parametrize("shape", some(list(SHAPES), 2))
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
        for partition in range(2):
            run.push("t", [as_dict(("a", 30, 1.0))], partition=partition)
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
    with pytest.raises(
        dbsp.CircuitError, match=r"no watermark says when a row is final.*test_watermarks.py.*watermark="
    ):
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

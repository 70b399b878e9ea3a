"""Window functions that run to an end of the partition: large partitions in small blocks, and what a change of them reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

import dbsp
from dbsp.operators.order import blocks, window
from dbsp.operators.order.blocks import BlocksChange, BlockTrace
from dbsp.operators.order.window import WindowOperator
from dbsp.operators.order.window_calls import WindowCall
from dbsp.operators.order.window_places import Frame
from dbsp.trace.spine import Spine
from tests.operators.driver import Driver, batch
from tests.operators.test_window import SCHEMA, over, paired_over, placed_over, schema, sorted_over, wanted

Row = tuple[Any, ...]
ENDS = [(None, 0), (None, 2), (None, -1), (None, -3), (0, None), (2, None), (-1, None), (-3, None), (None, None)]
FRAMES = [Frame(kind=kind, preceding=before, following=behind) for kind in ("rows", "range") for before, behind in ENDS]
BY_TIME = [("t", False, False)]
MET = ("behind all", "before all", "in the midst", "vanished", "block cut", "block gone", "same total", "other total")


class Storm:
    """Rows of two partitions, changed so that all that matters is met; `met` counts it."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.held: list[Row] = []
        self.met: Counter[str] = Counter()

    def row(self, part: str, time: int | None) -> Row:
        text, number = self.random.choice(["x", "y", "", None]), self.random.choice([None, 0.1, 0.2, -3.5, 1e16, 7.0])
        return part, text, time, number

    def times(self, part: str) -> list[int]:
        return sorted(row[2] for row in self.held if row[0] == part and row[2] is not None) or [0]

    def steps(self) -> Iterator[list[tuple[Row, int]]]:
        yield self.changed([(self.row(part, 2 * at), 1) for part in "ab" for at in range(12)])
        for _ in range(12):
            part = self.random.choice("ab")
            times = self.times(part)
            mine = [row for row in self.held if row[0] == part]
            yield self.changed(
                self.random.choice(
                    [
                        lambda: [(self.row(part, times[-1] + at), 1) for at in range(1, 4)],  # noqa: B023 (called at once)
                        lambda: [(self.row(part, times[-1] + 1), 1), (self.row(part, None), 1)],  # noqa: B023
                        lambda: [(self.row(part, times[0] - 1), 1)],  # noqa: B023
                        lambda: [(self.row(part, self.random.choice(times)), 1)],  # noqa: B023
                        lambda: [(row, -1) for row in self.random.sample(mine, min(3, len(mine)))],  # noqa: B023
                        lambda: [(row, sign) for row in mine[:1] for sign in (-1, 1, 1)],  # noqa: B023
                        lambda: [(row, -1) for row in mine if row[2] is not None and 6 <= row[2] < 14],  # noqa: B023
                        lambda: [(row, -1) for row in mine],  # noqa: B023
                    ]
                )()
            )

    def changed(self, delta: list[tuple[Row, int]]) -> list[tuple[Row, int]]:
        for row, weight in delta:
            times, time = self.times(row[0]), row[2]
            there = time is not None and any(row[0] == other[0] for other in self.held)
            self.met["behind all"] += there and time > times[-1]
            self.met["before all"] += there and time < times[0]
            self.met["in the midst"] += there and times[0] < time < times[-1]
            if weight > 0:
                self.held.append(row)
            else:
                self.held.remove(row)
                self.met["vanished"] += all(row[0] != other[0] for other in self.held)
        return delta


@pytest.fixture(scope="module")
def met() -> Counter[str]:
    return Counter()


def noted(met: Counter[str], patch: pytest.MonkeyPatch) -> None:
    """Count what becomes of blocks and totals."""
    change, totals = BlockTrace.change, window.other_totals

    def counted(*given: Any) -> BlocksChange:
        found = change(*given)
        was = Counter(found.blocks.part[found.touched].tolist())
        now = Counter(found.part.tolist())
        met["block cut"] += any(now[part] > max(count, 1) for part, count in was.items()) or bool(now - was)
        met["block gone"] += bool(was - now)
        return found

    def compared(*given: Any) -> Any:
        found = totals(*given)
        if any(call.total for call in given[0]):
            divided = given[2].of >= 0
            met["other total"] += bool(found.any())
            met["same total"] += bool((divided & ~found).any())
        return found

    patch.setattr(BlockTrace, "change", counted)
    patch.setattr(window, "other_totals", compared)


def operator(calls: list[WindowCall], order: list[tuple[str, bool, bool]]) -> WindowOperator:
    by = tuple(dbsp.OrderBy(*item) for item in order)
    return WindowOperator(input=SCHEMA, partition=("p",), order=by, calls=tuple(calls), schema=schema(calls))


@pytest.mark.parametrize("frame", FRAMES, ids=str)
def test_what_runs_to_an_end_is_that_of_the_sorted_partition(
    frame: Frame, met: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    noted(met, monkeypatch)
    order = [("t", FRAMES.index(frame) % 3 == 0, FRAMES.index(frame) % 2 == 0)]
    for seed, calls in enumerate([over(frame), sorted_over(frame)[-2:] + paired_over(frame)[:2], placed_over(frame)]):
        monkeypatch.setattr(blocks, "block_rows", lambda _, rows=1 + seed: rows)
        driver, storm = Driver(operator(calls, order)), Storm(FRAMES.index(frame) + 100 * seed)
        for delta in storm.steps():
            driver.step(batch(SCHEMA, delta))
            assert driver.answer == wanted(storm.held, order, calls)
        met += storm.met


def test_all_of_it_was_met(met: Counter[str]) -> None:
    """By the storms above, which run in the same process; alone there is nothing to say."""
    if not met:
        pytest.skip("the storms did not run")
    assert all(met[what] for what in MET), met


def test_what_lies_in_front_is_that_of_the_own_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two partitions change in one step, and have other sums in front."""
    monkeypatch.setattr(blocks, "block_rows", lambda _: 2)
    frame = Frame(kind="rows", preceding=None, following=0)
    calls = over(frame) + paired_over(frame)[:2]
    driver, held = Driver(operator(calls, BY_TIME)), []
    for times in (range(9), range(9, 10)):
        rows = [(part, None, time, time + ord(part) / 7) for part in "ab" for time in times]
        held += rows
        driver.step(batch(SCHEMA, [(row, 1) for row in rows]))
        assert driver.answer == wanted(held, BY_TIME, calls)


READ_AND_GIVEN = {
    "from the start": ("sum", (None, 0), [(10, 1), (501, 1 + 2 * 500), (2 + 1000, 1 + 2 * 999)]),
    "to the end": ("sum", (0, None), [(1000, 1 + 2 * 1000), (510, 1 + 2 * 500), (10, 1)]),
    "the same total": ("max", (None, None), [(10, 1), (10, 1), (10, 1)]),
    "another total": (
        "count",
        (None, None),
        [(10 + 1000, 1 + 2 * 1000), (10 + 1001, 1 + 2 * 1000), (10 + 1002, 1 + 2 * 999)],
    ),
}


@pytest.mark.parametrize("name", READ_AND_GIVEN)
def test_what_a_change_reads_and_gives(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that comes behind all others, one that goes in the midst, one at the start, in blocks of ten; all rows that are
    stored are read only where all have another value, and then after the block in which the change is."""
    function, ends, expected = READ_AND_GIVEN[name]
    read: list[int] = []
    ranges = Spine.ranges

    def noting(self: Spine, *asked: Any) -> Any:
        found = ranges(self, *asked)
        read[-1] += len(found[1]) if self.arrangement.schema == SCHEMA else 0
        return found

    monkeypatch.setattr(Spine, "ranges", noting)
    monkeypatch.setattr(blocks, "block_rows", lambda _: 10)
    frame = Frame(kind="rows", preceding=ends[0], following=ends[1])
    rows = [("a", None, n, float(n + 1)) for n in range(1000)]
    calls = [WindowCall(name="v", function=function, column="x", frame=frame)]
    driver, found = Driver(operator(calls, BY_TIME)), []
    for delta in ([(row, 1) for row in rows], [(("a", None, 1000, 1.0), 1)], [(rows[500], -1)], [(rows[0], -1)]):
        read.append(0)
        given = sum(map(abs, driver.step(batch(SCHEMA, delta)).values()))
        found.append((read[-1], given))
    assert found[1:] == expected
    assert driver.answer == wanted([*rows[1:500], *rows[501:], ("a", None, 1000, 1.0)], BY_TIME, calls)

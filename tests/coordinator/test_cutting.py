"""Ranges of steps: contiguous, bounded, nothing left behind."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbsp.coordinator.decisions.cutting import advance, backlog, begin, cut, keep_whole
from dbsp.coordinator.limits import StepLimits
from dbsp.errors import DataError
from dbsp.logs import Range, StepRecord

PLACES = st.tuples(st.sampled_from("abc"), st.integers(0, 2))
ENDS = st.dictionaries(PLACES, st.integers(0, 500), max_size=6)


def record(number: int, ranges: object) -> StepRecord:
    return StepRecord(epoch=1, step=number, layout_version=0, ranges=ranges, clock_us=0, engine="")  # type: ignore[arg-type]


@given(ENDS, st.integers(1, 60), st.integers(1, 500), st.floats(0, 20))
def test_steps_cover_the_input_without_gap(
    ends: dict[tuple[str, int], int], rows: int, size: int, weight: float
) -> None:
    limits = StepLimits(max_rows_per_step=rows, max_step_bytes=size)
    weights = dict.fromkeys("abc", weight)
    done: dict[tuple[str, int], int] = {}
    for number in range(2000):
        found = backlog(ends, done, weights, limits)
        ranges = cut(found, done, limits)
        if not ranges:
            break
        taken = sum(r.last - r.first for r in ranges)
        assert 0 < taken <= rows
        assert taken * weight <= size + (len(ranges) + 1) * weight
        assert len(ranges) == min(rows, len(found.waiting)), "of every place something"
        done = advance(done, [record(number, ranges)])
    assert done == {place: end for place, end in ends.items() if end}


def test_a_table_that_always_has_more_than_a_step_takes_leaves_a_row_of_each_other() -> None:
    limits = StepLimits(max_rows_per_step=100)
    found = backlog({("a", 0): 100_000, ("b", 0): 1, ("c", 0): 2}, {}, {}, limits)
    assert {each.table: each.last for each in cut(found, {}, limits)} == {"a": 98, "b": 1, "c": 1}


Place = tuple[str, int]


def pushed(draw: random.Random, places: list[Place]) -> tuple[dict[Place, int], list[list[Range]]]:
    """Ends of the places after rows came alone and in transactions, and the transactions."""
    ends, found = dict.fromkeys(places, 0), []
    for _ in range(draw.randrange(1, 25)):
        chosen = draw.sample(places, draw.randint(1, len(places)))
        ranges = []
        for table, partition in chosen:
            first = ends[table, partition]
            ends[table, partition] += draw.randint(1, 12)
            ranges.append(Range(table=table, partition=partition, first=first, last=ends[table, partition]))
        if draw.random() < 0.6:
            found.append(ranges)
    return ends, found


@given(st.integers(0, 1 << 32))
def test_a_transaction_is_taken_by_one_step(seed: int) -> None:
    """Whatever is pushed between the steps, and however few rows a step may take; and every step takes something."""
    draw = random.Random(seed)
    places = [("a", 0), ("b", 0), ("b", 1), ("c", 0)][: draw.randint(1, 4)]
    ends, transactions = pushed(draw, places)
    limits = StepLimits(max_rows_per_step=draw.randint(1, 40))
    done: dict[Place, int] = {}
    taken_by: list[dict[Place, tuple[int, int]]] = []
    for number in itertools.count():
        found = backlog(ends, done, {}, limits)
        if not found.rows:
            break
        some = cut(found, done, limits)
        ranges = keep_whole(some, found, done, transactions)
        assert ranges
        rows = sum(r.last - r.first for r in ranges)
        assert rows <= limits.max_rows_per_step or is_oldest(ranges, transactions, done)
        if not any(parted(transaction, some, done) for transaction in transactions):
            assert ranges == some, "nothing is held back without need"
        taken_by.append({(r.table, r.partition): (r.first, r.last) for r in ranges})
        done = advance(done, [record(number, ranges)])
    assert done == {place: end for place, end in ends.items() if end}
    for transaction in transactions:
        steps = {step for r in transaction for step, taken in enumerate(taken_by) if overlaps(r, taken)}
        assert len(steps) == 1


def overlaps(range_: Range, taken: dict[Place, tuple[int, int]]) -> bool:
    first, last = taken.get((range_.table, range_.partition), (0, 0))
    return first < range_.last and range_.first < last


def parted(transaction: list[Range], ranges: tuple[Range, ...], done: dict[Place, int]) -> bool:
    """Whether some of its rows are in the ranges, and some are not."""
    last = {(r.table, r.partition): r.last for r in ranges}
    ends = [last.get((r.table, r.partition), done.get((r.table, r.partition), 0)) for r in transaction]
    return any(r.first < end for r, end in zip(transaction, ends, strict=True)) and any(
        end < r.last for r, end in zip(transaction, ends, strict=True)
    )


def is_oldest(ranges: tuple[Range, ...], transactions: list[list[Range]], done: dict[Place, int]) -> bool:
    """Whether a step of too many rows ends where the oldest transaction that waits does."""
    waiting = [each for each in transactions if any(r.last > done.get((r.table, r.partition), 0) for r in each)]
    last = {(r.table, r.partition): r.last for r in ranges}
    return last == {(r.table, r.partition): r.last for r in waiting[0]}


def test_rows_of_tables_that_are_not_read_hold_nothing_back() -> None:
    found = backlog({("a", 0): 10}, {}, {}, StepLimits(max_rows_per_step=4))
    both = [Range(table="a", partition=0, first=0, last=4), Range(table="gone", partition=0, first=0, last=9)]
    ranges = cut(found, {}, StepLimits(max_rows_per_step=4))
    assert keep_whole(ranges, found, {}, [both]) == ranges


def test_an_input_that_shrank_is_an_error() -> None:
    with pytest.raises(DataError, match="below what was processed"):
        backlog({("a", 0): 3}, {("a", 0): 4}, {}, StepLimits())


def test_a_place_begins_where_its_log_does_or_where_it_was_first_read() -> None:
    records = [record(number, (Range(table="b", partition=0, first=5 + number, last=6 + number),)) for number in (0, 1)]
    floors = {("a", 0): 9, ("a", 1): 4, ("b", 0): 8, ("c", 0): 0}
    begun = begin({("a", 0): 3}, records, floors)
    assert begun == {("a", 0): 3, ("a", 1): 4, ("b", 0): 5}
    assert advance(begun, records) == {("a", 0): 3, ("a", 1): 4, ("b", 0): 7}


def test_a_gap_in_the_step_log_is_an_error() -> None:
    with pytest.raises(DataError, match="does not follow"):
        advance({("a", 0): 3}, [record(1, (Range(table="a", partition=0, first=4, last=5),))])

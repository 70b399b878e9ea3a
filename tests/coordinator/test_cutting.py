"""Ranges of steps: contiguous, bounded, nothing left behind."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dbsp.coordinator.decisions.cutting import advance, backlog, begin, cut, cut_whole, keep_whole
from dbsp.coordinator.decisions.limits import StepLimits
from dbsp.errors import DataError
from dbsp.logs import Range, StepRecord
from dbsp.logs.sizes import Sizes, even

PLACES = st.tuples(st.sampled_from("abc"), st.integers(0, 2))


def record(number: int, ranges: object) -> StepRecord:
    return StepRecord(epoch=1, step=number, layout_version=0, ranges=ranges, clock_us=0, engine="")  # type: ignore[arg-type]


@given(
    st.dictionaries(PLACES, st.lists(st.tuples(st.integers(1, 60), st.integers(0, 2000)), max_size=9), max_size=6),
    st.integers(1, 60),
    st.integers(1, 5000),
)
def test_steps_cover_the_input_without_gap(
    stretches: dict[tuple[str, int], list[tuple[int, int]]], rows: int, size: int
) -> None:
    """And none has more bytes than it may, however unequal records are, but where the first row of each place has."""
    limits = StepLimits(max_rows_per_step=rows, max_step_bytes=size)
    sizes = {place: Sizes.of(0, found) for place, found in stretches.items()}
    ends = {place: found.last for place, found in sizes.items()}
    done: dict[tuple[str, int], int] = {}
    for number in range(2000):
        found = backlog(ends, done, sizes, limits)
        ranges = cut(found, done, limits)
        if not ranges:
            break
        taken = sum(r.last - r.first for r in ranges)
        assert 0 < taken <= rows
        firsts = sum(sizes[place].between(at := done.get(place, 0), at + 1) for place in found.waiting)
        assert sum(sizes[r.table, r.partition].between(r.first, r.last) for r in ranges) <= max(size, firsts)
        assert len(ranges) == min(rows, len(found.waiting)), "of every place something"
        done = advance(done, [record(number, ranges)])
    assert done == {place: end for place, end in ends.items() if end}


def test_wide_rows_behind_many_narrow_ones_are_cut_by_their_own_bytes() -> None:
    sizes = {("a", 0): Sizes.of(0, [(4_000_000, 56_000_000), *[(5_000, 50_000_000)] * 44])}
    done, limits = {("a", 0): 4_000_000}, StepLimits(max_step_bytes=256 << 20)
    found = backlog({("a", 0): 4_220_000}, done, sizes, limits)
    assert found.size_bytes == 44 * 50_000_000
    assert found.full
    assert cut(found, done, limits) == tuple(taken({"a": (4_000_000, 4_025_000)}))


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
        ranges = cut_whole(found, done, limits, transactions, number)
        assert ranges
        rows = sum(r.last - r.first for r in ranges)
        assert rows <= limits.max_rows_per_step or is_oldest(ranges, transactions, done)
        if not any(parted(transaction, some, done) for transaction in transactions):
            turns = number % 2 == 0 and not holds_oldest(some, transactions, done)
            assert turns or ranges == some, "nothing is held back without need"
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
    """Whether a step of too many rows has the oldest transaction that waits, and nothing else."""
    return sorted(map(str, ranges)) == sorted(map(str, waiting(transactions, done)[0]))


def holds_oldest(ranges: tuple[Range, ...], transactions: list[list[Range]], done: dict[Place, int]) -> bool:
    last = {(r.table, r.partition): r.last for r in ranges}
    return all(r.last <= last.get((r.table, r.partition), 0) for r in next(iter(waiting(transactions, done)), []))


def waiting(transactions: list[list[Range]], done: dict[Place, int]) -> list[list[Range]]:
    return [each for each in transactions if any(r.last > done.get((r.table, r.partition), 0) for r in each)]


@dataclass
class Traffic:
    """A log that is pushed to between any two steps, and until when each push has to be taken."""

    limits: StepLimits
    places: list[Place]
    weight: int
    done: dict[Place, int] = field(default_factory=dict)
    ends: dict[Place, int] = field(default_factory=dict)
    transactions: list[list[Range]] = field(default_factory=list)
    due: list[tuple[int, list[Range]]] = field(default_factory=list)

    def push(self, step: int, rows: dict[Place, int], *, together: bool) -> None:
        """What waits longest: the transactions that came before, and the rows before them and before these."""
        ranges = []
        for (table, partition), count in rows.items():
            first = self.ends.get((table, partition), 0)
            self.ends[table, partition] = first + count
            ranges.append(Range(table=table, partition=partition, first=first, last=first + count))
        self.transactions = waiting(self.transactions, self.done) + ([ranges] if together else [])
        before = {(r.table, r.partition): r.last for each in self.transactions for r in each}
        ahead = sum(end - self.done.get(place, 0) for place, end in before.items())
        steps = ahead / self.limits.max_rows_per_step + ahead * self.weight / self.limits.max_step_bytes
        soon = 2 * (2 * len(self.transactions) + math.ceil(steps))
        alone = 0 if together else 2 * max(r.last - self.done.get((r.table, r.partition), 0) for r in ranges)
        self.due.append((step + soon + alone, ranges))

    def come(self, draw: random.Random, step: int, kinds: dict[Place | None, int]) -> None:
        """As many pushes as keep some rows waiting of each kind: those of one place, and transactions (None)."""
        for place, rows in kinds.items():
            for _ in range(draw.randint(0, 4)):
                chosen = [place] if place else draw.sample(self.places, draw.randint(1, len(self.places)))
                if max(self.ends.get(each, 0) - self.done.get(each, 0) for each in chosen) < 2 * rows:
                    self.push(step, {each: draw.randint(1, rows) for each in chosen}, together=place is None)


@settings(deadline=None)
@given(st.integers(0, 1 << 32))
def test_every_push_is_taken_in_a_bounded_number_of_steps_whatever_else_comes(seed: int) -> None:
    """However large the transactions are, whatever they stand behind, and whoever keeps more waiting than steps take."""
    draw = random.Random(seed)
    places = [("a", 0), ("b", 0), ("b", 1), ("c", 0)][: draw.randint(1, 4)]
    rows = draw.randint(len(places), 40)
    weight = draw.choice([0, 0, 1, 7])
    limits = StepLimits(max_rows_per_step=rows, max_step_bytes=draw.randint(50, 200))
    log = Traffic(limits=limits, places=places, weight=weight)
    sizes = [1, 5, rows, 3 * rows]
    kinds: dict[Place | None, int] = {place: draw.choice(sizes) for place in places if draw.random() < 0.7}
    kinds[None] = draw.choice(sizes)
    for step in range(draw.randrange(20, 150)):
        log.come(draw, step, kinds)
        sizes = {place: even(0, end, weight) for place, end in log.ends.items()}
        found = backlog(log.ends, log.done, sizes, limits)
        if draw.random() < 0.3:  # what came after the ends were read
            log.come(draw, step, kinds)
        if not found.rows:
            continue
        transactions = waiting(log.transactions, log.done)
        ranges = cut_whole(found, log.done, limits, transactions, step)
        taken = sum(r.last - r.first for r in ranges)
        few = taken <= rows and taken * weight <= limits.max_step_bytes
        assert few or is_oldest(ranges, transactions, log.done)
        assert not any(parted(transaction, ranges, log.done) for transaction in transactions)
        assert all(r.last <= log.done.get(place := (r.table, r.partition), 0) + found.waiting[place] for r in ranges)
        log.done = advance(log.done, [record(step, ranges)])
        log.due = [each for each in log.due if waiting([each[1]], log.done)]
        assert all(until > step for until, _ in log.due)


def taken(places: dict[str, tuple[int, int]]) -> list[Range]:
    return [Range(table=table, partition=0, first=first, last=last) for table, (first, last) in places.items()]


def test_the_oldest_transaction_goes_first_with_what_stands_before_it() -> None:
    limits, ends = StepLimits(max_rows_per_step=12), {("a", 0): 4, ("b", 0): 40, ("c", 0): 500}
    small, huge = taken({"a": (0, 4), "b": (30, 34)}), taken({"a": (0, 4), "b": (30, 40)})
    far, near, next_ = {("b", 0): 0}, {("b", 0): 29}, {("b", 0): 30}
    for transaction, done, expected in (
        (small, far, {"b": (0, 12)}),
        (small, near, {"a": (0, 4), "b": (29, 35), "c": (0, 2)}),
        (huge, near, {"b": (29, 30), "c": (0, 9)}),
        (huge, next_, {"a": (0, 4), "b": (30, 40)}),
    ):
        found = backlog(ends, done, {}, limits)
        assert cut_whole(found, done, limits, [transaction], 2) == tuple(taken(expected))


def test_other_rows_take_turns_with_transactions_that_fill_the_steps() -> None:
    limits = StepLimits(max_rows_per_step=10)
    found = backlog({("a", 0): 20, ("b", 0): 3}, {}, {}, limits)
    pair = [taken({"a": (0, 10)}), taken({"a": (10, 20)})]
    assert cut_whole(found, {}, limits, pair, 4) == tuple(taken({"a": (0, 10)}))
    assert cut_whole(found, {}, limits, pair, 5) == tuple(taken({"b": (0, 1)}))


def test_a_transaction_that_came_after_the_ends_were_read_waits() -> None:
    limits = StepLimits(max_rows_per_step=8)
    found = backlog({("a", 0): 3, ("c", 0): 50}, {}, {}, limits)
    late = taken({"a": (3, 5), "b": (0, 2)})
    for step in (0, 1):
        assert cut_whole(found, {}, limits, [late], step) == cut(found, {}, limits)


def test_rows_of_tables_that_are_not_read_hold_nothing_back() -> None:
    found = backlog({("a", 0): 10}, {}, {}, StepLimits(max_rows_per_step=4))
    both = [Range(table="a", partition=0, first=0, last=4), Range(table="gone", partition=0, first=0, last=9)]
    ranges = cut(found, {}, StepLimits(max_rows_per_step=4))
    assert keep_whole(ranges, found, {}, [both]) == ranges
    assert cut_whole(found, {}, StepLimits(max_rows_per_step=4), [both], 0) == ranges


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

"""Ranges of steps: contiguous, bounded, nothing left behind."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbsp.coordinator.decisions.cutting import advance, backlog, begin, cut
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
        done = advance(done, [record(number, ranges)])
    assert done == {place: end for place, end in ends.items() if end}


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

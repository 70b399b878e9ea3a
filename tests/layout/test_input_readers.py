"""Who reads an input partition: the laws of `assigned` against a search through all choices, and of layouts that go on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbsp.distribute.encoding import decode, encode
from dbsp.distribute.icadd import IcaddDistributor
from dbsp.errors import ConfigError
from dbsp.input_readers import Readers, assigned, reader_of
from dbsp.layout import initial, rescaled, with_readers
from dbsp.logs import Range
from dbsp.runtime import ahead

tables_drawn = st.dictionaries(st.sampled_from("tuv"), st.lists(st.integers(0, 5), max_size=9))
workers_drawn = st.sets(st.integers(0, 6), min_size=1, max_size=4).map(sorted)
sizes_drawn = st.dictionaries(st.sampled_from("tuvw"), st.integers(0, 9))


def spread(counts: Sequence[int]) -> int:
    return max(counts) - min(counts)


def is_even(readers: Readers, workers: Sequence[int]) -> bool:
    per_table = [[found.count(worker) for worker in workers] for _, found in readers]
    return all(
        spread(counts) <= 1 for counts in [*per_table, [sum(each) for each in zip(*per_table, strict=True)] or [0]]
    )


def moved(before: Mapping[str, Sequence[int]], readers: Readers) -> int:
    return sum(old != new for table, found in readers for old, new in zip(before[table], found, strict=True))


def fewest_moves(before: Mapping[str, Sequence[int]], workers: Sequence[int]) -> int:
    """The fewest moves of all choices of numbers per table and worker that are even, per table and together."""

    def numbers(count: int) -> Iterator[dict[int, int]]:
        each, rest = divmod(count, len(workers))
        for chosen in combinations(workers, rest):
            yield {worker: each + (worker in chosen) for worker in workers}

    best = sum(map(len, before.values()))
    for choice in product(*(list(numbers(len(readers))) for readers in before.values())):
        together = [sum(each[worker] for each in choice) for worker in workers]
        if spread(together) <= 1:
            kept = sum(
                min(each[worker], list(readers).count(worker))
                for each, readers in zip(choice, before.values(), strict=True)
                for worker in workers
            )
            best = min(best, sum(map(len, before.values())) - kept)
    return best


@given(tables_drawn, workers_drawn)
def test_readers_are_even_and_the_fewest_partitions_move(before: dict[str, list[int]], workers: list[int]) -> None:
    readers = assigned(before, workers)
    assert [(table, len(found)) for table, found in readers] == [
        (table, len(before[table])) for table in sorted(before)
    ]
    assert {reader for _, found in readers for reader in found} <= set(workers)
    assert is_even(readers, workers)
    assert moved(before, readers) == fewest_moves(before, workers)
    assert assigned(before, workers) == readers
    assert assigned(dict(readers), workers) == readers, "a second call changes nothing"


def test_the_rings_are_needed() -> None:
    """A choice table by table ends with more moves: here it gives u's extra partition to who has t's already."""
    before = {"t": (0, 0), "u": (0,), "v": (1,)}
    assert assigned(before, (0, 1)) == (("t", (0, 1)), ("u", (0,)), ("v", (1,)))
    many = {f"t{number:02}": tuple(range(number % 5)) for number in range(40)}
    readers = assigned(many, range(16))
    assert is_even(readers, range(16))


@given(tables_drawn, workers_drawn, st.integers(0, 20))
def test_newer_partitions_keep_a_table_even(before: dict[str, list[int]], workers: list[int], more: int) -> None:
    readers = assigned(before, workers)
    for table in (*before, "absent"):
        count = len(before.get(table, ())) + more
        found = [reader_of(readers, workers, table, partition) for partition in range(count)]
        assert spread([found.count(worker) for worker in workers]) <= 1
        assert found[: count - more] == list(dict(readers).get(table, ()))


@given(st.integers(1, 9), st.integers(0, 60))
def test_without_a_table_partition_p_belongs_to_worker_p_mod_w(workers: int, partition: int) -> None:
    """As in data of 0.1.0; also after rescales that know of no partition."""
    layout = rescaled(initial(2), workers, step=1)
    assert layout.readers == ()
    assert layout.reader_of("t", partition) == layout.workers[partition % workers]


@given(st.integers(1, 6), sizes_drawn, st.lists(st.tuples(st.integers(1, 6), sizes_drawn), max_size=4), st.booleans())
def test_layouts_that_go_on_have_one_reader_of_each_partition(
    first: int, counts: dict[str, int], rest: list[tuple[int, dict[str, int]]], listed: bool
) -> None:
    """Each range of a step is read once, whatever it is of; who stays keeps what it may; topics grow between rescales."""
    layouts = [with_readers(initial(first), counts) if listed else initial(first)]
    for step, (workers, more) in enumerate(rest):
        counts = {table: max(counts.get(table, 0), more.get(table, 0)) for table in counts | more}
        layouts.append(rescaled(layouts[-1], workers, step=step, partitions=counts))
        assert is_even(layouts[-1].readers, layouts[-1].workers)
        assert {table: len(found) for table, found in layouts[-1].readers} == counts
    for old, new in pairwise(layouts):
        before = {table: [old.reader_of(table, each) for each in range(len(found))] for table, found in new.readers}
        assert moved(before, new.readers) == fewest_moves(before, new.workers) if len(new.workers) < 5 else True
    for layout in layouts:
        ranges = [
            Range(table=table, partition=partition, first=0, last=1) for table in ("t", "x") for partition in range(12)
        ]
        read = Counter(range_ for worker in layout.workers for range_ in ahead.ranges_of(ranges, layout, worker))
        assert read == Counter(ranges)
        assert [p for p in range(12) if layout.reader_of("t", p) == layout.workers[0]] == layout.partitions_of(
            layout.workers[0], "t", 12
        )


@given(st.integers(1, 12), st.integers(1, 40))
def test_a_worker_that_joins_gets_its_share_and_the_others_keep_theirs(workers: int, partitions: int) -> None:
    old = with_readers(initial(workers), {"t": partitions})
    new = rescaled(old, workers + 1, step=3)
    share = partitions // (workers + 1)
    assert len(new.partitions_of(workers, "t", partitions)) in (share, share + 1)
    assert moved(dict(old.readers), new.readers) in (share, share + 1)
    assert rescaled(new, workers + 1, step=4).readers == new.readers


def test_a_layout_with_a_reader_that_is_no_worker_is_refused() -> None:
    with pytest.raises(ConfigError, match="an input partition belongs to an unknown worker: workers="):
        replace(initial(2), readers=(("t", (0, 2)),))


def test_a_layout_is_small_for_a_distributor() -> None:
    """Its bytes have no readers, so that a version that knows none can read them."""
    layout = initial(2)
    stored = encode(IcaddDistributor(worker=0, old=with_readers(layout, {"t": 3}), region=0))
    assert stored == encode(IcaddDistributor(worker=0, old=layout, region=0))
    assert decode(stored).old == layout

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
from dbsp.input_readers import BEGINS_ABOVE, ENDS_BELOW, Readers, assigned, balanced, reader_of
from dbsp.layout import initial, is_balanced, moved_partitions, rescaled, with_readers
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
        known = {table: (0,) * count for table, count in counts.items()}
        layouts.append(rescaled(layouts[-1], workers, step=step, partitions=known))
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


# --- with the rows of the last minutes -----------------------------------------------------------------------------

Counted = dict[str, list[tuple[int, int]]]
"""Per table, for each partition its present reader and its rows."""
counted_drawn: st.SearchStrategy[Counted] = st.dictionaries(
    st.sampled_from("tuv"),
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9) | st.integers(0, 1000)), max_size=9),
)


@st.composite
def cases(draw: st.DrawFn, *, even: bool = False) -> tuple[Counted, list[int], list[float], bool]:
    """Partitions with rows, workers with shares, and whether the workers have changed: else all readers are workers."""
    counted, workers, anew = draw(counted_drawn), draw(workers_drawn), draw(st.booleans())
    weights = [1.0] if even else [1.0, 1.0, 2.0, 0.3]
    shares = [draw(st.sampled_from(weights)) for _ in workers]
    if not anew:
        counted = {t: [(workers[at % len(workers)], rows) for at, rows in found] for t, found in counted.items()}
    return counted, workers, shares, anew


def columns(counted: Counted) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
    return (
        {table: [reader for reader, _ in found] for table, found in counted.items()},
        {table: [rows for _, rows in found] for table, found in counted.items()},
    )


def rows_of(readers: Readers, workers: Sequence[int], rows: Mapping[str, Sequence[int]]) -> list[int]:
    pairs = [(reader, count) for table, found in readers for reader, count in zip(found, rows[table], strict=True)]
    return [sum(count for reader, count in pairs if reader == worker) for worker in workers]


@given(cases())
def test_no_worker_has_much_more_than_its_share_of_the_rows(case: tuple[Counted, list[int], list[float], bool]) -> None:
    counted, workers, shares, anew = case
    before, rows = columns(counted)
    readers = balanced(before, workers, rows, shares, anew=anew)
    assert [(table, len(found)) for table, found in readers] == [
        (table, len(before[table])) for table in sorted(before)
    ]
    assert {reader for _, found in readers for reader in found} <= {*workers}, "every partition has one reader"
    assert readers == balanced(before, workers, rows, shares, anew=anew)
    assert balanced(dict(readers), workers, rows, shares, anew=False) == readers, "a second call changes nothing"
    total, most = sum(map(sum, rows.values())), max((count for found in rows.values() for count in found), default=0)
    for count, share in zip(rows_of(readers, workers, rows), shares, strict=True):
        part = share / sum(shares)
        known_even = total == 0 or (len({*shares}) == 1 and len({c for found in rows.values() for c in found}) == 1)
        assert known_even or count <= part * (total * (1 + 2 * BEGINS_ABOVE) + most * len(shares)) + 1e-6


@given(cases(), st.integers(1, 1000))
def test_where_rows_are_equal_or_unknown_partitions_count_the_same(
    case: tuple[Counted, list[int], list[float], bool], each: int
) -> None:
    counted, workers, shares, anew = case
    before, _ = columns(counted)
    for count, parts in ((0, shares), (each, [0.7] * len(workers))):
        rows = {table: [count] * len(found) for table, found in before.items()}
        assert balanced(before, workers, rows, parts, anew=anew) == assigned(before, workers)


@given(cases(even=True), st.data())
def test_small_fluctuations_move_nothing(
    case: tuple[Counted, list[int], list[float], bool], data: st.DataObject
) -> None:
    counted, workers, shares, anew = case
    before, rows = columns(counted)
    rows = {table: [count * 1000 for count in found] for table, found in rows.items()}
    readers = balanced(before, workers, rows, shares, anew=anew)
    if readers in (assigned(before, workers), tuple((table, tuple(before[table])) for table in sorted(before))):
        return  # nothing moved for its rows
    average = sum(map(sum, rows.values())) / len(workers)
    partitions = sum(map(len, rows.values()))
    change = int(average * (BEGINS_ABOVE - ENDS_BELOW) / 4 / partitions)
    other = {
        table: [max(0, count + data.draw(st.integers(-change, change))) if count else 0 for count in found]
        for table, found in rows.items()
    }
    assert balanced(dict(readers), workers, other, shares, anew=False) == readers


def test_only_what_gains_moves() -> None:
    two, even = (0, 1), (1.0, 1.0)
    hot = {"t": (90, 1, 90, 1)}
    assert balanced({"t": (0, 1, 0, 1)}, two, hot, even, anew=False) == (("t", (1, 1, 0, 1)),)
    assert balanced({"t": (0, 0, 1)}, two, {"t": (104, 104, 92)}, even, anew=False) == (("t", (0, 0, 1)),)
    assert balanced({"t": (0, 0, 1)}, two, {"t": (900, 1, 0)}, even, anew=False) == (("t", (0, 0, 1)),), "one row"
    many = {"t": (0,) * 1000}
    spread_over = rows_of(balanced(many, two, {"t": [*range(1000)]}, even, anew=False), two, {"t": range(1000)})
    assert spread(spread_over) < sum(spread_over) / 2 * ENDS_BELOW + 1000, "many small ones move together"


@given(st.integers(1, 6), st.integers(1, 6), st.lists(st.integers(0, 1000), max_size=12))
def test_layouts_are_balanced_by_rows_and_then_stay(first: int, second: int, counts: list[int]) -> None:
    rows = {"t": counts, "u": counts[:3]}
    new = rescaled(initial(first), second, step=1, partitions=rows)
    assert is_balanced(new, second, rows)
    assert rescaled(new, second, step=2, partitions=rows).readers == new.readers
    moved_there = moved_partitions(initial(first), new)
    assert len(moved_there) == sum(
        initial(first).reader_of(t, p) != new.reader_of(t, p) for t in rows for p in range(len(rows[t]))
    )


def test_the_weights_of_hosts_are_the_shares() -> None:
    old = with_readers(initial(2, hosts=[("small", 1.0), ("large", 1.5)]), {"t": 10})
    large = old.workers[old.hosts.index("large")]
    assert len(old.partitions_of(large, "t", 10)) == 5
    assert is_balanced(old, 2, {"t": (0,) * 10})
    rows = {"t": (100,) * 10}
    assert not is_balanced(old, 2, rows)
    assert len(rescaled(old, 2, step=1, partitions=rows).partitions_of(large, "t", 10)) == 6

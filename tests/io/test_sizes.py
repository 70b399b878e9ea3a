"""How large waiting rows are: by what holds them, whatever came before; and steps that are cut by it."""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbsp.coordinator.decisions.cutting import backlog, cut, unread
from dbsp.coordinator.decisions.limits import StepLimits
from dbsp.io.embedded_input import EmbeddedInputLog
from dbsp.io.file_input import FileInputLog
from dbsp.io.local_input import TOGETHER_BYTES, LocalInputLog
from dbsp.io.pushed import Push
from dbsp.logs import Range
from dbsp.logs.sizes import Sizes
from dbsp.zset.batch import Batch
from tests.io.log_samples import OTHER, SCHEMA, make_push

PLACE = ("other", 0)
STRETCHES = st.lists(st.tuples(st.integers(1, 50), st.integers(0, 3000)), max_size=8)


@given(st.integers(0, 1 << 40), STRETCHES, st.data())
def test_parts_add_up_and_what_is_within_a_size_is_all_that_is(
    first: int, stretches: list[tuple[int, int]], data: st.DataObject
) -> None:
    sizes = Sizes.of(first, stretches)
    assert sizes.stretches() == stretches
    assert sizes.between(sizes.first, sizes.last) == sum(size for _, size in stretches)
    at, middle, end = sorted(data.draw(st.lists(st.integers(first, sizes.last), min_size=3, max_size=3)))
    assert sizes.between(at, middle) + sizes.between(middle, end) == sizes.between(at, end)
    part = sizes.cut(at, end)
    assert (part.first, part.last) == (at, end)
    assert [part.between(at, offset) for offset in part.offsets] == [
        sizes.between(at, offset) for offset in part.offsets
    ]
    size = data.draw(st.integers(0, 5000))
    last = sizes.last_within(at, size)
    assert at <= last
    assert sizes.between(at, last) <= size
    if last < sizes.last and last not in sizes.offsets:
        assert sizes.between(at, last + 1) > size


@given(STRETCHES, STRETCHES, st.integers(0, 4000))
def test_small_neighbours_are_measured_together(
    before: list[tuple[int, int]], after: list[tuple[int, int]], together: int
) -> None:
    plain, joined = Sizes.of(7, [*before, *after]), Sizes.of(7, before).then(after, together)
    assert joined.last == plain.last
    assert set(joined.offsets) <= set(plain.offsets)
    assert [joined.between(7, end) for end in joined.offsets] == [plain.between(7, end) for end in joined.offsets]
    new = [size for _, size in joined.stretches()][len(before) :]
    assert all(low + high >= together for low, high in pairwise(new))


def texts(count: int, size: int) -> Push:
    """Rows with a text of so many bytes."""
    batch = Batch.of(SCHEMA, [pa.array(range(count)), pa.array([f"{i:06}" + "x" * size for i in range(count)])])
    return Push(batch=batch, operations=np.zeros(count, np.int8))


@pytest.fixture
def log(tmp_path: Path) -> Iterator[EmbeddedInputLog]:
    with closing(EmbeddedInputLog(tmp_path, [OTHER], create=True)) as made:
        yield made


def steps(log: LocalInputLog, limits: StepLimits, done: dict[tuple[str, int], int]) -> Iterator[Range]:
    """The ranges of one place, step by step, until nothing waits."""
    while True:
        ends = log.ends()
        ranges = cut(backlog(ends, done, log.sizes(unread(ends, done)), limits), done, limits)
        if not ranges:
            return
        yield ranges[0]
        done[PLACE] = ranges[0].last


def read(log: LocalInputLog, range_: Range) -> int:
    """The bytes of the rows as a step has them."""
    return sum(change.batch.nbytes for change in log.read(range_, 0))


def test_wide_rows_behind_many_narrow_ones_do_not_make_a_step_too_large(log: EmbeddedInputLog) -> None:
    for _ in range(20):
        log.append("other", make_push(range(20_000)))
    done = dict(log.ends())
    for _ in range(15):
        log.append("other", texts(200, 2_000))
    limits = StepLimits(max_step_bytes=1 << 20)
    found = [read(log, range_) for range_ in steps(log, limits, done)]
    assert max(found) <= limits.max_step_bytes
    assert sum(found) > 15 * 200 * 2_000
    assert len(found) < 12, "and it is filled"


def test_a_record_that_is_larger_than_a_step_is_taken_in_parts(log: EmbeddedInputLog) -> None:
    log.append("other", texts(100, 20_000))
    log.append("other", texts(1, 300_000))
    found = [(range_.last, read(log, range_)) for range_ in steps(log, StepLimits(max_step_bytes=200_000), {})]
    assert [end for end, _ in found][-2:] == [100, 101]
    assert all(size <= 200_000 for _, size in found[:-1])


def test_what_came_since_is_measured_and_what_was_trimmed_forgotten(log: EmbeddedInputLog) -> None:
    waiting = lambda first: log.sizes([Range(table="other", partition=0, first=first, last=log.ends()[PLACE])])[PLACE]  # noqa: E731
    log.append("other", texts(10, 100_000))
    log.append("other", texts(10, 50_000))
    assert waiting(10).first == 10, "what is done is not looked at"
    assert waiting(5).first == 0, "nor are sizes of a record's parts told apart"
    before = waiting(10).between(10, 20)
    log.append("other", texts(10, 70_000))
    assert waiting(10).between(10, 20) == before
    assert waiting(10).between(20, 30) > 700_000
    log.trim({PLACE: 15})
    assert waiting(15).first == 15
    assert waiting(15).between(15, 20) == before - before // 2
    log.trim({PLACE: 99})
    assert waiting(30).stretches() == []
    log.append("other", texts(10, 70_000))
    assert waiting(30).between(30, 40) > 700_000


def test_many_small_pushes_are_as_few_as_what_they_take(log: EmbeddedInputLog) -> None:
    for number in range(500):
        log.append("other", make_push([number]))
        log.sizes([Range(table="other", partition=0, first=0, last=number + 1)])
    sizes = log.sizes([Range(table="other", partition=0, first=0, last=500)])[PLACE]
    assert len(sizes.stretches()) <= 2 + 2 * sizes.between(0, 500) // TOGETHER_BYTES


# --- files


def imported(home: Path, files: Sequence[tuple[str, bytes | pa.Table]], partitions: int = 1) -> FileInputLog:
    folder = home / "landing" / "other"
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files:
        if isinstance(content, bytes):
            (folder / f".{name}").write_bytes(content)
        else:
            pq.write_table(content, folder / f".{name}", row_group_size=100, compression="zstd", use_dictionary=False)
        (folder / f".{name}").rename(folder / name)
    return FileInputLog(
        home / "data", [OTHER], folder=home / "landing", create=True, look_every_s=0, partitions=partitions
    )


WIDE = pa.table({"id": pa.array(range(1000)), "name": [f"{i:06}" + "y" * 5_000 for i in range(1000)]})
NARROW = pa.table({"id": pa.array(range(1000)), "name": ["y"] * 1000})
LINES = [b'{"id": %d, "name": "%s"}\n' % (i, b"y" * size) for size in (1, 5_000) for i in range(1000)]


@pytest.mark.parametrize(
    "files",
    [
        [("a.parquet", WIDE)],
        [("a.parquet", NARROW), ("b.parquet", WIDE)],
        [("a.jsonl.gz", gzip.compress(b"".join(LINES)))],
        [("a.csv.gz", gzip.compress(b"id,name\n" + b"".join(b"%d,%s\n" % (i, b"y" * 5_000) for i in range(1000))))],
    ],
)
@pytest.mark.parametrize("reopened", [False, True])
def test_packed_files_are_cut_by_what_they_hold(
    files: list[tuple[str, bytes | pa.Table]], reopened: bool, tmp_path: Path
) -> None:
    limits = StepLimits(max_step_bytes=2 << 20)
    with closing(imported(tmp_path, files)) as log:
        end = log.ends()[PLACE]
        if not reopened:
            check_steps(log, limits, end)
    if reopened:
        with closing(imported(tmp_path, [])) as log:
            check_steps(log, limits, end)


def check_steps(log: FileInputLog, limits: StepLimits, end: int) -> None:
    found = [(range_, read(log, range_)) for range_ in steps(log, limits, {})]
    assert found[-1][0].last == end
    assert max(size for _, size in found) <= 1.01 * limits.max_step_bytes, "offsets of texts are not in CSV"
    assert len(found) <= 5, "and they are filled"


def test_partitions_have_their_share_of_a_file(tmp_path: Path) -> None:
    with closing(imported(tmp_path, [("a.parquet", pa.concat_tables([NARROW, WIDE]))], partitions=4)) as log:
        sizes = log.sizes(unread(log.ends(), {}))
        shares = [sizes["other", number].between(0, 500) for number in range(4)]
    assert shares[0] == shares[1] < 10_000
    assert shares[2] > 500 * 5_000
    assert shares[3] > 500 * 5_000


def test_a_number_that_repeats_counts_as_what_it_takes_in_memory(tmp_path: Path) -> None:
    rows = pa.table({"id": pa.array([7] * 100_000), "name": pa.nulls(100_000, pa.string())})
    with closing(imported(tmp_path, [("a.parquet", rows)])) as log:
        assert log.sizes(unread(log.ends(), {}))[PLACE].between(0, 100_000) >= 800_000


def test_a_file_that_cannot_be_used_counts_as_nothing(tmp_path: Path) -> None:
    with closing(imported(tmp_path, [("a.xml", bytes(10_000))])) as log:
        assert log.sizes(unread(log.ends(), {}))[PLACE].between(0, 1) == 0


def test_files_that_were_found_before_sizes_were_noted_count_as_they_lie(tmp_path: Path) -> None:
    with closing(imported(tmp_path, [("a.parquet", WIDE), ("b.xml", bytes(10_000))])) as log:
        assert log.ends()[PLACE] == 1001
        log._env.write(lambda txn: txn.drop(log._env.db("sizes"), delete=False))
    size = (tmp_path / "landing" / "other" / "a.parquet").stat().st_size
    with closing(imported(tmp_path, [])) as log:
        assert log.sizes(unread(log.ends(), {}))[PLACE].between(0, 1001) == size
        log.trim({PLACE: 1001})

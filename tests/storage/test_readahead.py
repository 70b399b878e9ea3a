"""Reading from the map touches what was asked for and no more; what is foreseen is what is read; answers stay the same."""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from databases import BY_KEY, BY_ROW, ORDERED, SCHEMA, arranged, checkpoint, first_id, run_step
from hypothesis import given, settings

from dbsp.errors import InternalError
from dbsp.storage import WorkerDatabase
from dbsp.storage.chunkfile import CHUNK_BYTES_MAX, ReadChunks, WriteChunks
from dbsp.storage.environment import VERIFIED_MAX, DatabaseEnvironment, Verified, create_environment
from dbsp.storage.readahead import (
    PAGE,
    PAGES_MANY,
    READINGS_QUIET,
    MappedPages,
    Paging,
    hash_pages,
    row_pages,
    will_need,
)
from dbsp.storage.tables import Txn
from dbsp.store import TraceSpec
from dbsp.trace.chunks import ChunkRef
from dbsp.zset.batch import Batch, arrange
from dbsp.zset.encoding import buffer_table, encode
from tests.pace import examples

ROWS = 30_000


def many_rows(first: int, last: int) -> Batch:
    rows = [((number, f"name {number % 977}"), 1) for number in range(first, last)]
    return arrange(Batch.from_rows(SCHEMA, rows), BY_KEY.arrangement)


def totals(rows: Batch) -> Counter[Any]:
    """Rows with their summed weights."""
    found: Counter[Any] = Counter()
    for row, weight in rows.to_rows():
        found[row] += weight
    return Counter({row: weight for row, weight in found.items() if weight})


def mapped_bytes(file: Path) -> int:
    """How much of a file this process has in its page tables."""
    total, ours = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split(" ", 1)[0] and not line.startswith("Vm"):
            ours = line.endswith(str(file))
        elif ours and line.startswith("Rss:"):
            total += int(line.split()[1]) << 10
    return total


@settings(max_examples=examples(100), deadline=None)
@given(st.dictionaries(st.integers(0, 400), st.integers(0, 40_000), min_size=1, max_size=60), st.integers(0, 5))
def test_a_value_is_found_where_it_lies(
    tmp_path_factory: pytest.TempPathFactory, sizes: dict[int, int], gone: int
) -> None:
    """Against the engine's own reading: small values and large ones, after pages were freed and used again."""
    folder = tmp_path_factory.mktemp("lying") / "env"
    chance = random.Random(len(sizes))
    values = {number: chance.randbytes(size) for number, size in sizes.items()}
    create_environment(folder, 1 << 24, sync=False, fill=lambda txn: txn.put("meta", b"epoch", b"1"))
    environment = DatabaseEnvironment(folder, 1 << 24, sync=False)

    def key(number: int) -> bytes:
        return number.to_bytes(8, "big")

    def fill(txn: Txn) -> None:
        for number, value in values.items():
            txn.put("chunks", key(number), value)

    def replace_some(txn: Txn) -> None:
        for number in list(values)[:gone]:
            txn.delete("chunks", key(number))
            txn.put("chunks", key(number + 1000), values[number])
            values[number + 1000] = values.pop(number)

    environment.write(fill)
    environment.write(replace_some)
    environment.write(replace_some)
    with environment.reading() as txn:
        for number, value in values.items():
            found = txn.lying("chunks", key(number))
            assert found is not None
            assert (bytes(found), found.readonly) == (value, True)
            assert txn.has("chunks", key(number))
        assert txn.lying("chunks", key(999)) is None
        assert not txn.has("chunks", key(999))
    environment.close()


@pytest.fixture
def stored(tmp_path: Path) -> Iterator[tuple[DatabaseEnvironment, ChunkRef]]:
    """One chunk of 1 MB in an environment that was opened after it was written."""
    create_environment(tmp_path / "env", 1 << 24, sync=False, fill=lambda txn: txn.put("meta", b"epoch", b"1"))
    environment = DatabaseEnvironment(tmp_path / "env", 1 << 24, sync=False)
    writing = WriteChunks(ReadChunks((), CHUNK_BYTES_MAX), lambda: 7)
    ref = writing.put(many_rows(0, ROWS))

    def fill(txn: Txn) -> None:
        for number, value in writing.take().items():
            txn.put("chunks", number.to_bytes(8, "big"), value)

    environment.write(fill)
    environment.close()
    environment = DatabaseEnvironment(tmp_path / "env", 1 << 24, sync=False)
    yield environment, ref
    environment.close()


@pytest.mark.skipif(sys.platform != "linux", reason="/proc/self/smaps is Linux's")
def test_finding_a_chunk_touches_hardly_any_of_it(stored: tuple[DatabaseEnvironment, ChunkRef]) -> None:
    """The kernel maps 64 KiB around a touch; `get` touches every page, and that shows that the count counts."""
    environment, ref = stored
    file = environment.folder / "data.mdb"
    before = mapped_bytes(file)
    with environment.reading() as txn:
        assert txn.has("chunks", ref.id.to_bytes(8, "big"))
        value = txn.lying("chunks", ref.id.to_bytes(8, "big"))
        assert value is not None
        assert mapped_bytes(file) - before <= ref.nbytes // 4
        will_need(value)
        assert mapped_bytes(file) - before <= ref.nbytes // 4  # asked for, not touched
        txn.get("chunks", ref.id.to_bytes(8, "big"))
        assert mapped_bytes(file) >= ref.nbytes


def test_a_value_whose_page_is_another_is_refused(
    stored: tuple[DatabaseEnvironment, ChunkRef], monkeypatch: pytest.MonkeyPatch
) -> None:
    environment, ref = stored
    monkeypatch.setattr("dbsp.storage.tables._OVERFLOW", 0x02)
    with environment.reading() as txn, pytest.raises(InternalError, match="is not at the page that its key names"):
        txn.lying("chunks", ref.id.to_bytes(8, "big"))


def test_who_writes_finds_no_value_where_it_lies(stored: tuple[DatabaseEnvironment, ChunkRef]) -> None:
    """The pages on the way to it may be copies outside the map."""
    environment, ref = stored
    with pytest.raises(InternalError, match="only a read transaction"):
        environment.write(lambda txn: txn.lying("chunks", ref.id.to_bytes(8, "big")))


@settings(max_examples=examples(64), deadline=None)
@given(st.integers(1, 20_000), st.integers(0, 2**32), st.integers(1, 200))
def test_the_pages_foreseen_are_those_of_the_rows(rows: int, seed: int, asked: int) -> None:
    """All bytes of the rows in columns of fixed width; of the hashes at least four of five, and their neighbourhood."""
    chance = np.random.default_rng(seed)
    batch = many_rows(0, rows)
    payload = memoryview(encode(batch))
    words = batch.words[0]
    ref = ChunkRef.of(1, batch, len(payload))
    position = np.unique(chance.integers(0, rows, asked))
    pages = MappedPages.of(payload)

    def page(offset: int, width: int) -> np.ndarray:
        return (pages.lead + offset + position * width) // PAGE

    hashes, weights = buffer_table(payload)[:2]
    near = hash_pages(pages, payload, ref, words[position])
    assert near[page(hashes[0], 8)].mean() >= 0.8
    assert near[: (pages.lead + hashes[0]) // PAGE + 1].all()
    found = row_pages(pages, payload, ref, position, position + 1)
    assert found[page(weights[0], 8)].all()
    assert found.sum() <= 8 * len(position) + 8
    assert not row_pages(pages, payload, ref, position, position).any()


def test_hashes_outside_the_range_are_foreseen_at_its_ends() -> None:
    batch = many_rows(0, 500)
    payload = memoryview(encode(batch))
    ref = ChunkRef.of(1, batch, len(payload))
    asked = np.array([0, 2**64 - 1], np.uint64)
    assert hash_pages(MappedPages.of(payload), payload, ref, asked).any()


def test_look_ups_are_foreseen_while_reading_waits() -> None:
    faults = [0]
    paging = Paging(lambda: faults[0])
    paging.begin()
    assert not paging.waits
    faults[0] += PAGES_MANY - 1
    paging.begin()
    assert not paging.waits
    faults[0] += PAGES_MANY
    paging.begin()
    assert paging.waits
    paging.found_absent(PAGES_MANY)  # foreseen pages are no faults any more: they count as well
    paging.begin()
    for _ in range(READINGS_QUIET - 1):
        paging.begin()
        assert paging.waits
    paging.begin()
    assert not paging.waits


def answers(database: WorkerDatabase, trace: TraceSpec, asked: Batch) -> list[Any]:
    """Every kind of look-up of these rows in a trace."""
    hashes = np.unique(asked.words[0])
    with database.begin(1, 12, 1 if trace is ORDERED else 0, (trace,)) as transaction:
        spine = transaction.spine(trace)
        found: list[Any] = [totals(spine.matches(hashes)[1]), spine.sums(asked).tolist()]
        if trace is ORDERED:
            first, last = np.zeros(len(hashes), np.uint64), np.full(len(hashes), 2**64 - 1, np.uint64)
            found += [totals(spine.ranges(hashes, first, last)[1]), totals(spine.first_rows(hashes, 3)[1])]
    return found


def test_answers_do_not_depend_on_what_was_foreseen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waits, told = [False], list[int]()
    monkeypatch.setattr(Paging, "waits", property(lambda _: waits[0]))
    monkeypatch.setattr(Paging, "found_absent", lambda _, pages: told.append(pages))
    chance, every = random.Random(3), list[tuple[tuple[int, str], int]]()
    database = WorkerDatabase.create(tmp_path / "w", first_id(), chunk_bytes_max=20_000)
    database.open(0, 1)
    for step in range(12):
        rows = [((chance.randrange(3000), f"s{chance.randrange(40)}"), chance.choice([1, 2, -1])) for _ in range(700)]
        every += rows
        run_step(database, 1, step, rows)
        if step == 8:
            database.commit(1, checkpoint(1, 9))
    for trace in (BY_KEY, BY_ROW, ORDERED):
        asked = arranged(trace, every)
        waits[0] = False
        plain = answers(database, trace, asked)
        assert plain[0] == totals(asked)
        assert told == []
        waits[0] = True
        assert answers(database, trace, asked) == plain
        assert told
        told.clear()
    database.close()


def test_what_is_known_of_chunks_is_bounded() -> None:
    verified = Verified()
    verified.add([1, 2])
    assert 1 in verified
    verified.forget(1)
    assert (1 in verified, 2 in verified) == (False, True)
    verified.add(range(VERIFIED_MAX))
    verified.add([VERIFIED_MAX + 5])
    assert len(verified) == 1


def test_numbers_of_deleted_chunks_are_let_go(tmp_path: Path) -> None:
    database = WorkerDatabase.create(tmp_path / "w", first_id(), chunk_bytes_max=600)
    database.open(0, 1)
    for step in range(40):
        run_step(database, 1, step, [((number, "a"), 1) for number in range(step * 50, step * 50 + 50)])
        database.commit(step + 1, checkpoint(1, step + 1))
    durable = database._both()[1]
    with durable.environment.reading() as txn:
        there = len(txn.keys("chunks"))
    assert 0 < len(durable.environment.verified) <= there
    database.close()


def test_a_reading_keeps_no_more_than_so_many_chunks_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dbsp.storage.chunkfile.DECODED_MAX", 5)
    database = WorkerDatabase.create(tmp_path / "w", first_id(), chunk_bytes_max=600)
    database.open(0, 1)
    rows = [((number, "a"), 1) for number in range(400)]
    run_step(database, 1, 0, rows)
    with database.begin(1, 1, 0, (BY_KEY,)) as transaction:
        spine = transaction.spine(BY_KEY)
        assert len(list(spine.parts())) > 5
        for _ in range(2):
            assert spine.sums(arranged(BY_KEY, rows)).tolist() == [[1]] * 400
        assert transaction._reading is not None
        assert len(transaction._reading.chunks._decoded) <= 5
    database.close()

"""Leases: a read of one step goes on beside steps, merges and commits, and holds back nothing but its chunks."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path

import pytest
from databases import (
    BY_KEY,
    CHUNK_BYTES,
    TRACES,
    Kit,
    Rows,
    ZSet,
    checkpoint,
    first_id,
    leased,
    run_step,
    without_zeros,
)

from dbsp.errors import UnavailableError
from dbsp.storage import WorkerDatabase
from dbsp.store import Database
from dbsp.trace.sorted_read import SortedRead, Span


def rows_of(step: int) -> Rows:
    """Many new rows, and the end of many older ones, so that merges take place and chunks are dropped."""
    fresh: Rows = [((1000 * step + n, "x" * (n % 7)), 1) for n in range(60)]
    gone: Rows = [((1000 * (step - 2) + n, "x" * (n % 7)), -1) for n in range(40)] if step >= 2 else []
    return fresh + gone


def after(state: ZSet, step: int) -> ZSet:
    found = Counter(state)
    for row, weight in rows_of(step):
        found[row] += weight
    return without_zeros(found)


def opened(kit: Kit) -> Database:
    database = kit.create()
    database.open(0, 1)
    return database


def test_a_lease_outlives_merges_and_commits(kit: Kit) -> None:
    database, state, leases = opened(kit), Counter[tuple[int, str]](), []
    for step in range(24):
        if step % 5 == 3:
            leases.append((database.lease(1, step, TRACES), state))
        run_step(database, 1, step, rows_of(step))
        state = after(state, step)
        if step % 3 == 2:
            database.commit(step // 3 + 1, checkpoint(1, step + 1))
        for lease, then in leases:
            assert all(leased(lease, trace) == then for trace in TRACES)
    for lease, _ in leases:
        lease.end()
    database.close()


def test_only_the_last_finished_step_is_leased(kit: Kit) -> None:
    database = opened(kit)
    for step in range(4):
        run_step(database, 1, step, rows_of(step))
    for step in (1, 5):
        with pytest.raises(UnavailableError):
            database.lease(1, step, TRACES)


def test_a_rollback_ends_a_lease(kit: Kit) -> None:
    database = opened(kit)
    run_step(database, 1, 0, rows_of(0))
    database.commit(1, checkpoint(1, 1))
    run_step(database, 1, 1, rows_of(1))
    lease = database.lease(1, 2, TRACES)
    database.raise_epoch(2)
    database.open(1, 2)
    run_step(database, 2, 1, rows_of(7))
    with pytest.raises(UnavailableError):
        leased(lease, BY_KEY)
    lease.end()


def chunks_in_scratch(database: WorkerDatabase) -> int:
    scratch, _ = database._both()
    with scratch.environment.reading() as txn:
        return len(txn.keys("chunks"))


def test_chunks_of_a_lease_go_with_it(tmp_path: Path) -> None:
    found = []
    for leases in (False, True):
        database = WorkerDatabase.create(tmp_path / str(leases), first_id(), chunk_bytes_max=CHUNK_BYTES)
        database.open(0, 1)
        lease = None
        for step in range(12):
            if step == 6 and leases:
                lease = database.lease(1, step, TRACES)
            run_step(database, 1, step, rows_of(step))
        held = chunks_in_scratch(database)
        if lease is not None:
            lease.end()
            assert chunks_in_scratch(database) < held
        found.append(chunks_in_scratch(database))
        database.close()
    assert found[0] == found[1]


def test_a_lease_is_read_while_steps_run_and_the_map_grows(tmp_path: Path) -> None:
    """The step waits for a piece of the read at most, and the read for the map."""
    path = tmp_path / "w"
    database = WorkerDatabase.create(path, first_id(), map_size_bytes=160 << 10, chunk_bytes_max=CHUNK_BYTES)
    database.open(0, 1)
    state = Counter[tuple[int, str]]()
    for step in range(4):
        run_step(database, 1, step, rows_of(step))
        state = after(state, step)
    lease, stop, wrong, reads = database.lease(1, 4, TRACES), threading.Event(), [], []

    def read() -> None:
        try:
            while not stop.is_set():
                reads.append(leased(lease, BY_KEY) == state)
        except BaseException as error:  # noqa: BLE001 - told to the test's thread
            wrong.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    try:
        for step in range(4, 14):
            run_step(database, 1, step, [((step * 1000 + n, "y" * 30), 1) for n in range(400)])
    finally:
        stop.set()
        thread.join()
    lease.end()
    assert not wrong
    assert reads
    assert all(reads)
    assert max(database.file_bytes().values()) > 160 << 10
    database.close()


def test_a_lease_keeps_its_files_open_until_its_last_read(tmp_path: Path) -> None:
    database = WorkerDatabase.create(tmp_path / "w", first_id(), chunk_bytes_max=CHUNK_BYTES)
    database.open(0, 1)
    run_step(database, 1, 0, rows_of(0))
    lease = database.lease(1, 1, TRACES)
    environment = database._both()[0].environment
    database.close()
    assert leased(lease, BY_KEY) == after(Counter(), 0)
    with lease.reading():
        lease.end()
        assert environment.users == 1
    assert environment.users == 0


def test_a_range_of_hashes_is_read_alone(kit: Kit) -> None:
    database = opened(kit)
    for step in range(12):
        run_step(database, 1, step, rows_of(step))
    lease = database.lease(1, 12, TRACES)
    whole = SortedRead([lease], BY_KEY)
    pieces = []
    while (
        piece := whole.piece(lambda rows: list(zip(rows.words[0].tolist(), rows.to_rows(), strict=True)))
    ) is not None:
        pieces += piece
    for first, last in [
        (pieces[5][0], pieces[5][0]),
        (pieces[3][0], pieces[40][0]),
        (1, 2),
        (pieces[-1][0], (1 << 64) - 1),
    ]:
        part, found = SortedRead([lease], BY_KEY, Span(first, 0, last)), []
        while (rows := part.piece(lambda rows: rows.to_rows())) is not None:
            found += rows
        assert found == [row for key_hash, row in pieces if first <= key_hash <= last]
    lease.end()

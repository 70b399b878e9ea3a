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
from dbsp.store import Database, LeaseNames, NamesLeases, TraceSpec
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


def named(database: Database) -> NamesLeases:
    assert isinstance(database, NamesLeases)
    return database


def read_named(database: Database, name: int, trace: TraceSpec) -> ZSet:
    """As a task reads it: the lease is opened for this read alone."""
    lease = named(database).named_lease(1, name, (trace,))
    try:
        return leased(lease, trace)
    finally:
        lease.end()


def only(*live: int, newest: int | None = None) -> LeaseNames:
    return LeaseNames(live=frozenset(live), newest=max(live) if newest is None else newest)


def test_a_named_lease_outlives_the_processes_that_read_it(tmp_path: Path) -> None:
    """Every read is of another database object, as of another process; all reads are of the step of the grant."""

    def attached() -> WorkerDatabase:
        database = WorkerDatabase(tmp_path / "w", chunk_bytes_max=CHUNK_BYTES)
        database.attach(1)
        return database

    made = WorkerDatabase.create(tmp_path / "w", first_id(), chunk_bytes_max=CHUNK_BYTES)
    made.open(0, 1)
    state, states = Counter[tuple[int, str]](), dict[int, ZSet]()
    for step in range(24):
        database = attached()
        if step % 5 == 3:
            states[step] = state
            for _ in range(2):  # a task may run twice
                found = database.grant_named(1, only(*states), step, TRACES)
            assert found[BY_KEY.id].rows >= len(state)
        run_step(database, 1, step, rows_of(step))
        state = after(state, step)
        if step % 3 == 2:
            database.commit(step // 3 + 1, checkpoint(1, step + 1))
        database.close()
        for name, then in states.items():
            other = attached()
            assert all(read_named(other, name, trace) == then for trace in TRACES)
            other.close()
    held = chunks_in_scratch(made)
    made.end_named(1, LeaseNames(live=frozenset(), newest=max(states)))
    assert chunks_in_scratch(made) < held
    for name in states:
        with pytest.raises(UnavailableError, match="lease has ended"):
            read_named(made, name, BY_KEY)
    made.close()


def test_a_late_message_ends_no_newer_lease(tmp_path: Path) -> None:
    """Jobs may run again, and in another order: each tells what was held when it was made."""
    database = WorkerDatabase.create(tmp_path / "w", first_id(), chunk_bytes_max=CHUNK_BYTES)
    database.open(0, 1)
    run_step(database, 1, 0, rows_of(0))
    database.grant_named(1, only(1), 1, TRACES)
    database.grant_named(1, only(1, 2), 1, TRACES)
    database.end_named(1, only(1))  # it was written before the second lease was granted
    assert read_named(database, 1, BY_KEY) == read_named(database, 2, BY_KEY) == after(Counter(), 0)
    database.grant_named(1, only(2, 3), 1, TRACES)  # the end of the first was lost
    assert read_named(database, 3, BY_KEY) == read_named(database, 2, BY_KEY)
    with pytest.raises(UnavailableError, match="lease has ended"):
        read_named(database, 1, BY_KEY)
    database.close()


def test_a_named_lease_that_ends_in_the_middle_of_a_read_says_so(tmp_path: Path) -> None:
    database = WorkerDatabase.create(tmp_path / "w", first_id(), chunk_bytes_max=CHUNK_BYTES)
    database.open(0, 1)
    for step in range(6):
        run_step(database, 1, step, rows_of(step))
    database.grant_named(1, only(1), 6, TRACES)
    lease = database.named_lease(1, 1, TRACES)
    read = SortedRead([lease], BY_KEY)
    assert read.piece(len) is not None
    database.end_named(1, LeaseNames(live=frozenset(), newest=1))
    with pytest.raises(UnavailableError, match="lease has ended"):
        read.piece(len)
    lease.end()
    database.close()


def test_a_read_goes_on_in_another_process(kit: Kit) -> None:
    """A read that stops after any piece goes on at its place: the same pieces, one after another."""
    database = opened(kit)
    for step in range(11):  # so many that each trace has several runs
        run_step(database, 1, step, rows_of(step))
    lease = database.lease(1, 11, TRACES)
    for trace in TRACES:
        whole, read = SortedRead([lease], trace), SortedRead([lease], trace)
        pieces = inside = 0
        while True:
            read = SortedRead([lease], trace, after=read.place)
            piece = read.piece(lambda rows: rows.to_rows())
            assert piece == whole.piece(lambda rows: rows.to_rows())
            if piece is None:
                break
            pieces += 1
            inside += any(row for _, row in read.place)
            assert read.read_up_to == whole.read_up_to
        assert pieces > 1
        assert inside, "a piece ends inside of a chunk"
    lease.end()

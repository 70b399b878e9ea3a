"""Visits: what is sliced of one is what is sliced of the source worker's own database, however its chunks came."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from databases import CHUNK_BYTES, TRACES, WorkerKit, checkpoint, first_id, run_step
from test_redistribute import check_owned, kept, ranges
from test_warm import grown, rows_of, shape, warm_round

from dbsp.errors import DataError, UnavailableError
from dbsp.storage import WorkerDatabase
from dbsp.storage.transfers import ShardTransfer, end_transfers
from dbsp.store import Shipment
from dbsp.trace.manifest import ID, chunk_ids
from dbsp.trace.redistribute import redistribute
from dbsp.trace.slicing import HashRange, refs_within
from tests.pace import some

EVERYTHING = [(0, 1 << 64)]


@pytest.fixture
def kit(tmp_path: Path) -> WorkerKit:
    """The map has room, because it cannot grow while a worker reads what it writes."""
    return WorkerKit(tmp_path, map_size_bytes=1 << 28)


def database_of(kit: WorkerKit, seed: int, rows: int = 150) -> WorkerDatabase:
    found = grown(kit, seed, rows)
    assert isinstance(found, WorkerDatabase)
    return found


def joiner(folder: Path, name: str) -> WorkerDatabase:
    return WorkerDatabase.create(folder / name, first_id(), version=None, chunk_bytes_max=CHUNK_BYTES)


def carried(
    source_worker: WorkerDatabase, transfer: ShardTransfer, version: int, wanted: list[HashRange], bytes_max: int
) -> list[Shipment]:
    """All pieces, the last but one twice, as a task that is run again sends it."""
    sent: list[Shipment] = []
    while not sent or sent[-1].record is None:
        sent.append(source_worker.ship(version, wanted, transfer.held(), bytes_max))
        transfer.take(sent[-1])
        if len(sent) > 1:
            transfer.take(sent[-2])
    return sent


@pytest.mark.parametrize("seed", some([0, 1, 2, 3, 4, 5, 6, 7]))
def test_slices_of_visits_are_those_of_the_givers(kit: WorkerKit, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    source_workers = [database_of(kit, seed * 10 + number, chance.choice([5, 150, 600])) for number in range(3)]
    near, far = joiner(tmp_path, "near"), joiner(tmp_path, "far")
    wanted = {number: kept(3, 4, number, 3) for number in range(3)}
    transfers = {number: ShardTransfer(tmp_path / "visits", number, 1) for number in range(2)}
    for number, transfer in transfers.items():
        carried(source_workers[number], transfer, 1, wanted[number], chance.choice([1, CHUNK_BYTES, 1 << 20]))
    made = checkpoint(1, 6)
    local = {number: (source_worker, wanted[number]) for number, source_worker in enumerate(source_workers)}
    report = redistribute(local, near, 2, made, TRACES)
    remote = local | {number: (transfer, wanted[number]) for number, transfer in transfers.items()}
    assert redistribute(remote, far, 2, made, TRACES) == report
    assert shape(far, 2) == shape(near, 2)
    far.open(2, 2)
    check_owned(far, ranges(4, 3))


@pytest.mark.parametrize("seed", some([0, 1, 2, 3]))
def test_a_warm_up_from_a_visit_takes_what_changed_alone(kit: WorkerKit, tmp_path: Path, seed: int) -> None:
    source_worker, half = database_of(kit, seed), [(0, 1 << 63)]
    near, far, transfer = joiner(tmp_path, "near"), joiner(tmp_path, "far"), ShardTransfer(tmp_path / "visits", 0, 1)
    source_worker.hold_merges(1, 1, [])
    before, step = set[int](), 6
    for version in (1, 2, 3):
        if version > 1:
            run_step(source_worker, 1, step, rows_of(seed * 1000 + step, 40))
            step += 1
            source_worker.commit(version, checkpoint(1, step))
        sent = carried(source_worker, transfer, version, half, 3 * CHUNK_BYTES)
        numbers = {number for shipment in sent for number, _ in shipment.chunks}
        assert len(numbers) == sum(len(shipment.chunks) for shipment in sent), "none comes twice"
        assert not numbers & before
        before |= numbers
        warm_round({0: (transfer, half)}, far, version, 1)  # type: ignore[dict-item]
    redistribute({0: (transfer, half)}, far, 4, checkpoint(1, step), TRACES)
    redistribute({0: (source_worker, half)}, near, 4, checkpoint(1, step), TRACES)
    assert shape(far, 4) == shape(near, 4)


def test_what_is_needed_travels_and_nothing_else(kit: WorkerKit, tmp_path: Path) -> None:
    source_worker, transfer, quarter = (
        database_of(kit, 1, 600),
        ShardTransfer(tmp_path / "visits", 0, 1),
        [(1 << 62, 1 << 63)],
    )
    carried(source_worker, transfer, 1, quarter, 1 << 20)
    with source_worker.read_version(1) as view:
        states = view.traces.values()
        needed = refs_within(states, quarter)[:, ID]
        every = np.concatenate([chunk_ids(state) for state in states])
        assert set(refs_within(states, EVERYTHING)[:, ID].tolist()) <= set(every.tolist())
    assert transfer.held().tolist() == sorted(needed.tolist())
    assert 0 < len(needed) < len(every) / 2


def test_a_version_is_read_when_all_of_it_is_here(kit: WorkerKit, tmp_path: Path) -> None:
    source_worker, transfer = database_of(kit, 2), ShardTransfer(tmp_path / "visits", 0, 1)
    with pytest.raises(UnavailableError, match="not here"), transfer.read_version(1):
        pass
    first = source_worker.ship(1, EVERYTHING, transfer.held(), CHUNK_BYTES)
    assert first.record is None
    assert first.left_bytes > 0
    transfer.take(first)
    with pytest.raises(UnavailableError, match="no such version"), transfer.read_version(1):
        pass
    carried(source_worker, transfer, 1, EVERYTHING, 1 << 20)
    with transfer.read_version(1) as view:
        assert view.checkpoint == checkpoint(1, 6)


def test_a_giver_without_rows_there_sends_its_record_alone(kit: WorkerKit, tmp_path: Path) -> None:
    source_worker, transfer = kit.create(), ShardTransfer(tmp_path / "visits", 0, 1)
    source_worker.open(0, 1)
    source_worker.commit(1, checkpoint(1, 0))
    (sent,) = carried(source_worker, transfer, 1, EVERYTHING, 1)
    assert (sent.chunks, sent.left_bytes, sent.total_bytes) == ((), 0, 0)
    target = joiner(tmp_path, "target")
    assert redistribute({0: (transfer, EVERYTHING)}, target, 2, checkpoint(1, 0), TRACES).state_bytes == 0


def test_bytes_that_were_hurt_on_their_way_are_found(kit: WorkerKit, tmp_path: Path) -> None:
    source_worker, transfer = database_of(kit, 3), ShardTransfer(tmp_path / "visits", 0, 1)
    shipment = source_worker.ship(1, EVERYTHING, transfer.held(), 1 << 20)
    number, value = shipment.chunks[0]
    hurt = bytearray(value)
    hurt[len(hurt) // 2] ^= 1
    chunks = ((number, bytes(hurt)), *shipment.chunks[1:])
    transfer.take(Shipment(version=1, chunks=chunks, record=shipment.record, left_bytes=0, total_bytes=0))
    with pytest.raises(DataError, match=f"chunk={number}"):
        redistribute({0: (transfer, EVERYTHING)}, joiner(tmp_path, "target"), 2, checkpoint(1, 6), TRACES)


def test_visits_end_with_their_epoch(kit: WorkerKit, tmp_path: Path) -> None:
    source_worker, home = database_of(kit, 4), tmp_path / "visits"
    old, other, new = ShardTransfer(home, 0, 1), ShardTransfer(home, 1, 1), ShardTransfer(home, 0, 2)
    for transfer in (old, other, new):
        carried(source_worker, transfer, 1, EVERYTHING, 1 << 20)
    assert sorted(folder.name for folder in home.iterdir()) == ["0000-2", "0001-1"]
    assert len(old.held()) == 0, "it may be lost at any moment"
    (home / "0001-1.new-0").mkdir()
    (home / "0001-3.new-0").mkdir()
    end_transfers(home, 1)
    assert sorted(folder.name for folder in home.iterdir()) == ["0000-2", "0001-3.new-0"]
    end_transfers(home, 2)
    end_transfers(tmp_path / "nowhere", 2)
    assert sorted(folder.name for folder in home.iterdir()) == ["0001-3.new-0"]

"""Visits: what is sliced of one is what is sliced of the giver's own database, however its chunks came."""

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
from dbsp.storage.visits import Visit, end_visits
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
    giver: WorkerDatabase, visit: Visit, version: int, wanted: list[HashRange], bytes_max: int
) -> list[Shipment]:
    """All pieces, the last but one twice, as a task that is run again sends it."""
    sent: list[Shipment] = []
    while not sent or sent[-1].record is None:
        sent.append(giver.ship(version, wanted, visit.held(), bytes_max))
        visit.take(sent[-1])
        if len(sent) > 1:
            visit.take(sent[-2])
    return sent


@pytest.mark.parametrize("seed", some([0, 1, 2, 3, 4, 5, 6, 7]))
def test_slices_of_visits_are_those_of_the_givers(kit: WorkerKit, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    givers = [database_of(kit, seed * 10 + number, chance.choice([5, 150, 600])) for number in range(3)]
    near, far = joiner(tmp_path, "near"), joiner(tmp_path, "far")
    wanted = {number: kept(3, 4, number, 3) for number in range(3)}
    visits = {number: Visit(tmp_path / "visits", number, 1) for number in range(2)}
    for number, visit in visits.items():
        carried(givers[number], visit, 1, wanted[number], chance.choice([1, CHUNK_BYTES, 1 << 20]))
    made = checkpoint(1, 6)
    local = {number: (giver, wanted[number]) for number, giver in enumerate(givers)}
    report = redistribute(local, near, 2, made, TRACES)
    remote = local | {number: (visit, wanted[number]) for number, visit in visits.items()}
    assert redistribute(remote, far, 2, made, TRACES) == report
    assert shape(far, 2) == shape(near, 2)
    far.open(2, 2)
    check_owned(far, ranges(4, 3))


@pytest.mark.parametrize("seed", some([0, 1, 2, 3]))
def test_a_warm_up_from_a_visit_takes_what_changed_alone(kit: WorkerKit, tmp_path: Path, seed: int) -> None:
    giver, half = database_of(kit, seed), [(0, 1 << 63)]
    near, far, visit = joiner(tmp_path, "near"), joiner(tmp_path, "far"), Visit(tmp_path / "visits", 0, 1)
    giver.hold_merges(1, 1, [])
    before, step = set[int](), 6
    for version in (1, 2, 3):
        if version > 1:
            run_step(giver, 1, step, rows_of(seed * 1000 + step, 40))
            step += 1
            giver.commit(version, checkpoint(1, step))
        sent = carried(giver, visit, version, half, 3 * CHUNK_BYTES)
        numbers = {number for shipment in sent for number, _ in shipment.chunks}
        assert len(numbers) == sum(len(shipment.chunks) for shipment in sent), "none comes twice"
        assert not numbers & before
        before |= numbers
        warm_round({0: (visit, half)}, far, version, 1)  # type: ignore[dict-item]
    redistribute({0: (visit, half)}, far, 4, checkpoint(1, step), TRACES)
    redistribute({0: (giver, half)}, near, 4, checkpoint(1, step), TRACES)
    assert shape(far, 4) == shape(near, 4)


def test_what_is_needed_travels_and_nothing_else(kit: WorkerKit, tmp_path: Path) -> None:
    giver, visit, quarter = database_of(kit, 1, 600), Visit(tmp_path / "visits", 0, 1), [(1 << 62, 1 << 63)]
    carried(giver, visit, 1, quarter, 1 << 20)
    with giver.read_version(1) as view:
        states = view.traces.values()
        needed = refs_within(states, quarter)[:, ID]
        every = np.concatenate([chunk_ids(state) for state in states])
        assert set(refs_within(states, EVERYTHING)[:, ID].tolist()) <= set(every.tolist())
    assert visit.held().tolist() == sorted(needed.tolist())
    assert 0 < len(needed) < len(every) / 2


def test_a_version_is_read_when_all_of_it_is_here(kit: WorkerKit, tmp_path: Path) -> None:
    giver, visit = database_of(kit, 2), Visit(tmp_path / "visits", 0, 1)
    with pytest.raises(UnavailableError, match="not here"), visit.read_version(1):
        pass
    first = giver.ship(1, EVERYTHING, visit.held(), CHUNK_BYTES)
    assert first.record is None
    assert first.left_bytes > 0
    visit.take(first)
    with pytest.raises(UnavailableError, match="no such version"), visit.read_version(1):
        pass
    carried(giver, visit, 1, EVERYTHING, 1 << 20)
    with visit.read_version(1) as view:
        assert view.checkpoint == checkpoint(1, 6)


def test_a_giver_without_rows_there_sends_its_record_alone(kit: WorkerKit, tmp_path: Path) -> None:
    giver, visit = kit.create(), Visit(tmp_path / "visits", 0, 1)
    giver.open(0, 1)
    giver.commit(1, checkpoint(1, 0))
    (sent,) = carried(giver, visit, 1, EVERYTHING, 1)
    assert (sent.chunks, sent.left_bytes, sent.total_bytes) == ((), 0, 0)
    target = joiner(tmp_path, "target")
    assert redistribute({0: (visit, EVERYTHING)}, target, 2, checkpoint(1, 0), TRACES).state_bytes == 0


def test_bytes_that_were_hurt_on_their_way_are_found(kit: WorkerKit, tmp_path: Path) -> None:
    giver, visit = database_of(kit, 3), Visit(tmp_path / "visits", 0, 1)
    shipment = giver.ship(1, EVERYTHING, visit.held(), 1 << 20)
    number, value = shipment.chunks[0]
    hurt = bytearray(value)
    hurt[len(hurt) // 2] ^= 1
    chunks = ((number, bytes(hurt)), *shipment.chunks[1:])
    visit.take(Shipment(version=1, chunks=chunks, record=shipment.record, left_bytes=0, total_bytes=0))
    with pytest.raises(DataError, match=f"chunk={number}"):
        redistribute({0: (visit, EVERYTHING)}, joiner(tmp_path, "target"), 2, checkpoint(1, 6), TRACES)


def test_visits_end_with_their_epoch(kit: WorkerKit, tmp_path: Path) -> None:
    giver, home = database_of(kit, 4), tmp_path / "visits"
    old, other, new = Visit(home, 0, 1), Visit(home, 1, 1), Visit(home, 0, 2)
    for visit in (old, other, new):
        carried(giver, visit, 1, EVERYTHING, 1 << 20)
    assert sorted(folder.name for folder in home.iterdir()) == ["0000-2", "0001-1"]
    assert len(old.held()) == 0, "it may be lost at any moment"
    (home / "0001-1.new-0").mkdir()
    (home / "0001-3.new-0").mkdir()
    end_visits(home, 1)
    assert sorted(folder.name for folder in home.iterdir()) == ["0000-2", "0001-3.new-0"]
    end_visits(home, 2)
    end_visits(tmp_path / "nowhere", 2)
    assert sorted(folder.name for folder in home.iterdir()) == ["0001-3.new-0"]

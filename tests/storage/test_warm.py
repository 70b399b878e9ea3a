"""Warm-up of state: slices are copied beside the steps, and the version made of them is what a cold slicing makes."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from databases import CHUNK_BYTES, TRACES, Kit, MemoryKit, Rows, WorkerKit, checkpoint, content, first_id, run_step
from test_redistribute import AnyDatabase, check_owned, joiner, kept, ranges, whole

from dbsp.errors import FencedError
from dbsp.storage import WorkerDatabase
from dbsp.storage.chunkfile import HEADER_BYTES
from dbsp.trace.manifest import ID, chunk_ids, chunk_refs
from dbsp.trace.redistribute import WarmReport, redistribute, warm_up
from tests.pace import some

PIECE = 4 * CHUNK_BYTES
Sources = dict[int, tuple[AnyDatabase, list[tuple[int, int]]]]


@pytest.fixture(params=["memory", "lmdb"])
def kit(request: pytest.FixtureRequest, tmp_path: Path) -> Kit:
    """Each database in turn; the map has room, because it cannot grow while a worker reads what it writes."""
    return MemoryKit() if request.param == "memory" else WorkerKit(tmp_path, map_size_bytes=1 << 28)


def sources_of(old: list[AnyDatabase], count: int, place: int) -> Sources:
    return {n: (source, kept(len(old), count, n, place)) for n, source in enumerate(old)}


def piece(sources: Sources, target: AnyDatabase, version: int = 1, epoch: int = 1, layout: int = 1) -> WarmReport:
    opened = bool(target.versions()) and target.versions()[-1].checkpoint.step > 0
    return warm_up(sources, target, version, epoch, layout, TRACES, bytes_max=PIECE, opened=opened)


def warm_round(sources: Sources, target: AnyDatabase, version: int, epoch: int) -> list[WarmReport]:
    """Pieces until nothing of the version is missing."""
    reports = [piece(sources, target, version, epoch)]
    while reports[-1].missing_bytes:
        reports.append(piece(sources, target, version, epoch))
    return reports


def rows_of(seed: int, count: int) -> Rows:
    draw = random.Random(seed)
    return [((draw.randrange(400), "x" * draw.randrange(9)), draw.choice([1, 1, 2, -1])) for _ in range(count)]


def grown(kit: Kit, seed: int, rows: int = 150) -> AnyDatabase:
    database = kit.create()
    database.open(0, 1)
    for step in range(6):
        run_step(database, 1, step, rows_of(seed * 100 + step, rows))
    database.commit(1, checkpoint(1, 6))
    return database


def shape(database: AnyDatabase, version: int) -> list[list[list[int]]]:
    """Every run's chunks, but for their numbers."""
    with database.read_version(version) as view:
        return [np.delete(chunk_refs(view.traces[trace.id]), ID, axis=1).tolist() for trace in TRACES]


def checkpoint_beside_steps(database: AnyDatabase, version: int, step: int, seed: int) -> int:
    """Some steps, a pin, a step, the copy; the next step."""
    for number in range(step, step + random.Random(seed).randrange(1, 4)):
        run_step(database, 1, number, rows_of(seed * 1000 + number, 40))
        step = number + 1
    database.pin(version, checkpoint(1, step))
    run_step(database, 1, step, rows_of(seed * 1000 + step, 40))
    while database.copy(version, checkpoint(1, step), 500) is None:
        pass
    return step + 1


def check_round(sources: Sources, target: AnyDatabase, version: int) -> None:
    """A round ends, its lag falls, and doing it again copies nothing."""
    reports = warm_round(sources, target, version, 1)
    assert all(report.copied_bytes > 0 for report in reports[:-1])
    lags = [report.missing_bytes for report in reports]
    assert lags == sorted(lags, reverse=True)
    again = piece(sources, target, version)
    assert (again.copied_bytes, again.missing_bytes) == (0, 0)


@pytest.mark.parametrize("seed", some([0, 2, 4, 6, 1, 3, 5, 7], 4))
def test_a_version_made_of_warm_parts_is_the_cold_one(kit: Kit, tmp_path: Path, seed: int) -> None:
    """Rounds over several versions while steps go on; what is left to copy at the end is only what is new."""
    old = grown(kit, seed)
    targets = [old, joiner(kit, tmp_path, 1), joiner(kit, tmp_path, 2)]
    cold = joiner(kit, tmp_path, 3)
    step = 6
    for version in (1, 2, 3):
        step = step if version == 1 else checkpoint_beside_steps(old, version, step, seed)
        for place, target in enumerate(targets):
            check_round(sources_of([old], 3, place), target, version)
    old.commit(4, checkpoint(1, step))
    expected = whole([old])
    made = checkpoint(2, step)
    caught_up = seed % 2 == 1
    if caught_up:
        for place, target in enumerate(targets):
            warm_round(sources_of([old], 3, place), target, 4, 1)
    for place, target in enumerate(targets):
        if place == 1:
            plain = redistribute(sources_of([old], 3, place), cold, 5, made, TRACES)
        report = redistribute(sources_of([old], 3, place), target, 5, made, TRACES)
        if place == 1:
            assert report.bytes_written <= plain.bytes_written
            assert report.state_bytes == plain.state_bytes
            assert shape(target, 5) == shape(cold, 5)
        assert report.bytes_written == 0 or not caught_up
        assert not target.warm_chunks()
    reopened = [kit.reopen(target) if target is old else target for target in targets]
    for place, target in enumerate(reopened):
        target.open(5, 3)
        check_owned(target, ranges(3, place))
        if isinstance(target, WorkerDatabase):
            target.verify()
    assert whole(reopened) == expected
    run_step(reopened[1], 3, step, [])


def test_what_is_warm_is_asked_for_when_a_round_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel may have given back its pages since they were written; the first step would wait for each."""
    kit, asked = WorkerKit(tmp_path, map_size_bytes=1 << 28), list[int]()
    source, target = grown(kit, 1), joiner(kit, tmp_path, 1)
    monkeypatch.setattr("dbsp.storage.warm.will_need", lambda value: asked.append(len(value)) or 0)
    sources: Sources = {0: (source, [(0, 1 << 64)])}
    while piece(sources, target).missing_bytes:
        assert not asked
    refs = [ref for refs in target.warm_chunks().values() for ref in refs]
    assert len(refs) > 4
    assert sorted(asked) == sorted(ref.nbytes + HEADER_BYTES for ref in refs)


def test_steps_and_checkpoints_of_a_worker_that_stays_go_on(kit: Kit, tmp_path: Path) -> None:
    """Its own chunks and the warm ones never share a number, and no checkpoint sweeps what is warm (12)."""
    first, second = grown(kit, 1), grown(kit, 2)
    sources: Sources = {1: (second, [(0, 1 << 64)])}
    warm_round(sources, first, 1, 1)
    held = first.warm_chunks()
    assert held
    before = whole([first])
    for version in (2, 3, 4):
        step = 4 + version
        run_step(first, 1, step, rows_of(step, 60))
        first.commit(version, checkpoint(1, step + 1))
    assert first.warm_chunks() == held
    assert piece(sources, first).copied_bytes == 0
    first.forget_warm(1, 1)
    assert not first.warm_chunks()
    run_step(first, 1, 9, [(row, -weight) for step in (6, 7, 8) for row, weight in rows_of(step, 60)])
    assert whole([first]) == before
    if isinstance(first, WorkerDatabase):
        first.verify()


def numbers_of(database: AnyDatabase, version: int) -> set[int]:
    """The chunks of a version."""
    with database.read_version(version) as view:
        return {number for trace in TRACES for number in chunk_ids(view.traces[trace.id]).tolist()}


@pytest.mark.parametrize("seed", some([0, 1], 2))
def test_while_merges_wait_a_round_copies_what_came_since_the_one_before(kit: Kit, tmp_path: Path, seed: int) -> None:
    """Every chunk of a pinned version is in the next one; new ones have one owner, so who stays copies nothing of them."""
    old, joins, step = grown(kit, seed), joiner(kit, tmp_path, 1), 6
    stays, leaves, before = sources_of([old], 2, 0), sources_of([old], 2, 1), set[int]()
    old.hold_merges(1, 1, sorted({low for low, _ in ranges(2, 0) + ranges(2, 1)} - {0}))
    for version in (1, 2, 3):
        step = step if version == 1 else checkpoint_beside_steps(old, version, step, seed)
        at_home, moved = warm_round(stays, old, version, 1), warm_round(leaves, joins, version, 1)
        now = numbers_of(old, version)
        if version > 1:
            assert before < now
            assert moved[0].copied_bytes > 0
            assert sum(report.copied_bytes for report in at_home) == 0
        before = now
    old.forget_warm(1, 1)
    old.end_hold(1, 1)
    for number in range(step, step + 8):
        run_step(old, 1, number, rows_of(number, 150))
    old.commit(4, checkpoint(1, step + 8))
    assert not before <= numbers_of(old, 4), "merges go on"


def test_what_one_giver_adds_changes_no_part_of_another(kit: Kit, tmp_path: Path) -> None:
    """Although small pieces of several source workers are stored together: a round copies the rows that came, and no others."""
    source_workers, joins = [grown(kit, 1, rows=15), grown(kit, 2, rows=15)], joiner(kit, tmp_path, 1)
    sources = sources_of(source_workers, 3, 2)
    for source_worker in source_workers:
        source_worker.hold_merges(1, 1, [])

    def rows_there() -> int:
        return sum(ref.rows for refs in joins.warm_chunks().values() for ref in refs)

    warm_round(sources, joins, 1, 1)
    before = rows_there()
    for source_worker, rows in zip(source_workers, (rows_of(7, 15), []), strict=True):
        run_step(source_worker, 1, 6, rows)
        source_worker.commit(2, checkpoint(1, 7))
    warm_round(sources, joins, 2, 1)
    cold = joiner(kit, tmp_path, 2)
    warm_round(sources, cold, 2, 1)
    wanted = sum(ref.rows for refs in cold.warm_chunks().values() for ref in refs)
    assert 0 < rows_there() - before == wanted - before


@pytest.mark.parametrize("again", [False, True])
def test_the_first_step_of_a_version_made_of_slices_merges_nothing(kit: Kit, tmp_path: Path, again: bool) -> None:
    """Whenever it is opened, also as a checkpoint that was taken before the step (`again`): a replay has the same runs."""
    sources, runs = sources_of([grown(kit, 3)], 2, 1), list[list[list[list[int]]]]()
    for number, epochs in ((1, (2,)), (2, (2, 3))):
        joins = joiner(kit, tmp_path, number)
        redistribute(sources, joins, 2, checkpoint(2, 6), TRACES)
        for epoch in epochs:
            joins.open(2, epoch)
        version = 2
        if again and number == 2:
            joins.commit(3, checkpoint(3, 6))
            joins.open(3, 4)
            version, epoch = 3, 4
        opened = numbers_of(joins, version)
        run_step(joins, epoch, 6, rows_of(6, 150))
        joins.pin(version + 1, checkpoint(epoch, 7))
        run_step(joins, epoch, 7, rows_of(7, 150))
        joins.copy(version + 1, checkpoint(epoch, 7))
        assert opened <= numbers_of(joins, version + 1)
        runs.append(shape(joins, version + 1))
        joins.commit(version + 2, checkpoint(epoch, 8))
        assert not opened <= numbers_of(joins, version + 2), "the second one merges as any other"
    assert runs[0] == runs[1]


def test_opening_a_version_ends_a_warm_up(kit: Kit) -> None:
    first, second = grown(kit, 1), grown(kit, 2)
    warm_round({1: (second, [(0, 1 << 64)])}, first, 1, 1)
    first.open(1, 2)
    assert not first.warm_chunks()
    with pytest.raises(FencedError):
        piece({1: (second, [(0, 1 << 64)])}, first)
    for trace in TRACES:
        with first.read_trace(trace) as spine:
            assert content(spine)
    assert first_id().epoch == 1

"""A version of another layout, made of a pinned cut without a checkpoint between: it is what the checkpoint would have given."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from databases import TRACES, Kit, MemoryKit, Rows, WorkerKit, checkpoint, run_step
from test_redistribute import AnyDatabase, check_owned, joiner, ranges, whole
from test_warm import shape

from dbsp.errors import UnavailableError
from dbsp.storage import WorkerDatabase
from dbsp.trace.redistribute import redistribute, warm_up
from tests.pace import some

STEPS = 9
MADE, CUT = replace(checkpoint(1, STEPS), layout_version=2), checkpoint(1, STEPS)


@pytest.fixture(params=["memory", "lmdb"])
def kit(request: pytest.FixtureRequest, tmp_path: Path) -> Kit:
    """Each database in turn; the map has room, because it cannot grow while a worker reads what it writes."""
    return MemoryKit() if request.param == "memory" else WorkerKit(tmp_path, map_size_bytes=1 << 28)


def rows_of(seed: int, step: int) -> Rows:
    draw = Random(seed * 100 + step)
    return [((draw.randrange(400), "x" * (step % 3)), draw.choice([1, 1, -1])) for _ in range(100)]


def advanced(kit: Kit, seed: int) -> AnyDatabase:
    """Version 1 with steps and small values before and after it."""
    database = kit.create()
    database.open(0, 1)
    for step in range(STEPS):
        if step == 4 + seed:
            database.commit(1, checkpoint(1, step))
        run_step(database, 1, step, rows_of(seed, step))
        if step == 2:
            database.put(1, "t", b"old", b"1")
            database.put(1, "t", b"gone", b"1")
    database.put(1, "t", b"new", b"2")
    database.put(1, "t", b"gone", None)
    return database


@pytest.mark.parametrize("seed", some([0, 1, 2, 3]))
def test_a_version_made_of_a_cut_is_the_one_made_of_its_checkpoint(kit: Kit, tmp_path: Path, seed: int) -> None:
    """Rows, runs, bounds and checksums of chunks, small values; whoever takes its slices first, and done twice."""
    through, direct = advanced(kit, seed), advanced(kit, seed)
    through.commit(2, CUT)
    direct.pin(2, CUT)
    plain, joins = joiner(kit, tmp_path, 1), joiner(kit, tmp_path, 2)
    stays, leaves = ranges(2, 0), ranges(2, 1)
    redistribute({0: (through, leaves)}, plain, 3, MADE, TRACES)
    redistribute({0: (through, stays)}, through, 3, MADE, TRACES)
    if seed > 1:  # what was copied ahead of version 1 is found
        for target, taken, opened in ((direct, stays, True), (joins, leaves, False)):
            warm_up({0: (direct, taken)}, target, 1, 1, 2, TRACES, bytes_max=1 << 20, opened=opened)
        direct.pin(2, CUT)
    orders = [(direct, stays, True), (joins, leaves, False)]
    for target, taken, opened in orders if seed % 2 else orders[::-1]:
        given = {0: (direct, taken)}
        report = redistribute(given, target, 2, MADE, TRACES, cut=CUT, opened=opened)
        assert redistribute(given, target, 2, MADE, TRACES, cut=CUT, opened=opened) == report
    assert (shape(direct, 2), shape(joins, 2)) == (shape(through, 3), shape(plain, 3))
    direct = kit.reopen(direct)
    assert [info.version for info in direct.versions()] == [1, 2]
    databases: list[AnyDatabase] = [through, plain, direct, joins]
    for database, version in zip(databases, (3, 3, 2, 2), strict=True):
        assert database.open(version, 2) == MADE
        if isinstance(database, WorkerDatabase):
            database.verify()
    assert whole([direct, joins]) == whole([through, plain])
    check_owned(direct, stays)
    check_owned(joins, leaves)
    for key in (b"old", b"new", b"gone"):
        assert direct.get("t", key) == through.get("t", key)
    assert direct.get("t", b"new") == b"2"
    for database in (direct, joins):
        for step in (STEPS, STEPS + 1):
            run_step(database, 2, step, [((step, "x"), 1)])
    direct.commit(3, checkpoint(2, STEPS + 2))


def test_until_it_is_opened_a_version_made_of_a_cut_can_be_taken_back(kit: Kit, tmp_path: Path) -> None:
    """Version - 1 is as it was, and so are the steps since."""
    database, joins = advanced(kit, 0), joiner(kit, tmp_path, 1)
    expected = whole([database])
    database.pin(2, CUT)
    redistribute({0: (database, ranges(2, 0))}, database, 2, MADE, TRACES, cut=CUT, opened=True)
    database = kit.reopen(database)
    database.open(1, 2)
    for step in range(4, STEPS):
        run_step(database, 2, step, rows_of(0, step))
    assert whole([database]) == expected
    with pytest.raises(UnavailableError):
        redistribute({0: (database, ranges(2, 1))}, joins, 2, MADE, TRACES, cut=checkpoint(2, STEPS))
    assert not joins.versions()

"""Cold rescale of state: slices of some databases become a version of others; any count to any, nothing lost, nothing twice."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from databases import BY_KEY, CHUNK_BYTES, TRACES, Kit, ZSet, checkpoint, content, first_id, run_step

from dbsp.errors import UnavailableError
from dbsp.storage import WorkerDatabase
from dbsp.trace.memory import MemoryDatabase
from dbsp.trace.redistribute import redistribute

SHARDS = 16
AnyDatabase = MemoryDatabase | WorkerDatabase


def shard_range(shard: int) -> tuple[int, int]:
    return shard << 60, (shard + 1) << 60


def ranges(workers: int, worker: int) -> list[tuple[int, int]]:
    """Shards dealt out in turn, so that ranges interleave."""
    return [shard_range(shard) for shard in range(SHARDS) if shard % workers == worker]


def kept(old: int, new: int, source: int, target: int) -> list[tuple[int, int]]:
    return [shard_range(shard) for shard in range(SHARDS) if shard % old == source and shard % new == target]


def whole(databases: list[AnyDatabase]) -> list[ZSet]:
    """What all workers hold together, per trace."""
    sums = []
    for trace in TRACES:
        total: ZSet = Counter()
        for database in databases:
            with database.read_trace(trace) as spine:
                total.update(content(spine))
        sums.append(total)
    return sums


def joiner(kit: Kit, tmp_path: Path, number: int) -> AnyDatabase:
    """A database of a worker that joins: no version yet."""
    if isinstance(kit.create(), MemoryDatabase):
        return MemoryDatabase(first_id(), version=None, chunk_bytes_max=CHUNK_BYTES)
    return WorkerDatabase.create(tmp_path / f"joiner-{number}", first_id(), version=None, chunk_bytes_max=CHUNK_BYTES)


def rescale(kit: Kit, tmp_path: Path, old: list[AnyDatabase], count: int, version: int) -> list[AnyDatabase]:
    """All targets get `version` from everybody's version - 1."""
    new = old[:count] + [joiner(kit, tmp_path, version * 10 + n) for n in range(count - len(old))]
    made = checkpoint(version, 7)
    for place, target in enumerate(new):
        sources = {n: (source, kept(len(old), count, n, place)) for n, source in enumerate(old)}
        report = redistribute(sources, target, version, made, TRACES)
        assert redistribute(sources, target, version, made, TRACES) == report
    return new


def test_any_count_to_any(kit: Kit, tmp_path: Path) -> None:
    first = joiner(kit, tmp_path, 0)
    redistribute({}, first, 1, checkpoint(1, 0), TRACES)
    first.open(1, 1)
    rows = [((key, "x" * (key % 3)), 1) for key in range(500)]
    for step in range(7):
        run_step(first, 1, step, rows[step::7])
    first.commit(2, checkpoint(1, 7))
    databases, expected = [first], whole([first])
    for version, count in enumerate([3, 2, 5, 1, 4], start=3):
        old = databases
        databases = rescale(kit, tmp_path, old, count, version)
        for place, database in enumerate(databases):
            found = [info.version for info in database.versions()]
            assert found == ([version - 1, version] if place < len(old) else [version])
            assert database.open(version, version) == checkpoint(version, 7)
        assert whole(databases) == expected
        for place, database in enumerate(databases):
            check_owned(database, ranges(count, place))


def check_owned(database: AnyDatabase, owned: list[tuple[int, int]]) -> None:
    """Every key hash lies in the worker's own ranges (invariant 2)."""
    for trace in TRACES:
        with database.read_trace(trace) as spine:
            hashes = [value for part in spine.parts() for value in part.words[0].tolist()]
        assert all(any(low <= value < high for low, high in owned) for value in hashes)


def test_a_target_that_is_a_source_keeps_its_old_version(kit: Kit, tmp_path: Path) -> None:
    database = kit.create()
    database.open(0, 1)
    run_step(database, 1, 0, [((key, "x"), 1) for key in range(300)])
    database.put(1, "t", b"k", b"v")
    database.commit(1, checkpoint(1, 1))
    (before,) = {tuple(sorted(zset)) for zset in whole([database])}
    half = [(0, 1 << 63)]
    report = redistribute({0: (database, half)}, database, 2, checkpoint(2, 1), TRACES)
    assert report.bytes_written < report.state_bytes
    database = kit.reopen(database)
    database.open(1, 3)
    assert {tuple(sorted(zset)) for zset in whole([database])} == {before}
    redistribute({0: (database, half)}, database, 2, checkpoint(3, 1), TRACES)
    database.open(2, 4)
    check_owned(database, half)
    assert database.get("t", b"k") == b"v"
    run_step(database, 4, 1, [])


def test_sources_must_hold_the_version_before(kit: Kit, tmp_path: Path) -> None:
    database = kit.create()
    with pytest.raises(UnavailableError):
        redistribute({0: (database, [(0, 1 << 64)])}, database, 5, checkpoint(1, 0), TRACES)
    assert [info.version for info in database.versions()] == [0]
    assert BY_KEY in TRACES

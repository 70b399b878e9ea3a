"""Standbys: whatever was committed is in each of them, and a database that is lost is made again."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from pathlib import Path

import hypothesis.strategies as st
import pytest
from databases import CHUNK_BYTES, TRACES, Kit, Rows, WorkerKit, checkpoint, content, first_id, run_step
from hypothesis import HealthCheck, settings
from hypothesis.stateful import invariant, precondition, rule
from test_database_machine import DatabaseMachine

from dbsp.errors import ConfigError, DataError, FencedError
from dbsp.lmdb_environments import data_file
from dbsp.storage import WorkerDatabase
from dbsp.storage.durable import Durable
from dbsp.storage.environment import MAP_SIZE_BYTES
from dbsp.storage.standby import Standby, restore_from
from dbsp.store import CheckpointId
from tests.pace import examples

ROWS = [((key, "x" * (key % 4)), 1) for key in range(300)]


class StandbyMachine(DatabaseMachine):
    """A database that is lost now and then, in the midst of anything, with two standbys."""

    def make_kit(self) -> Kit:
        self.folder = Path(tempfile.mkdtemp())
        self.standbys = [Standby(self.folder / name / "0000", MAP_SIZE_BYTES) for name in ("one", "two")]
        return WorkerKit(self.folder, map_size_bytes=256 << 10, standbys=tuple(s.home for s in self.standbys))

    def _open(self, version: int) -> None:
        super()._open(version)
        self.behind = None

    @precondition(lambda self: self.pinned is not None)
    @rule(bytes_max=st.sampled_from([1, 1000, 5000, None]), times=st.integers(1, 12))
    def copy(self, bytes_max: int | None, times: int) -> None:
        """It is told when the standbys have it too, some pieces later; one may end in the midst."""
        assert self.pinned is not None
        made = self.pinned.checkpoint
        for _ in range(times):
            report = self.database.copy(self.opened + 1, made, bytes_max)
        if all(info.checkpoint != made for info in self.database.versions()):
            assert report is None
            return
        self.versions = {self.opened: self.versions[self.opened], self.opened + 1: self.pinned}
        self.opened += 1
        self.base, self.pinned = made.step, None
        self.behind = made if report is None else None

    @precondition(lambda self: self.behind is not None)
    @rule(bytes_max=st.sampled_from([1, 1000, None]))
    def catch_up(self, bytes_max: int | None) -> None:
        assert self.behind is not None
        if self.database.copy(self.opened, self.behind, bytes_max) is not None:
            self.behind = None

    @rule(torn=st.booleans(), first=st.booleans())
    def lose(self, torn: bool, first: bool) -> None:
        """Its disk is gone, or (`torn`) its file; with it perhaps the first standby."""
        told = max(self.versions) if self.behind is None else max(self.versions) - 1
        self.database.close()
        home = self.database.path  # type: ignore[attr-defined]
        if torn:
            data_file(home / "durable").write_bytes(b"")
        else:
            shutil.rmtree(home)
        if first:
            shutil.rmtree(self.standbys[0].home)
        stale, self.epoch = self.epoch, self.epoch + 1
        there = [standby for standby in self.standbys if standby.exists]
        restore_from(there, home, self.epoch)
        with pytest.raises(FencedError):
            there[0].restore(home, stale)
        self.database = self.kit.reopen(self.database)
        held = {info.version: info.checkpoint for info in self.database.versions()}
        assert held == {version: self.versions[version].checkpoint for version in held}
        assert max(held) >= told
        self.database.verify()  # type: ignore[attr-defined]
        self.database.raise_epoch(self.epoch)
        self._open(max(held))

    @invariant()
    def standbys_hold_what_was_told(self) -> None:
        if hasattr(self, "database") and self.behind is None:
            told = {version: kept.checkpoint for version, kept in self.versions.items()}
            assert all(held_by(standby) == told for standby in self.standbys)

    def teardown(self) -> None:
        super().teardown()
        if hasattr(self, "folder"):
            shutil.rmtree(self.folder)


TestStandbyMachine = StandbyMachine.TestCase
TestStandbyMachine.settings = settings(
    max_examples=examples(48), stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


def held_by(standby: Standby) -> dict[int, CheckpointId]:
    """What a standby could give back."""
    side: Durable = standby.opened()
    try:
        with side.environment.reading() as txn:
            return {info.version: info.checkpoint for info in side.versions(txn)}
    finally:
        side.close()


def with_standby(folder: Path, name: str = "0000") -> WorkerDatabase:
    """A database with version 1, and a standby that has it."""
    database = WorkerDatabase.create(
        folder / name, first_id(), chunk_bytes_max=CHUNK_BYTES, standbys=[folder / "standby"]
    )
    database.open(0, 1)
    run_step(database, 1, 0, ROWS)
    database.commit(1, checkpoint(1, 1))
    return database


def opened(home: Path, version: int, epoch: int, *standbys: Path) -> WorkerDatabase:
    """A database, opened anew at a version."""
    database = WorkerDatabase(home, chunk_bytes_max=CHUNK_BYTES, standbys=standbys)
    database.raise_epoch(epoch)
    database.open(version, epoch)
    return database


def check_rows(database: WorkerDatabase, rows: Rows) -> None:
    """Every trace holds these rows, and every chunk is whole."""
    database.verify()
    for trace in TRACES:
        with database.read_trace(trace) as spine:
            assert content(spine) == Counter(dict(rows))


def test_a_commit_copies_only_what_is_new(tmp_path: Path) -> None:
    database = with_standby(tmp_path)
    before = data_file(tmp_path / "standby" / "durable").stat().st_size
    run_step(database, 1, 1, ROWS[:3])
    database.commit(2, checkpoint(1, 2))
    assert data_file(tmp_path / "standby" / "durable").stat().st_size < 1.5 * before


def test_a_standby_that_is_new_has_all_at_the_next_opening(tmp_path: Path) -> None:
    database = with_standby(tmp_path)
    database.put(1, "table", b"key", b"of an older version")
    for version in (2, 3):
        run_step(database, 1, version - 1, [])
        database.commit(version, checkpoint(1, version))
    database.close()
    added = [tmp_path / "standby", tmp_path / "more" / "0000"]
    opened(tmp_path / "0000", 3, 2, *added).close()
    assert held_by(Standby(added[1], MAP_SIZE_BYTES)) == {3: checkpoint(1, 3)}
    Standby(added[1], MAP_SIZE_BYTES).restore(tmp_path / "again", 3)
    again = opened(tmp_path / "again", 3, 3)
    check_rows(again, ROWS)
    assert again.get("table", b"key") == b"of an older version"
    again.close()


def test_a_version_is_told_when_the_standby_holds_it(tmp_path: Path) -> None:
    database = with_standby(tmp_path)
    run_step(database, 1, 1, ROWS)
    database.pin(2, checkpoint(1, 2))
    landed = 0
    while (report := database.copy(2, checkpoint(1, 2), 1)) is None:
        assert 2 not in held_by(Standby(tmp_path / "standby", MAP_SIZE_BYTES))
        landed += any(info.version == 2 for info in database.versions())
    assert held_by(Standby(tmp_path / "standby", MAP_SIZE_BYTES))[2] == checkpoint(1, 2)
    assert landed > 1, "in pieces, after it has landed in the database"
    assert report.version == 2
    database.close()


def test_a_standby_of_another_past_keeps_nothing_of_it(tmp_path: Path) -> None:
    """Taken out of the settings, and back after the database was made again from an older one: numbers mean other chunks."""
    old, ahead = tmp_path / "standby", tmp_path / "ahead"
    with_standby(tmp_path).close()
    database = opened(tmp_path / "0000", 1, 2, ahead)
    run_step(database, 2, 1, [((key, "lost"), 1) for key in range(300)])
    database.commit(2, checkpoint(2, 2))
    database.close()
    shutil.rmtree(tmp_path / "0000")
    Standby(old, MAP_SIZE_BYTES).restore(tmp_path / "0000", 3)
    database = opened(tmp_path / "0000", 1, 3)
    kept = [((key, "kept"), 1) for key in range(300)]
    run_step(database, 3, 1, kept)
    database.commit(2, checkpoint(3, 2))
    database.close()
    opened(tmp_path / "0000", 2, 4, ahead).close()
    Standby(ahead, MAP_SIZE_BYTES).restore(tmp_path / "again", 5)
    again = opened(tmp_path / "again", 2, 5)
    check_rows(again, [*ROWS, *kept])
    again.close()


def test_a_standby_of_another_run_is_left_alone(tmp_path: Path) -> None:
    with_standby(tmp_path).close()
    other = CheckpointId(run="other", epoch=9, step=0, layout_version=1, fingerprint="f")
    database = WorkerDatabase.create(tmp_path / "other", other, standbys=[tmp_path / "standby"])
    with pytest.raises(ConfigError, match="another run") as caught:
        database.open(0, 9)
    assert "move it away" in str(caught.value)
    assert held_by(Standby(tmp_path / "standby", MAP_SIZE_BYTES)) == {0: first_id(), 1: checkpoint(1, 1)}
    database.close()


def test_an_older_epoch_writes_to_no_standby(tmp_path: Path) -> None:
    """Its database knows nothing of the newer one: it was restored elsewhere."""
    database = with_standby(tmp_path)
    Standby(tmp_path / "standby", MAP_SIZE_BYTES).restore(tmp_path / "elsewhere", 2)
    run_step(database, 1, 1, ROWS)
    with pytest.raises(FencedError):
        database.commit(2, checkpoint(1, 2))
    assert max(held_by(Standby(tmp_path / "standby", MAP_SIZE_BYTES))) == 1
    database.close()


def test_what_is_left_of_a_broken_database_stays_beside_it(tmp_path: Path) -> None:
    with_standby(tmp_path).close()
    data_file(tmp_path / "0000" / "durable").write_bytes(b"rubbish")
    Standby(tmp_path / "standby", MAP_SIZE_BYTES).restore(tmp_path / "0000", 2)
    (left,) = tmp_path.glob(".0000.lost-*")
    assert data_file(left / "durable").read_bytes() == b"rubbish"


def test_a_standby_that_is_broken_too_is_told_with_both(tmp_path: Path) -> None:
    with_standby(tmp_path).close()
    shutil.rmtree(tmp_path / "0000")
    data_file(tmp_path / "standby" / "durable").write_bytes(b"")
    with pytest.raises(DataError, match="so are its standbys"):
        restore_from([Standby(tmp_path / "standby", MAP_SIZE_BYTES)], tmp_path / "0000", 2)
    assert not (tmp_path / "0000").exists()

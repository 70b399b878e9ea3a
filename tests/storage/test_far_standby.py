"""Standbys on other hosts: what was published is on each, whatever runs late, and a worker goes on from there without a copy."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import hypothesis.strategies as st
import pytest
from databases import CHUNK_BYTES, TRACES, Kit, Rows, WorkerKit, checkpoint, content, first_id, run_step
from hypothesis import HealthCheck, settings
from hypothesis.stateful import invariant, precondition, rule
from test_database_machine import DatabaseMachine

from dbsp.errors import ConfigError, DbspError, FencedError, UnavailableError
from dbsp.storage import WorkerDatabase
from dbsp.storage.environment import data_file
from dbsp.storage.far_standby import FarStandby, Settled
from dbsp.storage.standby import DURABLE
from dbsp.store import Shipment, VersionInfo
from tests.pace import examples

HOSTS = ("a", "b", "c")
ROWS: Rows = [((key, "x" * (key % 4)), 1) for key in range(300)]


def home_on(folder: Path, host: str) -> Path:
    return folder / host / "0000"


def standby_on(folder: Path, host: str) -> FarStandby:
    return FarStandby(folder / f"standbys of {host}" / "0000")


class FarStandbyMachine(DatabaseMachine):
    """A worker on one of three hosts, with standbys on the others; its host is lost now and then, and tasks run late."""

    def make_kit(self) -> Kit:
        self.folder = Path(tempfile.mkdtemp())
        self.host, self.published = "a", 0
        self.whole: set[str] = set()
        self.late: list[Callable[[], object]] = []
        return WorkerKit(self.folder / "a", map_size_bytes=256 << 10)

    def _open(self, version: int) -> None:
        """Only the published version is opened: a standby may lack any other."""
        super()._open(self.published)
        self.behind = None

    @precondition(lambda self: self.pinned is not None)
    @rule(bytes_max=st.sampled_from([1, 1000, 5000, None]), times=st.integers(1, 2))
    def copy(self, bytes_max: int | None, times: int) -> None:
        before = self.opened
        super().copy(bytes_max, times)
        if self.opened > before:
            self.behind = self.versions[self.opened].checkpoint

    @precondition(lambda self: self.pinned is None and self.behind is None)
    @rule(times=st.integers(1, 2))
    def commit(self, times: int) -> None:
        super().commit(times)
        self.behind = self.versions[self.opened].checkpoint

    @rule(host=st.sampled_from(HOSTS), bytes_max=st.sampled_from([1, 1000, 1 << 20]), pieces=st.integers(0, 12))
    def follow(self, host: str, bytes_max: int, pieces: int) -> None:
        """A standby follows, and is perhaps stopped in the midst; any of its tasks may run again later."""
        if host == self.host:
            return
        standby, epoch, version = standby_on(self.folder, host), self.epoch, self.opened
        offered = self.database.offer(version)  # type: ignore[attr-defined]
        settled = standby.settle(offered, epoch)
        self._note(lambda: standby.settle(offered, epoch))
        for _ in range(pieces):
            if settled.whole:
                break
            sent: Shipment = self.database.piece(version, settled, bytes_max)  # type: ignore[attr-defined]
            standby.take(sent, epoch)
            self._note(lambda sent=sent: standby.take(sent, epoch))  # type: ignore[misc]
            settled = standby.settle(offered, epoch)
        if settled.whole and self.behind is None:
            self.whole.add(host)

    def _note(self, task: Callable[[], object]) -> None:
        self.late = [*self.late[-20:], task]

    @precondition(lambda self: bool(self.late))
    @rule(at=st.integers(0, 20))
    def run_late(self, at: int) -> None:
        """A task of the past runs once more; what it may not do is refused."""
        with suppress(DbspError):
            self.late[at % len(self.late)]()

    @precondition(lambda self: self.behind is not None)
    @rule()
    def publish(self) -> None:
        """The coordinator publishes what the standbys of all other hosts hold."""
        others = set(HOSTS) - {self.host}
        if all(self._info(self.opened) in standby_on(self.folder, host).versions() for host in others):
            self.behind, self.published, self.whole = None, self.opened, others

    def _info(self, version: int) -> VersionInfo:
        return VersionInfo(version=version, checkpoint=self.versions[version].checkpoint)

    @precondition(lambda self: bool(self.whole))
    @rule(with_disk=st.booleans(), gap=st.integers(1, 2), last=st.booleans())
    def lose_the_host(self, with_disk: bool, gap: int, last: bool) -> None:
        wanted, there = self._info(self.published), sorted(self.whole)
        self.database.close()
        if with_disk:
            shutil.rmtree(self.database.path)  # type: ignore[attr-defined]
        self.host, self.epoch = there[-1 if last else 0], self.epoch + gap
        home, standby = home_on(self.folder, self.host), standby_on(self.folder, self.host)
        inode = data_file(standby.home / DURABLE).stat().st_ino
        assert standby.take_over(home, self.epoch, self.epoch, wanted)
        assert data_file(home / DURABLE).stat().st_ino == inode, "it was copied, and not opened"
        assert not standby.take_over(home, self.epoch, self.epoch, wanted), "a repeat does nothing"
        self.database = WorkerDatabase(home, map_size_bytes=256 << 10, chunk_bytes_max=CHUNK_BYTES)
        self.database.raise_epoch(self.epoch)
        self.database.verify()
        self.whole.discard(self.host)
        self._open(self.published)

    @invariant()
    def standbys_hold_what_was_published(self) -> None:
        if hasattr(self, "database"):
            for host in self.whole:
                assert self._info(self.published) in standby_on(self.folder, host).versions(), host

    def teardown(self) -> None:
        super().teardown()
        if hasattr(self, "folder"):
            shutil.rmtree(self.folder)


TestFarStandbyMachine = FarStandbyMachine.TestCase
TestFarStandbyMachine.settings = settings(
    max_examples=examples(40), stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


def followed(database: WorkerDatabase, standby: FarStandby, version: int, epoch: int, bytes_max: int = 1 << 20) -> int:
    """Let a standby follow to a version; return the number of pieces."""
    offered, pieces = database.offer(version), 0
    while not (settled := standby.settle(offered, epoch)).whole:
        standby.take(database.piece(version, settled, bytes_max), epoch)
        pieces += 1
    return pieces


def with_version(folder: Path) -> WorkerDatabase:
    database = WorkerDatabase.create(folder / "a", first_id(), chunk_bytes_max=CHUNK_BYTES)
    database.open(0, 1)
    run_step(database, 1, 0, ROWS)
    database.commit(1, checkpoint(1, 1))
    return database


def test_only_what_is_new_is_sent(tmp_path: Path) -> None:
    """The lag is in bytes, and a version that changes little sends little."""
    database, standby = with_version(tmp_path), FarStandby(tmp_path / "b")
    offered = database.offer(1)
    first = database.piece(1, standby.settle(offered, 1), 1)
    assert first.record is None
    assert 0 < first.left_bytes < first.total_bytes
    assert followed(database, standby, 1, 1, bytes_max=1000) > 3
    run_step(database, 1, 1, ROWS[:1])
    database.commit(2, checkpoint(1, 2))
    second = database.piece(2, standby.settle(database.offer(2), 1), 1 << 20)
    assert second.record is not None
    assert sum(len(value) for _, value in second.chunks) < first.total_bytes / 4
    standby.take(second, 1)
    assert [info.version for info in standby.versions()] == [1, 2]
    database.close()


def test_a_standby_that_lags_does_not_take_over(tmp_path: Path) -> None:
    database, standby = with_version(tmp_path), FarStandby(tmp_path / "b")
    followed(database, standby, 1, 1)
    run_step(database, 1, 1, ROWS[:1])
    database.commit(2, checkpoint(1, 2))
    wanted = VersionInfo(version=2, checkpoint=checkpoint(1, 2))
    assert not standby.take_over(tmp_path / "moved", 2, 2, wanted)
    assert not standby.take_over(tmp_path / "moved", 2, 2, replace(wanted, checkpoint=checkpoint(7, 1), version=1))
    assert not (tmp_path / "moved").exists()
    assert standby.take_over(tmp_path / "moved", 2, 2, VersionInfo(version=1, checkpoint=checkpoint(1, 1)))
    database.close()


def test_an_older_database_gives_way_and_a_newer_one_stays(tmp_path: Path) -> None:
    """The worker was on the standby's host before: what it left there is deleted; what was made since the move stays."""
    database, standby = with_version(tmp_path), FarStandby(tmp_path / "b")
    followed(database, standby, 1, 1)
    wanted = VersionInfo(version=1, checkpoint=checkpoint(1, 1))
    old = WorkerDatabase.create(tmp_path / "moved", first_id())
    old.close()
    assert standby.take_over(tmp_path / "moved", 5, 4, wanted)
    followed(database, standby, 1, 1)
    assert not standby.take_over(tmp_path / "moved", 5, 4, wanted)
    assert standby.take_over(tmp_path / "moved", 6, 6, wanted)
    database.close()


def test_late_tasks_delete_nothing(tmp_path: Path) -> None:
    database, standby = with_version(tmp_path), FarStandby(tmp_path / "b")
    early = database.offer(1)
    followed(database, standby, 1, 1)
    run_step(database, 1, 1, ROWS[:1])
    database.commit(2, checkpoint(1, 2))
    followed(database, standby, 2, 1)
    with pytest.raises(UnavailableError, match="later version"):
        standby.settle(replace(early, digests={1: b"of another history"}), 1)
    standby.settle(database.offer(2), 2)
    with pytest.raises(FencedError):
        standby.settle(early, 1)
    with pytest.raises(FencedError):
        standby.take(database.piece(1, Settled(whole=False, follows=False, held=standby.settle(early, 3).held), 1), 1)
    database.close()


def test_a_standby_of_another_run_is_left_alone(tmp_path: Path) -> None:
    database, standby = with_version(tmp_path), FarStandby(tmp_path / "b")
    followed(database, standby, 1, 1)
    other = WorkerDatabase.create(tmp_path / "other", replace(first_id(), run="other"))
    with pytest.raises(ConfigError, match="another run"):
        standby.settle(other.offer(0), 1)
    standby.discard(2)
    assert not standby.exists
    assert followed(other, standby, 0, 2) == 1
    other.close()
    database.close()


def test_chunks_of_another_past_are_not_kept(tmp_path: Path) -> None:
    """One standby has a version that was never published; the other takes over, and gives its numbers to other chunks."""
    database, ahead, other = with_version(tmp_path), FarStandby(tmp_path / "b"), FarStandby(tmp_path / "c")
    for standby in (ahead, other):
        followed(database, standby, 1, 1)
    run_step(database, 1, 1, [((1000 + key, "past"), 1) for key in range(300)])
    database.put(1, "table", b"key", b"past")
    database.commit(2, checkpoint(1, 2))
    followed(database, ahead, 2, 1)
    database.close()
    assert other.take_over(tmp_path / "moved", 2, 2, VersionInfo(version=1, checkpoint=checkpoint(1, 1)))
    moved = WorkerDatabase(tmp_path / "moved", chunk_bytes_max=CHUNK_BYTES)
    moved.open(1, 2)
    run_step(moved, 2, 1, [((5000 + key, "now"), 1) for key in range(300)])
    moved.put(2, "table", b"other", b"now")
    moved.commit(2, checkpoint(2, 2))
    expected = contents(moved)
    followed(moved, ahead, 2, 2)
    moved.close()
    assert ahead.take_over(tmp_path / "last", 3, 3, VersionInfo(version=2, checkpoint=checkpoint(2, 2)))
    last = WorkerDatabase(tmp_path / "last", chunk_bytes_max=CHUNK_BYTES)
    last.raise_epoch(3)
    last.verify()
    last.open(2, 3)
    assert contents(last) == expected
    assert (last.get("table", b"key"), last.get("table", b"other")) == (None, b"now")
    last.close()


def contents(database: WorkerDatabase) -> list[object]:
    found = []
    for trace in TRACES:
        with database.read_trace(trace) as spine:
            found.append(content(spine))
    return list(found)

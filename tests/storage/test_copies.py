"""Copies: whatever was committed is in their place, and a database that is lost with its host is made again from there."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from databases import CHUNK_BYTES, Kit, WorkerKit, checkpoint, first_id, run_step
from hypothesis import HealthCheck, settings
from hypothesis.stateful import invariant, precondition, rule
from test_standby import ROWS, StandbyMachine, check_rows

from dbsp.errors import AwayError, DataError, FencedError
from dbsp.lmdb_environments import data_file
from dbsp.object_places import FolderPlace
from dbsp.storage import WorkerDatabase
from dbsp.storage.copies import WorkerCopies
from dbsp.storage.environment import MAP_SIZE_BYTES
from dbsp.store import CheckpointId
from tests.pace import examples


@dataclass
class MemoryPlace:
    """A place in memory that counts what it stores, and does not answer for the next `away` requests."""

    objects: dict[str, bytes] = field(default_factory=dict)
    bytes_put: int = 0
    away: int = 0
    address: str = "memory"

    def _asked(self) -> None:
        if self.away:
            self.away -= 1
            raise AwayError("the place does not answer")

    def put(self, name: str, data: bytes | memoryview) -> None:
        self._asked()
        if name not in self.objects:
            self.objects[name] = bytes(data)
            self.bytes_put += len(data)

    def get(self, name: str) -> bytes:
        self._asked()
        if name not in self.objects:
            raise DataError(f"an object is missing: {name}")
        return self.objects[name]

    def names(self, prefix: str) -> list[str]:
        self._asked()
        return sorted(name for name in self.objects if name.startswith(f"{prefix}/"))

    def sizes(self, prefix: str) -> dict[str, int]:
        return {name: len(self.objects[name]) for name in self.names(prefix)}

    def delete(self, names: Iterable[str]) -> None:
        self._asked()
        for name in names:
            self.objects.pop(name, None)


class CopiesMachine(StandbyMachine):
    """A database that is lost now and then, in the midst of anything, with copies in a place that is away now and then."""

    def make_kit(self) -> Kit:
        self.folder, self.place, self.standbys = Path(tempfile.mkdtemp()), MemoryPlace(), []
        return WorkerKit(self.folder, map_size_bytes=256 << 10, copies=self._copies)

    def _copies(self) -> WorkerCopies:
        return WorkerCopies(self.place, "p/0000")

    def _end_leases(self) -> None:
        for _, lease, _ in self.leases:
            lease.end()
        self.leases, self.named = [], {}

    @precondition(lambda self: self.behind is not None)
    @rule(times=st.integers(1, 3))
    def place_is_away(self, times: int) -> None:
        """The copy of the version waits, and goes on where it was."""
        assert self.behind is not None
        self.place.away = times
        for _ in range(times):
            with pytest.raises(AwayError):
                self.database.copy(self.opened, self.behind, 1000)

    @rule(torn=st.booleans(), first=st.booleans())
    def lose(self, torn: bool, first: bool) -> None:
        """Its disk is gone, or (`torn`) its file; a process of the old epoch goes on (`first`) on the lost host.

        The readers of its leases are gone with it: they have its files open, also those that are deleted or cut here.
        """
        self._end_leases()
        told = max(self.versions) if self.behind is None else max(self.versions) - 1
        zombie, home = self.database, self.database.path  # type: ignore[attr-defined]
        self.epoch += 1
        elsewhere = home.with_name(f"{home.name}-{self.epoch}")
        if first:
            home, elsewhere = elsewhere, home
        else:
            zombie.close()
            if torn:
                data_file(home / "durable").write_bytes(b"")
            else:
                shutil.rmtree(home)
        assert self._copies().restore(home, self.epoch, MAP_SIZE_BYTES)
        self.database = WorkerDatabase(
            home, map_size_bytes=256 << 10, chunk_bytes_max=CHUNK_BYTES, copies=self._copies()
        )
        held = {info.version: info.checkpoint for info in self.database.versions()}
        assert held == {version: self.versions[version].checkpoint for version in held}
        assert max(held) >= told
        self.database.verify()
        self.database.raise_epoch(self.epoch)
        behind, opened = self.behind, self.opened
        self._open(max(held))
        if first:
            if behind is not None:
                with pytest.raises(FencedError):
                    zombie.copy(opened, behind, None)
            zombie.close()

    @invariant()
    def standbys_hold_what_was_told(self) -> None:
        if not hasattr(self, "database"):
            return
        copies = self._copies()
        names = copies._manifest_names(self.epoch)
        if self.behind is None:
            assert {name.version for name in names} == self.versions.keys()
        named = {chunk for name in names for chunk in copies._manifest(name).chunks.values()}
        assert {f"p/0000/{chunk}" for chunk in named} <= self.place.objects.keys(), "a version is whole or absent"


TestCopiesMachine = CopiesMachine.TestCase
TestCopiesMachine.settings = settings(
    max_examples=examples(48), stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


def made(folder: Path, place: Any, name: str = "0000") -> WorkerDatabase:
    """A database with version 1, and its copies."""
    database = WorkerDatabase.create(
        folder / name, first_id(), chunk_bytes_max=CHUNK_BYTES, copies=WorkerCopies(place, "p/0000")
    )
    database.open(0, 1)
    run_step(database, 1, 0, ROWS)
    database.put(1, "table", b"key", b"value")
    database.commit(1, checkpoint(1, 1))
    return database


def restored(home: Path, place: Any, epoch: int) -> dict[int, CheckpointId]:
    """Make the database again; return its versions."""
    assert WorkerCopies(place, "p/0000").restore(home, epoch, MAP_SIZE_BYTES)
    database = WorkerDatabase(home)
    try:
        return {info.version: info.checkpoint for info in database.versions()}
    finally:
        database.close()


def test_a_commit_uploads_only_what_is_new(tmp_path: Path) -> None:
    place = MemoryPlace()
    database = made(tmp_path, place)
    first = place.bytes_put
    run_step(database, 1, 1, ROWS[:3])
    database.commit(2, checkpoint(1, 2))
    assert place.bytes_put - first < first / 2
    database.close()


def test_what_has_left_all_versions_leaves_the_place(tmp_path: Path) -> None:
    place = MemoryPlace()
    database = made(tmp_path, place)
    for step in range(1, 12):
        run_step(database, 1, step, [(row, -weight if step % 2 else weight) for row, weight in ROWS])
        database.commit(step + 1, checkpoint(1, step + 1))
    copies = WorkerCopies(place, "p/0000")
    names = copies._manifest_names(1)
    assert [name.version for name in names] == [11, 12]
    named = {f"p/0000/{chunk}" for name in names for chunk in copies._manifest(name).chunks.values()}
    assert {name for name in place.objects if "/chunks/" in name} == named
    database.close()


def test_chunks_that_many_versions_share_stay(tmp_path: Path) -> None:
    place = MemoryPlace()
    database, rows = made(tmp_path, place), list(ROWS)
    for step in range(1, 6):
        rows.append(((1000 * step, "more"), 1))
        run_step(database, 1, step, rows[-1:])
        database.commit(step + 1, checkpoint(1, step + 1))
    database.close()
    assert restored(tmp_path / "again", place, 2) == {5: checkpoint(1, 5), 6: checkpoint(1, 6)}
    again = WorkerDatabase(tmp_path / "again", chunk_bytes_max=CHUNK_BYTES)
    again.raise_epoch(2)
    again.open(6, 2)
    check_rows(again, rows)
    assert again.get("table", b"key") == b"value"
    again.close()


def test_a_process_of_the_lost_host_that_goes_on_changes_nothing(tmp_path: Path) -> None:
    """It stops before its manifest is put; a new owner makes the database elsewhere, and goes on from the version before."""
    place = MemoryPlace()
    database = made(tmp_path, place)
    run_step(database, 1, 1, ROWS)
    database.pin(2, checkpoint(1, 2))
    plain_put, taken = place.put, list[dict[int, CheckpointId]]()

    def put(name: str, data: bytes | memoryview) -> None:
        if "/versions/" in name and not taken:
            taken.append(restored(tmp_path / "again", place, 2))
            again = WorkerDatabase(tmp_path / "again", copies=WorkerCopies(place, "p/0000"))
            again.raise_epoch(2)
            again.open(1, 2)
            again.close()
        plain_put(name, data)

    place.put = put  # type: ignore[method-assign]
    assert database.copy(2, checkpoint(1, 2)) is not None, "the host does not know that it is lost"
    assert taken == [{0: first_id(), 1: checkpoint(1, 1)}]
    assert restored(tmp_path / "last", place, 3)[1] == checkpoint(1, 1)
    assert 2 not in restored(tmp_path / "once more", place, 4)
    with pytest.raises(FencedError, match="newer epoch owns these copies"):
        WorkerCopies(place, "p/0000").follow(database._disk(), 2, 1)
    database.close()


def test_a_version_whose_chunks_are_not_all_there_is_absent(tmp_path: Path) -> None:
    """A piece at a time, whatever the piece: the manifest comes last."""
    place = MemoryPlace()
    database = made(tmp_path, place)
    run_step(database, 1, 1, ROWS)
    database.pin(2, checkpoint(1, 2))
    seen = 0
    while database.copy(2, checkpoint(1, 2), 1) is None:
        names = WorkerCopies(place, "p/0000")._manifest_names(1)
        assert 2 not in {name.version for name in names}
        seen += any(f"/chunks/{1:020}/" in name for name in place.objects)
    assert seen > 1
    database.close()
    assert 2 in restored(tmp_path / "again", place, 2)


def test_a_second_attempt_that_opens_late_deletes_nothing_of_the_first(tmp_path: Path) -> None:
    """It stalls before it lists the chunks; the first attempt has opened, and uploads the next version."""
    place = MemoryPlace()
    database = made(tmp_path, place)
    database.raise_epoch(2)
    late = WorkerCopies(place, "p/0000")
    plain_names, going = place.names, [True]

    def names(prefix: str) -> list[str]:
        if prefix.endswith("/chunks") and going:
            going.clear()
            database.open(1, 2)
            run_step(database, 2, 1, ROWS)
            database.pin(2, checkpoint(2, 2))
            while not any(f"/chunks/{2:020}/" in name for name in place.objects):
                database.copy(2, checkpoint(2, 2), 1)
        return plain_names(prefix)

    place.names = names  # type: ignore[method-assign]
    late.open(database._disk(), 1, 2)
    assert database.copy(2, checkpoint(2, 2)) is not None
    database.close()
    assert restored(tmp_path / "again", place, 3) == {1: checkpoint(1, 1), 2: checkpoint(2, 2)}


def test_the_chunks_of_a_manifest_that_a_late_attempt_put_stay(tmp_path: Path) -> None:
    """The next epoch uploads the chunks once more; the manifest of the late attempt is there, and names its own."""
    place = MemoryPlace()
    database = made(tmp_path, place)
    run_step(database, 1, 1, ROWS)
    plain_put = place.put

    def breaks(name: str, data: bytes | memoryview) -> None:
        if "/versions/" in name:
            raise AwayError("the place does not answer")
        plain_put(name, data)

    place.put = breaks  # type: ignore[method-assign]
    with pytest.raises(AwayError):
        database.commit(2, checkpoint(1, 2))
    place.put = plain_put  # type: ignore[method-assign]
    assert WorkerCopies(place, "p/0000").follow(database._disk(), 2, 1), "the late attempt"
    database.raise_epoch(2)
    database.open(2, 2)
    database.close()
    assert restored(tmp_path / "again", place, 3) == {2: checkpoint(1, 2)}


def test_a_database_made_again_uploads_nothing_twice(tmp_path: Path) -> None:
    place = MemoryPlace()
    made(tmp_path, place).close()
    before = {name for name in place.objects if "/chunks/" in name}
    assert restored(tmp_path / "again", place, 2) == {0: first_id(), 1: checkpoint(1, 1)}
    again = WorkerDatabase(tmp_path / "again", chunk_bytes_max=CHUNK_BYTES, copies=WorkerCopies(place, "p/0000"))
    again.raise_epoch(2)
    again.open(1, 2)
    check_rows(again, ROWS)
    assert again.get("table", b"key") == b"value"
    assert {name for name in place.objects if "/chunks/" in name} == before
    again.close()


def test_a_version_of_an_older_epoch_that_was_passed_over_is_not_restored(tmp_path: Path) -> None:
    """It was copied and never published; the pipeline went on without it, and then the host was lost."""
    place = MemoryPlace()
    database = made(tmp_path, place)
    run_step(database, 1, 1, ROWS)
    database.commit(2, checkpoint(1, 2))
    database.raise_epoch(2)
    database.open(1, 2)
    database.close()
    assert restored(tmp_path / "again", place, 3) == {1: checkpoint(1, 1)}


def test_an_upload_that_broke_off_is_deleted_by_the_next_epoch(tmp_path: Path) -> None:
    place = MemoryPlace()
    database = made(tmp_path, place)
    run_step(database, 1, 1, ROWS)
    database.pin(2, checkpoint(1, 2))
    whole = len(place.objects)
    database.copy(2, checkpoint(1, 2), 1)
    database.raise_epoch(2)
    database.open(1, 2)
    assert len([name for name in place.objects if "/chunks/" in name]) < whole
    check_rows(database, ROWS)
    database.close()
    assert restored(tmp_path / "again", place, 3) == {1: checkpoint(1, 1)}


@pytest.mark.parametrize("part", ["chunks", "versions"])
def test_a_damaged_object_is_named_and_not_used(part: str, tmp_path: Path) -> None:
    place = FolderPlace(tmp_path / "place")
    made(tmp_path, place).close()
    file = max((tmp_path / "place" / "p" / "0000" / part).rglob("*-*"))
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with pytest.raises(DataError, match=f"damaged.*{file.name}"):
        restored(tmp_path / "again", place, 2)
    assert not (tmp_path / "again").exists()


def test_a_discarded_worker_leaves_nothing_and_one_that_joins_again_keeps_its_own(tmp_path: Path) -> None:
    place = MemoryPlace()
    made(tmp_path, place).close()
    condemned = WorkerCopies(place, "p/0000").condemn()
    later = made(tmp_path, place, "again")
    later.close()
    WorkerCopies(place, "p/0000").discard(condemned)
    WorkerCopies(place, "p/0000").discard(condemned)
    assert restored(tmp_path / "last", place, 2) == {0: first_id(), 1: checkpoint(1, 1)}
    WorkerCopies(place, "p/0000").discard(WorkerCopies(place, "p/0000").condemn())
    assert not [name for name in place.objects if "/opened/" not in name]
    assert not WorkerCopies(place, "p/0000").restore(tmp_path / "none", 3, MAP_SIZE_BYTES)

"""Copies behind the checkpoints of one database: the newest listed checkpoint is whole, and can be made again from there."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import hypothesis.strategies as st
import pytest
from databases import CHUNK_BYTES, Kit, WorkerKit, checkpoint, first_id, run_step
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import initialize, invariant, precondition, rule, run_state_machine_as_test
from test_copies import MemoryPlace
from test_database_machine import ROWS, Kept, WorkerMachine

from dbsp.errors import AwayError, DataError, FencedError, UnavailableError
from dbsp.storage import WorkerDatabase
from dbsp.storage.behind import HeldVersion, hold_version
from dbsp.storage.copied_checkpoints import CheckpointName, CopiedCheckpoints, dismissed
from dbsp.storage.copies import WorkerCopies
from dbsp.storage.durable import Durable
from dbsp.storage.environment import MAP_SIZE_BYTES
from dbsp.storage.scratch import Scratch
from dbsp.store import CheckpointId
from tests.pace import examples

FAULTS = st.lists(st.sampled_from(["", "", "lost", "torn", "late", "torn late", "away"]), max_size=6)
"""What happens to the next objects that are put."""
MANY = [((number, "many"), 1) for number in range(200)]
"""Rows of several chunks."""


@dataclass
class TroubledPlace(MemoryPlace):
    """A place that loses, cuts or delays the next objects that are put."""

    faults: list[str] = field(default_factory=list)

    def put(self, name: str, data: bytes | memoryview) -> None:
        fault = self.faults.pop() if self.faults else ""
        if fault not in ("lost", "away"):
            super().put(name, bytes(data)[: len(data) // 2] if fault.startswith("torn") else data)
        if fault in ("away", "late", "torn late"):
            raise AwayError("the place does not answer")


@dataclass
class Owner:
    """The process that copies the versions of one epoch, on one disk."""

    database: WorkerDatabase
    copies: WorkerCopies
    epoch: int
    version: int
    checkpoint: CheckpointId
    kept: Kept

    def copy(self, bytes_max: int | None) -> bool:
        """A piece; return whether all is there. A place that loses objects is asked again by the next piece."""
        try:
            return not self.database.copy_behind(self.copies, self.epoch, self.version, self.checkpoint, 0, bytes_max)
        except AwayError:
            return False

    def list_whole(self, newest: int, seen: list[CheckpointName] | None = None) -> CheckpointName | None:
        """Put the checkpoint object and read it back; then retention deletes older ones, as `seen` some time before."""
        checkpoints = self.copies.checkpoints
        assert checkpoints is not None
        names = checkpoints.check_owner(self.epoch) if seen is None else seen
        name = CheckpointName(self.epoch, self.version, self.checkpoint.epoch, 0)
        try:
            checkpoints.put(name, {})
            checkpoints.get(name)
        except AwayError:
            return None
        except DataError:
            checkpoints.delete([name])
            return None
        checkpoints.delete(dismissed([*names, name], newest=newest, seconds=0, now_s=0))
        return name


class BehindMachine(WorkerMachine):
    """The disk is lost at any moment; a process of the lost host goes on, also while all return to the copies."""

    database: WorkerDatabase  # type: ignore[assignment]

    def make_kit(self) -> Kit:
        self.folder, self.place = Path(tempfile.mkdtemp()), TroubledPlace()
        self.checkpoints = CopiedCheckpoints(self.place, "p")
        self.copying: Owner | None = None
        self.lost: Owner | None = None
        self.known = dict[tuple[int, int], Kept]()
        return WorkerKit(self.folder, map_size_bytes=256 << 10)

    def _copies(self) -> WorkerCopies:
        return WorkerCopies(self.place, "p/0000", self.checkpoints)

    @initialize()
    def nobody_copies(self) -> None:
        self.homes = 0

    def _open(self, version: int) -> None:
        super()._open(version)
        self.copying = None

    @rule(bytes_max=st.sampled_from([1, 1000, None, None]), newest=st.integers(1, 2), faults=FAULTS)
    def copy_behind(self, bytes_max: int | None, newest: int, faults: list[str]) -> None:
        """A piece of the version that was the newest when its copy was begun, whatever was committed since."""
        self.place.faults = faults
        if self.copying is None:
            version = max(self.versions)
            kept = self.versions[version]
            self.copying = Owner(self.database, self._copies(), self.epoch, version, kept.checkpoint, kept)
        self._advance(self.copying, bytes_max, newest)

    def _advance(
        self, owner: Owner, bytes_max: int | None, newest: int, seen: list[CheckpointName] | None = None
    ) -> None:
        if owner.copy(bytes_max):
            self.known[owner.version, owner.checkpoint.epoch] = owner.kept
            if owner.list_whole(newest, seen) is not None and owner is self.copying:
                self.copying = None

    @precondition(lambda self: self.pinned is None)
    @rule(rows=ROWS, times=st.integers(1, 3), bytes_max=st.sampled_from([5000, None]), faults=FAULTS)
    def go_on(
        self, rows: list[tuple[tuple[int, str], int]], times: int, bytes_max: int | None, faults: list[str]
    ) -> None:
        """Some checkpoints and pieces, with rows that are taken back in between: chunks leave the versions."""
        for number in range(times):
            sign = 1 if number % 2 == 0 else -1
            self.run([(row, sign * weight) for row, weight in [*rows, *MANY]], [0, 1], False)
            self.commit(1)
            self.copy_behind(bytes_max, 1, faults)

    @rule(crash=st.booleans())
    def roll_back(self, crash: bool) -> None:
        """To the newest version: what was committed here was published."""
        if crash:
            self.database = self.kit.reopen(self.database)  # type: ignore[assignment]
        self.epoch += 1
        self.database.raise_epoch(self.epoch)
        self._open(max(self.versions))

    @precondition(lambda self: any(map(self._is_whole, self.checkpoints.names())))
    @rule(at=st.integers(0, 3), newest=st.integers(1, 2))
    def lose(self, at: int, newest: int) -> None:
        """The disk is gone, and all return; whoever copies from the lost host ends his copy at one of these moments."""
        self.place.faults = []
        late, self.copying, self.lost = self.copying, None, None

        def goes_on(moment: int, seen: list[CheckpointName] | None = None) -> None:
            if moment == at and late is not None:
                late.copies.close()
                self._advance(late, None, newest, seen)

        for _, lease, _ in self.leases:
            lease.end()
        self.leases.clear()
        self.epoch += 1
        while True:
            goes_on(0)
            names = self.checkpoints.check_owner(self.epoch)
            whole = (name for name in reversed(names) if self._is_whole(name))
            name = next(name for name in whole if self._copies().lacks(*name.state) is None)
            goes_on(1)
            again = replace(name, made=self.epoch)
            self.checkpoints.put(again, {})
            if name in self.checkpoints.names():
                break
            self.checkpoints.delete([again])
            at = -1  # it has ended
        goes_on(2, names)
        self._copies().mark(name.version, self.epoch)
        self.checkpoints.delete(each for each in names if each.version > name.version)
        self.epoch += 1
        self.homes += 1
        home = self.database.path.with_name(f"again-{self.homes}")
        assert self._copies().restore_named(home, self.epoch, MAP_SIZE_BYTES)
        if late is None:
            self.database.close()
        else:
            self.lost = late
        self.database = WorkerDatabase(home, map_size_bytes=256 << 10, chunk_bytes_max=CHUNK_BYTES)
        kept = self.known[name.state]
        assert [info.checkpoint for info in self.database.versions()] == [kept.checkpoint]
        self.database.verify()
        self.database.raise_epoch(self.epoch)
        self.versions = {name.version: kept}
        self._open(name.version)

    @precondition(lambda self: self.lost is not None)
    @rule()
    def the_lost_host_goes_on(self) -> None:
        """It is refused, as soon as it lists the place."""
        assert self.lost is not None
        self.lost.copies.close()
        with pytest.raises(FencedError):
            self.lost.database.copy_behind(
                self.lost.copies, self.lost.epoch, self.lost.version, self.lost.checkpoint, 0, None
            )

    @invariant()
    def the_newest_checkpoint_is_whole(self) -> None:
        for name in self.checkpoints.names()[-1:] if hasattr(self, "checkpoints") else ():
            if self._is_whole(name):
                assert list(self._copies().damage(*name.state)) == []

    def _is_whole(self, name: CheckpointName) -> bool:
        """Whether the object itself can be read: one that was cut is put again, and nothing older has gone meanwhile."""
        try:
            self.checkpoints.get(name)
        except DataError:
            return False
        return True


SETTINGS = settings(
    max_examples=examples(32), stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck),
)  # fmt: skip
TestBehindMachine = BehindMachine.TestCase
TestBehindMachine.settings = SETTINGS


def count_what_was_cut(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(WorkerCopies, "_compare", lambda *_: None)


def hold_nothing(patch: pytest.MonkeyPatch) -> None:
    def plain(scratch: Scratch, durable: Durable, version: int, made: CheckpointId, needed_from: int) -> HeldVersion:
        held = hold_version(scratch, durable, version, made, needed_from)
        scratch.environment.write(lambda txn: txn.delete("leases", b"copies"))
        return held

    patch.setattr("dbsp.storage.behind.hold_version", plain)


@pytest.mark.soak
@pytest.mark.parametrize("plant", [count_what_was_cut, hold_nothing])
def test_planted_bugs_are_found(plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises((AssertionError, DataError, UnavailableError, StopIteration, ExceptionGroup)):
        run_state_machine_as_test(
            BehindMachine,
            settings=settings(SETTINGS, max_examples=60, phases=[Phase.generate], report_multiple_bugs=False),
        )


def copy_in_a_new_epoch(folder: Path) -> None:
    """The first version is listed; the second is copied by a piece, in another epoch."""
    place = MemoryPlace()
    checkpoints = CopiedCheckpoints(place, "p")
    database = WorkerDatabase.create(folder / "0000", first_id(), chunk_bytes_max=CHUNK_BYTES)
    database.open(0, 1)
    for version in (1, 2):
        run_step(database, 1, version - 1, MANY if version == 1 else MANY[:3])
        database.commit(version, checkpoint(1, version))
        if version == 1:
            copies = WorkerCopies(place, "p/0000", checkpoints)
            assert not database.copy_behind(copies, 1, 1, checkpoint(1, 1), 0)
            checkpoints.put(CheckpointName(1, 1, 1, 0), {})
    database.raise_epoch(2)
    database.open(2, 2)
    copies = WorkerCopies(place, "p/0000", checkpoints)
    assert database.copy_behind(copies, 2, 2, checkpoint(1, 2), 0, 1)
    assert list(copies.damage(1, 1)) == []
    before = place.bytes_put
    assert not database.copy_behind(copies, 2, 2, checkpoint(1, 2), 0)
    assert place.bytes_put - before < before, "chunks of the listed version are named again"
    database.close()


def test_what_a_checkpoint_names_stays_in_a_new_epoch(tmp_path: Path) -> None:
    copy_in_a_new_epoch(tmp_path)


def test_an_object_that_a_manifest_names_and_is_collected_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bug is planted: manifests are deleted without a look at the checkpoints that name them."""
    monkeypatch.setattr(WorkerCopies, "_rooted", lambda _self: frozenset())
    with pytest.raises(AssertionError, match="a manifest is missing"):
        copy_in_a_new_epoch(tmp_path)

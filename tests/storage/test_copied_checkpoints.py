"""Checkpoints among the copies: what one of them names is there, whatever is kept, retired, lost, restored or torn."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import hypothesis.strategies as st
import pytest
from databases import CHUNK_BYTES, Kit, WorkerKit
from hypothesis import HealthCheck, settings
from hypothesis.stateful import initialize, invariant, precondition, rule
from test_copies import CopiesMachine, MemoryPlace
from test_database_machine import ROWS, Kept

from dbsp.errors import FencedError
from dbsp.storage import WorkerDatabase
from dbsp.storage.copied_checkpoints import CheckpointName, CopiedCheckpoints, dismissed
from dbsp.storage.copies import WorkerCopies
from dbsp.storage.environment import MAP_SIZE_BYTES
from tests.pace import examples

MANY = [((number, "many"), 1) for number in range(300)]
"""Rows of several chunks."""


class CheckpointsMachine(CopiesMachine):
    """Published versions are listed, kept, retired, and restored, while the disk is lost and late processes go on."""

    def make_kit(self) -> Kit:
        self.folder, self.place, self.standbys = Path(tempfile.mkdtemp()), MemoryPlace(), []
        self.checkpoints = CopiedCheckpoints(self.place, "p")
        return WorkerKit(self.folder, map_size_bytes=256 << 10, copies=self._copies)

    def _copies(self) -> WorkerCopies:
        return WorkerCopies(self.place, "p/0000", self.checkpoints)

    @initialize()
    def no_checkpoints(self) -> None:
        self.listed = dict[CheckpointName, Kept]()
        self.kept = dict[CheckpointName, Kept]()

    @precondition(lambda self: self.behind is None)
    @rule(newest=st.integers(1, 3))
    def publish(self, newest: int) -> None:
        """List the newest version, and let retention delete older ones."""
        kept = self.versions[max(self.versions)]
        name = CheckpointName(self.epoch, max(self.versions), kept.checkpoint.epoch, 0)
        assert set(self.checkpoints.check_owner(self.epoch)) == self.listed.keys()
        self.checkpoints.put(name, {})
        self.listed[name] = kept
        gone = dismissed(self.checkpoints.names(), newest=newest, seconds=0, now_s=0)
        self.checkpoints.delete(gone)
        self.listed = {each: found for each, found in self.listed.items() if each not in gone}
        assert name in self.listed

    @precondition(lambda self: self.behind is None and self.pinned is None)
    @rule(rows=ROWS, times=st.integers(1, 4), newest=st.integers(1, 3), keeps=st.booleans())
    def go_on(self, rows: list[tuple[tuple[int, str], int]], times: int, newest: int, keeps: bool) -> None:
        """Some checkpoints, with rows that are taken back in between: chunks leave the versions."""
        for number in range(times):
            sign = 1 if number % 2 == 0 else -1
            self.run([(row, sign * weight) for row, weight in [*rows, *MANY]], [0, 1], False)
            self.commit(1)
            self.publish(newest)
            if keeps and number == 0:
                self.keep()

    @precondition(lambda self: self.behind is None and bool(self.listed))
    @rule()
    def keep(self) -> None:
        """Keep the published version, as long as no later one was published."""
        name = max(self.listed)
        if name.version == max(self.versions):
            self.checkpoints.put(name, {}, kept=True)
            self.kept[name] = self.listed[name]

    @precondition(lambda self: bool(self.kept))
    @rule(oldest=st.booleans())
    def delete_kept(self, oldest: bool) -> None:
        name = min(self.kept) if oldest else max(self.kept)
        self.checkpoints.delete([name], kept=True)
        del self.kept[name]

    @precondition(lambda self: bool(self.listed or self.kept))
    @rule(oldest=st.booleans(), first=st.booleans())
    def restore(self, oldest: bool, first: bool) -> None:
        """Go back to a checkpoint in another folder; the process of the old one may go on, and is refused."""
        every = sorted({**self.listed, **self.kept}.items(), key=lambda found: found[0])
        name, kept = every[0] if oldest else every[-1]
        late, home = self.database, self.database.path  # type: ignore[attr-defined]
        before, behind, opened = self.epoch, self.behind, self.opened
        self.epoch += 1000
        again = CheckpointName(self.epoch, name.version, name.epoch, 0)
        self.checkpoints.put(again, {})
        self.listed[again] = kept
        self._copies().rewind(name.version, name.epoch, self.epoch)
        self._copies().rewind(name.version, name.epoch, self.epoch)
        if first:
            with pytest.raises(FencedError, match="newer epoch owns these copies"):
                self.checkpoints.check_owner(before)
            if behind is not None:
                with pytest.raises(FencedError):
                    late.copy(opened, behind, None)
        late.close()
        self._end_leases()
        shutil.rmtree(home)
        self.epoch += 1
        assert self._copies().restore(home, self.epoch, MAP_SIZE_BYTES)
        self.database = WorkerDatabase(
            home, map_size_bytes=256 << 10, chunk_bytes_max=CHUNK_BYTES, copies=self._copies()
        )
        assert [info.checkpoint for info in self.database.versions()] == [kept.checkpoint]
        self.database.raise_epoch(self.epoch)
        self.versions = {name.version: kept}
        self._open(name.version)

    @invariant()
    def standbys_hold_what_was_told(self) -> None:
        """The versions of the database and of every checkpoint are whole; after an opening nothing else is there."""
        if not hasattr(self, "listed") or self.place.away:
            return
        copies = self._copies()
        for name in {**self.listed, **self.kept}:
            assert list(copies.damage(name.version, name.epoch)) == []
        if self.behind is None:
            assert self.versions.keys() <= {name.version for name in copies._manifest_names(self.epoch)}


TestCheckpointsMachine = CheckpointsMachine.TestCase
TestCheckpointsMachine.settings = settings(
    max_examples=examples(20), stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
)

"""A database is taken away only by the newest epoch that it has met."""

from __future__ import annotations

from pathlib import Path

import pytest

from dbsp.errors import FencedError
from dbsp.storage import WorkerDatabase
from dbsp.storage.discarding import discard_folder
from dbsp.store import CheckpointId

FIRST = CheckpointId(run="r", epoch=0, step=0, layout_version=0, fingerprint="f")


def test_the_newest_epoch_takes_it_away_and_nothing_is_left(tmp_path: Path) -> None:
    database = WorkerDatabase.create(tmp_path / "w1", FIRST)
    database.raise_epoch(3)
    database.close()
    discard_folder(tmp_path / "w1", 4, tmp_path / "gone")
    assert list(tmp_path.iterdir()) == []


def test_an_older_epoch_is_refused_and_deletes_nothing(tmp_path: Path) -> None:
    database = WorkerDatabase.create(tmp_path / "w1", FIRST)
    database.raise_epoch(5)
    with pytest.raises(FencedError, match="epoch=4 newest=5"):
        discard_folder(tmp_path / "w1", 4, tmp_path / "gone")
    assert [info.version for info in database.versions()] == [0]
    database.close()


def test_what_is_no_database_is_deleted(tmp_path: Path) -> None:
    (tmp_path / "w1").mkdir()
    discard_folder(tmp_path / "w1", 1, tmp_path / "gone")
    assert list(tmp_path.iterdir()) == []

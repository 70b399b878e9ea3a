"""A database is taken away only by the newest epoch that it has met."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from dbsp.errors import DataError, FencedError
from dbsp.storage import WorkerDatabase, discarding
from dbsp.storage.discarding import discard_folder, discard_leftovers
from dbsp.storage.durable import NUMBERS, Durable
from dbsp.storage.standby import DURABLE, WRITERS
from dbsp.storage.tables import Txn
from dbsp.store import CheckpointId

FIRST = CheckpointId(run="r", epoch=0, step=0, layout_version=0, fingerprint="f")


def test_the_newest_epoch_takes_it_away_and_nothing_is_left(tmp_path: Path) -> None:
    database = WorkerDatabase.create(tmp_path / "w1", FIRST)
    database.raise_epoch(3)
    database.close()
    discard_folder(tmp_path / "w1", 4)
    assert list(tmp_path.iterdir()) == []


def test_an_older_epoch_is_refused_and_deletes_nothing(tmp_path: Path) -> None:
    database = WorkerDatabase.create(tmp_path / "w1", FIRST)
    database.raise_epoch(5)
    with pytest.raises(FencedError, match="epoch=4 newest=5"):
        discard_folder(tmp_path / "w1", 4)
    assert [info.version for info in database.versions()] == [0]
    database.close()


def test_what_is_no_database_is_deleted(tmp_path: Path) -> None:
    (tmp_path / "w1").mkdir()
    discard_folder(tmp_path / "w1", 1)
    assert list(tmp_path.iterdir()) == []


KILLED_WHILE_DELETING = """
import os, shutil, signal, sys
from pathlib import Path
from dbsp.storage.discarding import discard_folder

shutil.rmtree = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
discard_folder(Path(sys.argv[1]), 1)
"""

KILLED_WHILE_MAKING = """
import os, signal, sys
from pathlib import Path
from dbsp.storage import WorkerDatabase
from dbsp.store import CheckpointId

Path.rename = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
first = CheckpointId(run="r", epoch=1, step=0, layout_version=0, fingerprint="f")
WorkerDatabase.create(Path(sys.argv[1]), first)
"""


def _killed(code: str, home: Path) -> None:
    done = subprocess.run([sys.executable, "-c", code, str(home)], check=False, capture_output=True, timeout=60)
    assert done.returncode == -signal.SIGKILL, done.stderr


def _names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def test_what_a_killed_one_renamed_the_next_one_deletes(tmp_path: Path) -> None:
    WorkerDatabase.create(tmp_path / "w1", FIRST).close()
    _killed(KILLED_WHILE_DELETING, tmp_path / "w1")
    [left] = _names(tmp_path)
    assert left.startswith(".w1.gone-")
    (tmp_path / ".w10.gone-1").mkdir()
    discard_folder(tmp_path / "w1", 2)
    assert _names(tmp_path) == [".w10.gone-1"]


def test_what_was_left_in_the_making_is_deleted_with_the_database(tmp_path: Path) -> None:
    _killed(KILLED_WHILE_MAKING, tmp_path / "w1")
    [left] = _names(tmp_path)
    assert left.startswith("w1.new-")
    (tmp_path / f"w1.old-{'0' * 32}").mkdir()
    (tmp_path / "w1.old-kept-by-hand").mkdir()
    WorkerDatabase.create(tmp_path / "w1", FIRST).close()
    discard_folder(tmp_path / "w1", 2)
    assert _names(tmp_path) == ["w1.old-kept-by-hand"]


def test_an_older_epoch_deletes_nothing_that_is_in_the_making(tmp_path: Path) -> None:
    _killed(KILLED_WHILE_MAKING, tmp_path / "w1")
    left = _names(tmp_path)
    with pytest.raises(FencedError, match="epoch=0 newest=1"):
        discard_folder(tmp_path / "w1", 0)
    discard_leftovers(tmp_path / "w1", 0)
    assert _names(tmp_path) == left
    discard_leftovers(tmp_path / "w1", 1)
    assert _names(tmp_path) == []


def test_where_nothing_is_nothing_is_deleted(tmp_path: Path) -> None:
    discard_folder(tmp_path / "workers" / "w1", 1)
    discard_leftovers(tmp_path / "workers" / "w1", 1)
    assert _names(tmp_path) == []


def test_one_that_appears_meanwhile_is_not_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def appears(*_: object) -> None:
        WorkerDatabase.create(tmp_path / "w1", replace(FIRST, epoch=3)).close()
        monkeypatch.undo()
        raise DataError("there was none")

    monkeypatch.setattr(discarding, "Durable", appears)
    with pytest.raises(FencedError, match="epoch=2 newest=3"):
        discard_folder(tmp_path / "w1", 2)
    assert _names(tmp_path) == ["w1"]


def test_numbers_of_chunks_are_reserved_for_one_caller_alone(tmp_path: Path) -> None:
    with durable(tmp_path) as made:
        first = made.write(1, made.reserve)
        assert made.write(1, made.reserve) == first + NUMBERS
        assert made.write(1, lambda txn: made.reserve(txn, first + 10 * NUMBERS)) == first + 10 * NUMBERS


def test_of_a_version_that_is_undone_no_small_value_is_left(tmp_path: Path) -> None:
    with durable(tmp_path) as made:

        def put(txn: Txn) -> None:
            made._put_values(txn, 1, {b"key": b"value"})
            assert made.changed(txn, 1) == [b"key"]
            made.drop(txn, 1, undo=True)
            assert made.changed(txn, 1) == []
            assert made.value_keys(txn) == []

        made.write(1, put)


@contextmanager
def durable(folder: Path) -> Iterator[Durable]:
    WorkerDatabase.create(folder / "w1", replace(FIRST, epoch=1)).close()
    made = Durable(folder / "w1" / DURABLE, folder / "w1" / WRITERS, 1 << 22)
    yield made
    made.close()

"""New folders survive a power failure: each name is synced after it was made, by the folder that holds it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from databases import first_id

from dbsp.disk import make_folder
from dbsp.storage import WorkerDatabase
from dbsp.storage.environment import MAP_SIZE_BYTES
from dbsp.storage.standby import Standby, make_bare, restore_from


def forgotten(make: Callable[[], object], under: Path) -> set[Path]:
    """Folders that are there after `make`, whose names no sync of the folder above has followed.

    As the operating system is asked: a rename counts as a new name, and a sync as one of what the descriptor names then.
    """
    unsynced: set[Path] = set()
    mkdir, rename, fsync = os.mkdir, os.rename, os.fsync

    def made(path: Any, *rest: Any, **options: Any) -> None:
        mkdir(path, *rest, **options)
        unsynced.add(Path(path))

    def renamed(old: Any, new: Any, **options: Any) -> None:
        rename(old, new, **options)
        unsynced.add(Path(new))

    def synced(descriptor: int) -> None:
        fsync(descriptor)
        folder = Path(f"/proc/self/fd/{descriptor}").readlink()
        unsynced.difference_update([path for path in unsynced if path.parent == folder])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "mkdir", made)
        patch.setattr(os, "rename", renamed)
        patch.setattr(os, "fsync", synced)
        make()
    return {path.relative_to(under) for path in unsynced if path.exists()}


def database(home: Path) -> None:
    WorkerDatabase.create(home, first_id()).close()


def restored(home: Path) -> None:
    held = home.parent.parent.with_name("standby")
    WorkerDatabase.create(held, first_id()).close()
    restore_from([Standby(held, MAP_SIZE_BYTES)], home, epoch=1)


def bare(home: Path) -> None:
    make_bare(home, epoch=1, map_size_bytes=MAP_SIZE_BYTES)


@pytest.mark.parametrize("make", [database, restored, bare, make_folder], ids=lambda make: make.__name__)
def test_no_name_on_the_way_to_a_new_folder_is_left_unsynced(tmp_path: Path, make: Callable[[Path], None]) -> None:
    home = tmp_path / "data" / "workers" / "0000"
    left = forgotten(lambda: make(home), tmp_path)
    assert home.is_dir()
    above = {Path("data"), Path("data/workers"), Path("data/workers/0000")}
    assert not left & above


def test_the_instrument_sees_a_name_that_is_forgotten(tmp_path: Path) -> None:
    left = forgotten(lambda: (tmp_path / "one" / "two").mkdir(parents=True), tmp_path)
    assert left == {Path("one"), Path("one/two")}

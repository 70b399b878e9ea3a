"""Taking a whole database away, so that nobody of an older epoch can do it later.

A coordinator that was stopped while it deletes the database of a worker that left may wake up when the worker is back. So the
folder is renamed inside a write transaction that has checked the epoch (6): whoever raises the epoch meanwhile ends the one that
is stopped inside, and one that wakes up before is refused.

A process that is killed after such a rename leaves the folder under its last name, and one that is killed while it makes a
database leaves that (`WorkerDatabase.create`). Nobody reads them again; whoever deletes or makes the worker's database next
deletes them, but for those that a newer epoch has made.

What a process has open takes its room on the disk after it was deleted: `WorkerDatabase.holds_deleted` tells whoever
keeps databases open.
"""

from __future__ import annotations

import re
import shutil
import uuid
from contextlib import suppress
from pathlib import Path

from dbsp.errors import DataError, FencedError
from dbsp.storage.durable import Durable
from dbsp.storage.environment import MAP_SIZE_BYTES
from dbsp.storage.standby import DURABLE, WRITERS


def discard_folder(home: Path, epoch: int) -> None:
    """Rename the database's folder and delete it, with what was left of it before; one that cannot be read is deleted as it is.

    **Errors** `FencedError` if a newer epoch owns it.
    """
    there = home.exists()  # asked first: one that appears now is that of a newer epoch
    try:
        durable = Durable(home / DURABLE, home / WRITERS, MAP_SIZE_BYTES)
    except DataError:
        _set_aside(home, epoch, there)
    else:
        try:
            durable.raise_epoch(epoch)
            durable.write(epoch, lambda _txn: _set_aside(home, epoch, True))
        finally:
            durable.close()
    _delete_set_aside(home)


def discard_leftovers(home: Path, epoch: int) -> None:
    """Delete what was left of the database before; what a newer epoch has made stays."""
    for folder in _unfinished(home):
        try:
            _check(folder, epoch)
        except FencedError:
            continue
        _rename_left(folder, home)
    _delete_set_aside(home)


def _set_aside(home: Path, epoch: int, there: bool) -> None:
    """Rename the folder, if it is there, and what was left of it by who was killed while making one."""
    left = _unfinished(home)
    for folder in left:
        _check(folder, epoch)
    for folder in left:
        _rename_left(folder, home)
    if there:
        _rename(home, home)


def _check(folder: Path, epoch: int) -> None:
    """Refuse an epoch below that of an unfinished database; one that cannot be read has none."""
    try:
        durable = Durable(folder / DURABLE, folder / WRITERS, MAP_SIZE_BYTES)
    except DataError:
        return
    try:
        with durable.environment.reading() as txn:
            newest = durable.epoch(txn)
    except DataError:
        return
    finally:
        durable.close()
    if newest > epoch:
        raise FencedError(f"a newer epoch has made this database: epoch={epoch} newest={newest} folder={folder}")


def _rename_left(folder: Path, home: Path) -> None:
    """Rename an unfinished folder, unless it was finished meanwhile.

    It is not deleted under its own name: who is still at it would then rename into place what is left of it.
    """
    with suppress(FileNotFoundError):
        _rename(folder, home)


def _rename(folder: Path, home: Path) -> None:
    """Give a folder of this database a name under which it is rubbish, whoever finds it."""
    folder.rename(home.with_name(f".{home.name}.gone-{uuid.uuid4().hex}"))


def _delete_set_aside(home: Path) -> None:
    """Delete what has been renamed, by this process or by one that was killed then."""
    for folder in _siblings(home, rf"\.{re.escape(home.name)}\.gone-.+"):
        shutil.rmtree(folder, ignore_errors=True)


def _unfinished(home: Path) -> list[Path]:
    """What `WorkerDatabase.create` leaves when it is killed: the new folder before its rename, or the one it replaced."""
    return _siblings(home, rf"{re.escape(home.name)}\.(new|old)-[0-9a-f]{{32}}")


def _siblings(home: Path, names: str) -> list[Path]:
    """The folders beside the database's whose whole name is so."""
    if not home.parent.is_dir():
        return []
    return sorted(folder for folder in home.parent.iterdir() if re.fullmatch(names, folder.name))

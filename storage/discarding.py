"""Taking a whole database away, so that no task deletes another database than the one that was meant.

Two things go wrong without care. A coordinator that was stopped while it deletes the database of a worker that left may wake
up when the worker is back; and so may a second attempt of the same task, which has the same epoch. So a deletion has two parts:

1. `condemn` says which database is in the folder: each has a name (its *life*) that was drawn when it was made.
2. `discard_folder` renames the folder inside a write transaction that has checked the epoch (6), the life, and that the file is
   the one in the folder. Whoever raises the epoch meanwhile ends the process that is stopped inside.

What cannot be opened has no transaction; its content is deleted through the folder that was looked at, not by its path.

A process that is killed after the rename leaves the folder under its last name, and one that is killed while it makes a
database leaves that (`WorkerDatabase.create`). Nobody reads them again; whoever deletes or makes the worker's database next
deletes them, but for those that a newer epoch has made.

What a process has open takes its room on the disk after it was deleted: `WorkerDatabase.holds_deleted` tells whoever
keeps databases open.
"""

from __future__ import annotations

import os
import re
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from dbsp.errors import DataError, FencedError
from dbsp.storage.durable import Durable
from dbsp.storage.environment import MAP_SIZE_BYTES
from dbsp.storage.standby import DURABLE, WRITERS


@dataclass(frozen=True, slots=True)
class Condemned:
    """A database that is to be deleted, by its life; None: what is in the folder cannot be opened, or nothing is there."""

    life: str | None


def condemn(home: Path, epoch: int) -> Condemned:
    """Return which database is in a folder, to be deleted by `discard_folder`.

    **Errors** `FencedError` if a newer epoch owns it.
    """
    try:
        durable = _opened(home)
    except DataError:
        return Condemned(None)
    try:
        durable.raise_epoch(epoch)
        return Condemned(durable.life(epoch))
    finally:
        durable.close()


def discard_folder(home: Path, epoch: int, condemned: Condemned | None = None) -> None:
    """Delete the database that was condemned (None: the one that is there now), and what was left of earlier ones.

    Do nothing where the folder has another database by now.

    **Errors** `FencedError` if a newer epoch owns it.
    """
    life = (condemn(home, epoch) if condemned is None else condemned).life
    with _held(home) as folder:
        try:
            durable = _opened(home)
        except DataError:
            _set_aside_leftovers(home, epoch)
            if folder is not None and life is None:
                _delete_content(home, folder)
        else:
            try:
                durable.raise_epoch(epoch)
                durable.write(epoch, lambda txn: _set_aside(home, epoch) if durable.is_called(txn, life) else None)
            finally:
                durable.close()
    _delete_set_aside(home)


def _opened(home: Path) -> Durable:
    """Open the database in a folder; `DataError` if there is none, or its file is broken."""
    return Durable(home / DURABLE, home / WRITERS, MAP_SIZE_BYTES)


@contextmanager
def _held(home: Path) -> Iterator[int | None]:
    """Hold the folder itself, whatever is called so later; None where there is none."""
    try:
        folder = os.open(home, os.O_RDONLY | os.O_DIRECTORY)
    except (FileNotFoundError, NotADirectoryError):
        yield None
        return
    try:
        yield folder
    finally:
        os.close(folder)


def _delete_content(home: Path, folder: int) -> None:
    """Delete what is in the folder, and the folder itself, if nobody has put another one in its place."""
    for name in os.listdir(folder):
        shutil.rmtree(name, ignore_errors=True, dir_fd=folder)
        with suppress(OSError):
            os.unlink(name, dir_fd=folder)
    with suppress(OSError):
        home.rmdir()


def discard_leftovers(home: Path, epoch: int) -> None:
    """Delete what was left of the database before; what a newer epoch has made stays."""
    for folder in _unfinished(home):
        try:
            _check(folder, epoch)
        except FencedError:
            continue
        _rename_left(folder, home)
    _delete_set_aside(home)


def _set_aside(home: Path, epoch: int) -> None:
    """Rename the folder, and what was left of it by processes that were killed while they made one."""
    _set_aside_leftovers(home, epoch)
    _rename(home, home)


def _set_aside_leftovers(home: Path, epoch: int) -> None:
    """Rename what was left by processes that were killed while they made the database; refuse what a newer epoch makes."""
    left = _unfinished(home)
    for folder in left:
        _check(folder, epoch)
    for folder in left:
        _rename_left(folder, home)


def _check(folder: Path, epoch: int) -> None:
    """Refuse an epoch below that of an unfinished database; one that cannot be read has none."""
    try:
        durable = _opened(folder)
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
    """What `WorkerDatabase.create` leaves when it is killed: the new folder before its rename. `.old-` is of earlier versions."""
    return _siblings(home, rf"{re.escape(home.name)}\.(new|old)-[0-9a-f]{{32}}")


def _siblings(home: Path, names: str) -> list[Path]:
    """The folders beside the database's whose whole name is so."""
    if not home.parent.is_dir():
        return []
    return sorted(folder for folder in home.parent.iterdir() if re.fullmatch(names, folder.name))

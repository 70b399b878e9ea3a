"""Delete a whole database, and make sure that a late task does not delete a newer database in the same folder.

Two things can go wrong. A coordinator that is stopped while it deletes the database of a removed worker may continue
after the worker was added again. The same holds for a second attempt of the same task, which has the same epoch. So a
deletion has two parts:

1. `condemn` returns the random name (the *life*) of the database that is in the folder. The life was drawn when the database
   was made.
2. `discard_folder` renames the folder inside a write transaction. This transaction has checked the epoch (invariant 6), the
   life, and that its file is the one in the folder. A process that raises the epoch also ends a process that is stopped in the
   transaction.

A database that cannot be opened has no transaction. Its content is deleted through the folder's descriptor, not by
its path.

A process that is killed after the rename leaves the renamed folder. A process that is killed while it makes a
database leaves the unfinished one (`WorkerDatabase.create`). Nothing reads these folders again. The next deletion or
creation of the worker's database deletes them, except those of a newer epoch.

A deleted file takes space on the disk as long as a process has it open. `WorkerDatabase.holds_deleted` reports this
to code that keeps databases open.
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
from dbsp.processes import end_older
from dbsp.storage.durable import Durable
from dbsp.storage.environment import MAP_SIZE_BYTES
from dbsp.storage.standby import DURABLE, WRITERS


@dataclass(frozen=True, slots=True)
class Condemned:
    """The identity of the database that `discard_folder` may delete, and not a database made in the same folder since.

    `life` is the database's random name; None if the folder is absent, or if its content cannot be opened.
    """

    life: str | None


def condemn(home: Path, epoch: int) -> Condemned:
    """Return the identity of the database in a folder, for `discard_folder`.

    **Errors** `FencedError` if a newer epoch owns the database.
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
    """Delete the condemned database (None: the database in the folder now), and the leftovers of earlier databases.

    Do nothing if the folder has another database by now.

    **Errors** `FencedError` if a newer epoch owns the database.
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


def is_older(home: Path, epoch: int) -> bool:
    """Return whether the folder has a sound database that was never fenced in this epoch or a later one."""
    try:
        durable = _opened(home)
    except DataError:
        return False
    try:
        with durable.environment.reading() as txn:
            return durable.epoch(txn) < epoch
    finally:
        durable.close()


def discard_older(home: Path, epoch: int, since: int) -> bool:
    """Delete the database in a folder if it was never fenced in epoch `since` or later; return whether it was deleted.

    The epoch of the database is not raised first: a process that is killed in between would leave an old database that looks
    new.

    **Errors** `FencedError` if another process fences the database meanwhile.
    """
    if not is_older(home, since):
        return False
    durable = _opened(home)
    try:
        with durable.environment.reading() as txn:
            newest = durable.epoch(txn)
        if newest >= since:
            return False
        end_older(durable.writers_folder, epoch)
        durable.write(newest, lambda _txn: _rename(home, home))
    finally:
        durable.close()
    _delete_set_aside(home)
    return True


def _opened(home: Path) -> Durable:
    """Open the database in a folder; `DataError` if there is none, or its file is broken."""
    return Durable(home / DURABLE, home / WRITERS, MAP_SIZE_BYTES)


@contextmanager
def _held(home: Path) -> Iterator[int | None]:
    """Yield a descriptor of the folder, which stays valid after a rename of the folder; None if there is no folder."""
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
    """Delete the content of the opened folder, and then the path, unless another folder is in its place."""
    for name in os.listdir(folder):
        shutil.rmtree(name, ignore_errors=True, dir_fd=folder)
        with suppress(OSError):
            os.unlink(name, dir_fd=folder)
    with suppress(OSError):
        home.rmdir()


def discard_leftovers(home: Path, epoch: int) -> None:
    """Delete the leftovers of earlier databases, except those that a newer epoch has made."""
    for folder in _unfinished(home):
        try:
            _check(folder, epoch)
        except FencedError:
            continue
        _rename_left(folder, home)
    _delete_set_aside(home)


def _set_aside(home: Path, epoch: int) -> None:
    """Rename the folder, and the unfinished folders of processes that were killed while they made a database."""
    _set_aside_leftovers(home, epoch)
    _rename(home, home)


def _set_aside_leftovers(home: Path, epoch: int) -> None:
    """Rename unfinished folders of killed processes; refuse if a newer epoch makes one of them."""
    left = _unfinished(home)
    for folder in left:
        _check(folder, epoch)
    for folder in left:
        _rename_left(folder, home)


def _check(folder: Path, epoch: int) -> None:
    """Refuse an epoch below that of an unfinished database; a database that cannot be read has no epoch."""
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

    The folder is renamed before it is deleted. Otherwise a process that still makes the database could rename a
    half-deleted folder into place.
    """
    with suppress(FileNotFoundError):
        _rename(folder, home)


def _rename(folder: Path, home: Path) -> None:
    """Give a folder of this database a name that marks it as garbage for every process."""
    folder.rename(home.with_name(f".{home.name}.gone-{uuid.uuid4().hex}"))


def _delete_set_aside(home: Path) -> None:
    """Delete the renamed folders, of this process and of processes that were killed after their rename."""
    for folder in _siblings(home, rf"\.{re.escape(home.name)}\.gone-.+"):
        shutil.rmtree(folder, ignore_errors=True)


def _unfinished(home: Path) -> list[Path]:
    """Return the new folders that a killed `WorkerDatabase.create` leaves before its rename.

    The suffix `.old-` is of earlier versions.
    """
    return _siblings(home, rf"{re.escape(home.name)}\.(new|old)-[0-9a-f]{{32}}")


def _siblings(home: Path, names: str) -> list[Path]:
    """Return the folders next to the database's whose whole name matches the pattern `names`."""
    if not home.parent.is_dir():
        return []
    return sorted(folder for folder in home.parent.iterdir() if re.fullmatch(names, folder.name))

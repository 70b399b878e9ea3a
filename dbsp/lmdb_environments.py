"""Open LMDB environments: the only module that calls `lmdb.open`, for databases, logs, their readers and backups.

It keeps what every environment needs and no caller may forget:

- The engine is LMDB 0.9, whatever other engine py-lmdb has.
- A file is checked before LMDB maps it (`FileKind.check`): LMDB alone ends the process where pages are lost.
- The table of readers has its disk blocks before LMDB maps it: a write to it would end the process on a full disk.
- The map is at least as large as the file, and the files belong to their user alone.
- An error of LMDB becomes an error of this project that names the file.

When a map grows, who may share a handle, and what follows a failed write is the caller's: `dbsp.storage.environment` for
the workers' databases, `dbsp.io.environment` for the logs.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lmdb
from lmdb.verify import verify as verify_structure

from dbsp.disk import PRIVATE_FILE
from dbsp.errors import CapacityError, DataError, DbspError, InternalError, UnavailableError
from dbsp.lmdb_files import RESTORE, check_lmdb_file

ENGINE_VERSION = 0
"""The engine's major version: 0 is LMDB 0.9, whose files 1.0 cannot read. Every record of a database's version contains it."""
READERS_DEFAULT = 126
"""The number of readers that LMDB allows if `max_readers` is not given."""
BROKEN_FILE = (lmdb.Error, struct.error, OSError)
"""The errors of a reader whose file has broken content."""

_LINE, _HEAD = 64, 192
"""Bytes of a reader's entry, and of what stands before the second: as long as this LMDB leaves the file, and longer as it is."""
_BLOCK = 512
_BROKEN = (
    lmdb.CorruptedError,
    lmdb.InvalidError,
    lmdb.PageNotFoundError,
    lmdb.VersionMismatchError,
    lmdb.NotFoundError,
    lmdb.IncompatibleError,
)
_REFUSED = (lmdb.DiskError, lmdb.PanicError, lmdb.LockError, lmdb.MemoryError, lmdb.ReadonlyError)


def data_file(folder: Path) -> Path:
    """Return the path of the file in which LMDB keeps its data."""
    return folder / "data.mdb"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileKind:
    """A kind of LMDB file in the words of its errors."""

    name: str
    """The kind's name, as in `the log file is missing`."""
    unharmed: str
    """The data that a failed write has left unharmed."""
    restore: str = RESTORE
    """The hint where the file is missing or cut short."""

    def check(self, folder: Path) -> None:
        """Refuse a file that is missing, empty, not LMDB's, or cut off; see `dbsp.lmdb_files`."""
        check_lmdb_file(data_file(folder), self.name, self.restore)

    def translate(self, error: lmdb.Error | OSError, folder: Path) -> DbspError:
        """Return the error to raise for an LMDB or system error on the file in `folder`.

        Broken pages give `DataError`, and too many readers give `CapacityError`. A full or failing disk gives
        `UnavailableError`: LMDB has no class of its own for such a disk. A wrong use of LMDB gives `InternalError`.

        Left out: a map that is full or that another process has grown. The caller grows the map and tries again.
        """
        known = f"file={data_file(folder)} cause={error}"
        if isinstance(error, _BROKEN):
            return DataError(f"the {self.name} is broken: {known}", RESTORE)
        if isinstance(error, lmdb.ReadersFullError):
            return CapacityError(f"the {self.name} has too many readers: {known}")
        if type(error) is lmdb.Error or isinstance(error, (*_REFUSED, OSError)):
            hint = f"free space or repair the disk, then start again: {self.unharmed}"
            return UnavailableError(f"the {self.name} cannot be used: {known}", hint)
        return InternalError(f"the {self.name} is used wrongly: {known}")


def open_to_write(
    folder: Path, map_bytes: int, *, databases: int = 0, readers: int = READERS_DEFAULT, **flags: bool
) -> Any:
    """Open an environment that this process may write, or create one in an empty folder.

    `databases` is the most named databases. `flags` are those of `lmdb.open`: `sync`, `metasync`, `readahead`.

    **Errors** `lmdb.Error`, and `OSError` if the disk has no room for the table of readers.
    """
    file = data_file(folder)
    reserve_locks(folder, readers)
    return lmdb.open(  # noqa: TID251 - the only place
        str(folder),
        map_size=max(map_bytes, file.stat().st_size if file.exists() else 0),
        max_dbs=databases,
        max_readers=readers,
        lib_version=ENGINE_VERSION,
        mode=PRIVATE_FILE,
        **flags,
    )


def open_to_read(folder: Path, *, databases: int = 0, room_bytes: int = 0, readahead: bool = True) -> Any:
    """Open an environment read-only; nothing in the folder is created.

    The file may grow by `room_bytes` between this call and the first transaction. Without a table of readers, as in a
    backup, nobody writes the file, and no lock is taken.

    **Errors** `lmdb.Error` if the file is broken; `OSError` if it is missing.
    """
    return lmdb.open(  # noqa: TID251 - the only place
        str(folder),
        map_size=data_file(folder).stat().st_size + room_bytes,
        max_dbs=databases,
        readonly=True,
        create=False,
        lock=(folder / "lock.mdb").exists(),
        readahead=readahead,
        lib_version=ENGINE_VERSION,
    )


def reserve_locks(folder: Path, readers: int) -> None:
    """Reserve the disk blocks of `lock.mdb`, the table of readers; do nothing if the file has them.

    LMDB sets the length of the file without writing it, and maps it. On a full disk, the first write to such a page finds
    no free block, and the system ends the process with SIGBUS. A file that already has all its blocks avoids this failure.

    Do not call while this process has the environment open: closing a file releases all locks of the process on that file.

    **Errors** `OSError` if the disk has no room.
    """
    file, size = folder / "lock.mdb", _HEAD + (readers - 1) * _LINE
    if file.exists() and file.stat().st_blocks * _BLOCK >= size:
        return
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
    try:
        os.posix_fallocate(descriptor, 0, size)
    finally:
        os.close(descriptor)


def structure_problems(file: Path) -> list[str]:
    """Return the faults in the structure of an LMDB file; walk all its pages without the engine."""
    return [str(problem) for problem in verify_structure(str(file))]  # type: ignore[no-untyped-call]

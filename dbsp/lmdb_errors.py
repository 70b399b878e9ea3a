"""Translate LMDB's errors into this project's errors, for the embedded logs and the workers' databases.

Left out: a map that is full or that another process has grown. The caller grows the map and tries again.
"""

from __future__ import annotations

from pathlib import Path

import lmdb

from dbsp.errors import CapacityError, DataError, DbspError, InternalError, UnavailableError

_BROKEN = (
    lmdb.CorruptedError,
    lmdb.InvalidError,
    lmdb.PageNotFoundError,
    lmdb.VersionMismatchError,
    lmdb.NotFoundError,
    lmdb.IncompatibleError,
)
_REFUSED = (lmdb.DiskError, lmdb.PanicError, lmdb.LockError, lmdb.MemoryError, lmdb.ReadonlyError)


def told(error: lmdb.Error | OSError, file: Path, what: str, safe: str) -> DbspError:
    """Return the error to raise for an LMDB or system error on `file`.

    `what` names the kind of the file. `safe` says which data a failed write has left unharmed.

    Broken pages give `DataError`, and too many readers give `CapacityError`. A full or failing disk gives `UnavailableError`:
    LMDB has no class of its own for such a disk. A wrong use of LMDB gives `InternalError`.
    """
    known = f"file={file} cause={error}"
    if isinstance(error, _BROKEN):
        return DataError(f"the {what} is broken: {known}", "restore it from a backup")
    if isinstance(error, lmdb.ReadersFullError):
        return CapacityError(f"the {what} has too many readers: {known}")
    if type(error) is lmdb.Error or isinstance(error, (*_REFUSED, OSError)):
        hint = f"free space or repair the disk, then start again: {safe}"
        return UnavailableError(f"the {what} cannot be used: {known}", hint)
    return InternalError(f"the {what} is used wrongly: {known}")

"""LMDB's errors as this project's, for the two that use it: the embedded logs and the workers' databases.

Left out: a map that is full or grew elsewhere, which whoever meets it answers by growing and trying again.
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
    """The error to raise for `error` of this file, which is a `what`; `safe` says what a failed write has not harmed.

    `DataError` for broken pages, `CapacityError` for too many readers, `UnavailableError` where the system refuses (a full or a
    failing disk: LMDB gives those no class of their own), `InternalError` for a wrong use.
    """
    known = f"file={file} cause={error}"
    if isinstance(error, _BROKEN):
        return DataError(f"the {what} is broken: {known}", "restore it from a backup")
    if isinstance(error, lmdb.ReadersFullError):
        return CapacityError(f"the {what} has too many readers: {known}")
    if type(error) is lmdb.Error or isinstance(error, (*_REFUSED, OSError)):
        hint = f"free space or mend the disk, then start again: {safe}"
        return UnavailableError(f"the {what} cannot be used: {known}", hint)
    return InternalError(f"the {what} is used wrongly: {known}")

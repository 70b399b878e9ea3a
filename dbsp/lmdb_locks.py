"""Room for the table of readers that LMDB keeps beside each of its files.

LMDB makes `lock.mdb` as long as the table is without writing it, and maps it. On a full disk the first touch of such a page
has no block to go to, and the system ends the process with SIGBUS; a file that has all its blocks beforehand cannot be met so.
"""

from __future__ import annotations

import os
from pathlib import Path

from dbsp.disk import PRIVATE_FILE

READERS_DEFAULT = 126
"""What LMDB takes where `max_readers` is not given."""
_LINE, _HEAD = 64, 192
"""Bytes of a reader's entry, and of what stands before the second: as long as this LMDB leaves the file, and longer as it is."""
_BLOCK = 512


def reserve_locks(folder: Path, readers: int = READERS_DEFAULT) -> None:
    """Give the lock file of an environment that is about to be opened its blocks; nothing is done where it has them.

    Not while this process has the environment open: closing a file lets go of all locks that the process has on it.

    **Errors** `OSError` where the disk has no room.
    """
    file, size = folder / "lock.mdb", _HEAD + (readers - 1) * _LINE
    if file.exists() and file.stat().st_blocks * _BLOCK >= size:
        return
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
    try:
        os.posix_fallocate(descriptor, 0, size)
    finally:
        os.close(descriptor)

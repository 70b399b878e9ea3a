"""Reserve disk blocks for `lock.mdb`, the table of readers that LMDB keeps in each environment.

LMDB sets the length of `lock.mdb` without writing the file, and maps it. On a full disk, the first write to such a page finds
no free block, and the system ends the process with SIGBUS. A file that already has all its blocks avoids this failure.
"""

from __future__ import annotations

import os
from pathlib import Path

from dbsp.disk import PRIVATE_FILE

READERS_DEFAULT = 126
"""The number of readers that LMDB allows if `max_readers` is not given."""
_LINE, _HEAD = 64, 192
"""Bytes of a reader's entry, and of what stands before the second: as long as this LMDB leaves the file, and longer as it is."""
_BLOCK = 512


def reserve_locks(folder: Path, readers: int = READERS_DEFAULT) -> None:
    """Reserve the disk blocks of the lock file before its environment is opened; do nothing if the file has them.

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

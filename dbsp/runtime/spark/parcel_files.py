"""Parcels beside the shuffle: where all workers share a host, a large parcel lies in a file and only its name goes through Spark.

Through the shuffle the bytes of a parcel are copied some eight times, by two Python processes, their sockets, and the JVM, which
also needs room for them. A file that is gone after seconds is two copies into and out of the system's page cache; it is never
synced. Small parcels travel as they are.

Invariants:
1. A file is whole before its name is passed on, and never changes; a task that runs twice writes two files, of equal bytes.
2. Files are deleted when no job of their step runs any more, so a task may run again at any time and finds what it was told of.
3. What was read is checked as if it had come through the shuffle: a parcel carries its own checksums.

Left out: hosts that share nothing; there the shuffle carries all bytes.
"""

from __future__ import annotations

import json
import mmap
import os
import shutil
import tempfile
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from dbsp.errors import DataError, UnavailableError

MARK = b"DBSPFILE"
_FLAGS = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParcelFiles:
    """Where the parcels of one runtime lie that have `bytes_min` bytes or more."""

    folder: str
    bytes_min: int

    @classmethod
    def make(cls, work_dir: Path, bytes_min: int) -> ParcelFiles:
        """In a new folder, which goes with Spark's own files if not before."""
        return cls(folder=tempfile.mkdtemp(prefix="parcels-", dir=work_dir), bytes_min=bytes_min)

    def clear(self) -> None:
        """Delete all: no step runs. What a task writes that was cancelled and lives on a little goes with the next."""
        with suppress(FileNotFoundError), os.scandir(self.folder) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    Path(entry.path).unlink()

    def close(self) -> None:
        """Delete the folder."""
        shutil.rmtree(self.folder, ignore_errors=True)


def passed_on(files: ParcelFiles | None, sections: Sequence[bytes | bytearray]) -> bytes:
    """What goes through the shuffle for a parcel: its bytes, or the name of a new file that holds them.

    **Errors** `UnavailableError` where the file cannot be written.
    """
    size = sum(map(len, sections))
    if files is None or size < files.bytes_min:
        return b"".join(sections)
    path = Path(files.folder) / uuid.uuid4().hex
    try:
        with path.open("xb", buffering=0) as file:
            for section in sections:
                _write(file.fileno(), section)
    except OSError as error:
        path.unlink(missing_ok=True)
        raise UnavailableError(
            f"a parcel cannot be written: file={path} bytes={size} error={error.strerror}",
            "make room in `work_dir`, where Spark keeps its files, or lower max_step_bytes",
        ) from None
    return MARK + json.dumps([str(path), size]).encode()


def _write(file: int, section: bytes | bytearray) -> None:
    """All of it; the system writes some 2 GiB at most at once."""
    left = memoryview(section)
    while left:
        left = left[os.write(file, left) :]


def arrived(block: bytes) -> bytes | memoryview:
    """The bytes of a parcel that came as a block; of a file, read where they lie for as long as somebody holds them.

    **Errors** `DataError` for a file that is not what was written; `UnavailableError` for one that is gone.
    """
    if not block.startswith(MARK):
        return block
    name, size = json.loads(block[len(MARK) :])
    try:
        with Path(name).open("rb") as file:
            found = os.fstat(file.fileno()).st_size
            if found != size:
                raise DataError(f"a parcel's file is not whole: file={name} bytes={found} expected={size}")
            return memoryview(mmap.mmap(file.fileno(), size, flags=_FLAGS, prot=mmap.PROT_READ))
    except OSError as error:
        raise UnavailableError(f"a parcel cannot be read: file={name} error={error.strerror}") from None

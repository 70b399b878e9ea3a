"""Pass large parcels as files: if all workers share a host, only the file's name goes through Spark's shuffle.

The shuffle copies the bytes of a parcel some eight times: in two Python processes, their sockets and the JVM. The JVM also
needs memory for them. A file that is deleted within seconds is two copies, into and out of the system's page cache. The file
is never synced. Small parcels go through the shuffle themselves.

Invariants:
1. A file is complete before its name is sent, and never changes. A task that runs twice writes two files with equal bytes.
2. Files are deleted when no job of their step runs any more. Thus a task that Spark runs again finds the files that it needs.
3. A parcel from a file is verified like one from the shuffle: a parcel carries its own checksums.

Left out: hosts without a shared disk; there the shuffle carries all bytes.
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
    """The folder for the parcels of one runtime that have `bytes_min` bytes or more."""

    folder: str
    bytes_min: int

    @classmethod
    def make(cls, work_dir: Path, bytes_min: int) -> ParcelFiles:
        """Make a new folder in `work_dir`; a folder left behind is removed with Spark's own files."""
        return cls(folder=tempfile.mkdtemp(prefix="parcels-", dir=work_dir), bytes_min=bytes_min)

    def clear(self) -> None:
        """Delete all files; call only when no step runs. The next call deletes what a cancelled task writes later."""
        with suppress(FileNotFoundError), os.scandir(self.folder) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    Path(entry.path).unlink()

    def close(self) -> None:
        """Delete the folder."""
        shutil.rmtree(self.folder, ignore_errors=True)


def passed_on(files: ParcelFiles | None, sections: Sequence[bytes | bytearray]) -> bytes:
    """Return the block for a parcel: the parcel's bytes, or the marked name and size of a new file that contains them.

    **Errors** `UnavailableError` if the file cannot be written.
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
    """Write the whole section; one system call writes at most about 2 GiB."""
    left = memoryview(section)
    while left:
        left = left[os.write(file, left) :]


def arrived(block: bytes) -> bytes | memoryview:
    """Return the bytes of a parcel from its block; a file is memory-mapped for as long as the view is held.

    **Errors** `DataError` for a file of the wrong size; `UnavailableError` for a file that cannot be read.
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

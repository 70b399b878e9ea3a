"""Values that are read from files, and read again when the files change: the certificate with its key, and the tokens.

Invariants
1. A change that cannot be read leaves the last good value in use; `refused` says why until a later change can be read.
2. Files are read when two looks in a row find them equal, so a certificate and its key may be replaced one after the
   other.

Left out: when to look, and reports to users (`running.watch`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from dbsp.errors import DbspError

Value = TypeVar("Value")
Stamp = tuple[tuple[int, ...] | None, ...]


class Reloadable(Generic[Value]):
    """A value that files contain.

    `value` may be read from any thread; `refused` says why the present files are not in use.
    """

    def __init__(self, what: str, files: Sequence[Path], read: Callable[[], Value]) -> None:
        """Read the value; `what` names it in alarms and in the log. **Errors** those of `read`."""
        self.what = what
        self.refused: str | None = None
        self._files, self._read = tuple(files), read
        self._seen = self._loaded = self._stamp()
        self.value = read()

    def look(self) -> bool:
        """Read the files again if they changed, but not since the last call; return whether a new value is in use.

        So files that are being written are not read before they are whole.
        """
        before, self._seen = self._seen, self._stamp()
        if self._seen == self._loaded or self._seen != before:
            return False
        self._loaded = self._seen
        try:
            self.value = self._read()
        except DbspError as error:
            self.refused = error.message
            return False
        self.refused = None
        return True

    def _stamp(self) -> Stamp:
        return tuple(_stamp(file) for file in self._files)


def _stamp(file: Path) -> tuple[int, ...] | None:
    """Return the facts of a file that a replacement, a write or new rights change; None if the file does not exist."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns

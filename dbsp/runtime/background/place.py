"""The folder in which a background worker is found: its socket, a lock held for its whole life, and a note of its
process.

The name of the folder is a hash of the run, the worker and the owner. So a background worker of another executor is
never found. The process that starts a background worker takes the lock, and the new process inherits it. So there is
never a second one. A folder whose lock is free is left from a dead process: the next background worker of this user
on this host deletes it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import stat
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from dbsp.errors import ConfigError
from dbsp.processes import Process, find_process

SOCKET_PATH_BYTES_MAX = 107
_NAME_BYTES = 16
_JVM = "java"


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketPlace:
    """The folder of one background worker."""

    folder: Path

    @property
    def socket(self) -> str:
        """Return the path of its socket."""
        return str(self.folder / "socket")

    def lock(self) -> int | None:
        """Make the folder, and take its lock; return the open lock file, or None if another process holds the lock."""
        while True:
            self.folder.mkdir(mode=0o700, exist_ok=True)
            try:
                file = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            except FileNotFoundError:
                continue  # `sweep` of another process deleted the folder between the two calls
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(file).st_ino == (self.folder / "lock").stat().st_ino:
                    return file
            except BlockingIOError:
                os.close(file)
                return None
            except FileNotFoundError:
                pass
            os.close(file)

    def remove(self) -> None:
        """Delete the folder."""
        shutil.rmtree(self.folder, ignore_errors=True)


def place_of(name: str, worker: int, owner: Process) -> SocketPlace:
    """Return the folder of the background worker for a run, a worker and an owner."""
    text = f"{name}\0{worker}\0{owner.pid}\0{owner.started}"
    return SocketPlace(folder=root() / hashlib.blake2b(text.encode(), digest_size=_NAME_BYTES // 2).hexdigest())


def root() -> Path:
    """Return the folder of this user's background workers on this host.

    Paths of sockets must be short, so it may be in /tmp instead of the system's temporary folder.
    """
    name = f"dbsp-background-{os.getuid()}"
    folder = Path(tempfile.gettempdir()) / name
    if len(os.fsencode(folder)) + _NAME_BYTES + len("//socket") > SOCKET_PATH_BYTES_MAX:
        folder = Path("/tmp") / name  # noqa: S108  (checked below)
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise ConfigError(
            f"the folder of the background workers is open to others: folder={folder}", "delete it, or set TMPDIR"
        )
    return folder


def sweep() -> None:
    """Delete the folders of this user's dead background workers."""
    for folder in root().iterdir():
        held = SocketPlace(folder=folder).lock()
        if held is not None:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(held)


def find_owner() -> Process | None:
    """Return the executor for which this process works: its nearest ancestor that is a JVM; None if there is none."""
    pid = _parent(os.getpid())
    while pid > 1:
        with suppress(OSError):
            if Path(f"/proc/{pid}/comm").read_text(encoding="ascii", errors="replace").strip() == _JVM:
                return find_process(pid)
        pid = _parent(pid)
    return None


def _parent(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return 0
    return int(text.rpartition(")")[2].split()[1])

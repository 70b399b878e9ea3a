"""Where a keeper is found: a folder of its own with the socket, a lock held as long as it lives, and a note of its process.

The name of the folder says whose keeper it is (run, worker, owner), so a keeper of another executor is never found. The lock
is taken by whoever starts a keeper and inherited by it, so there is never a second one, and a folder whose lock is free is
what is left of a dead one: the next keeper of this user on this host sweeps it away.
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
class Place:
    """The folder of one keeper."""

    folder: Path

    @property
    def socket(self) -> str:
        """The path of its socket."""
        return str(self.folder / "socket")

    def lock(self) -> int | None:
        """The lock, as an open file, if nobody holds it; the folder is made."""
        while True:
            self.folder.mkdir(mode=0o700, exist_ok=True)
            try:
                file = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            except FileNotFoundError:
                continue  # swept between the two
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


def place_of(name: str, worker: int, owner: Process) -> Place:
    """Where the keeper of a run's worker is, below an owner."""
    text = f"{name}\0{worker}\0{owner.pid}\0{owner.started}"
    return Place(folder=root() / hashlib.blake2b(text.encode(), digest_size=_NAME_BYTES // 2).hexdigest())


def root() -> Path:
    """The folder of this user's keepers on this host; paths of sockets must be short, so it may be in /tmp instead."""
    name = f"dbsp-keepers-{os.getuid()}"
    folder = Path(tempfile.gettempdir()) / name
    if len(os.fsencode(folder)) + _NAME_BYTES + len("//socket") > SOCKET_PATH_BYTES_MAX:
        folder = Path("/tmp") / name  # noqa: S108  (checked below)
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise ConfigError(f"the folder of the keepers is open to others: folder={folder}", "delete it, or set TMPDIR")
    return folder


def sweep() -> None:
    """Delete what dead keepers of this user left."""
    for folder in root().iterdir():
        held = Place(folder=folder).lock()
        if held is not None:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(held)


def find_owner() -> Process | None:
    """The executor that this process works for: its nearest ancestor that is a JVM."""
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

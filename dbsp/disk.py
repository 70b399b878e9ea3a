"""Write files and folders so that they survive a power failure: a file system may lose what no process has synced."""

from __future__ import annotations

import errno
import fcntl
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
"""The numbers of system errors that say that a disk has no room."""


def shown(path: Path | str) -> str:
    r"""Return a path as printable text; bytes that are not valid UTF-8 become escapes such as `\xff`."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


PRIVATE_FOLDER, PRIVATE_FILE, PUBLIC_FOLDER = 0o700, 0o600, 0o777
"""Permissions: stored files are for their owner alone; files for other programs have those that the process's umask
leaves.
"""


def private(path: str, flags: int) -> int:
    """Open a file descriptor whose new file only the owner may read; serves as the `opener` of `open`."""
    return os.open(path, flags, PRIVATE_FILE)


def open_plain(path: Path) -> BinaryIO:
    """Open a file for reading; raise `OSError` if the path is a symbolic link."""
    return open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW))


def make_folder(path: Path, mode: int = PRIVATE_FOLDER) -> None:
    """Make a folder and its missing parents, and sync each new name to disk; do nothing if the folder exists.

    **Errors** `OSError` if a folder cannot be made, or if a file has its name.

    **Cost** one sync per new folder.
    """
    if path.is_dir():
        return
    make_folder(path.parent, mode)
    path.mkdir(mode=mode, exist_ok=True)
    sync_path(path.parent)


def is_writable(folder: Path) -> bool:
    """Return whether a file can be written in a folder and synced; make the folder if it is missing.

    A disk without room counts as one that can be written: its files are there.
    """
    probe = folder / f".probe-{uuid.uuid4().hex}"
    try:
        make_folder(folder)
        probe.touch(PRIVATE_FILE)
        try:
            probe.write_bytes(b"x")
            sync_path(probe)
        finally:
            probe.unlink()
    except OSError as error:
        return error.errno in NO_ROOM
    return True


def replace_text(file: Path, text: str) -> None:
    """Replace the text of a file atomically and sync it to disk; raise `OSError` on failure."""
    aside = file.with_name(f".{file.name}")
    aside.touch(PRIVATE_FILE)
    aside.write_text(text)
    sync_path(aside)
    aside.rename(file)
    sync_path(file.parent)


def numbered(folder: Path) -> tuple[int, ...]:
    """Return the entry names of a folder that are numbers, in ascending order; empty if the folder is missing."""
    return tuple(sorted(int(path.name) for path in folder.iterdir() if path.name.isdigit())) if folder.is_dir() else ()


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Keep other processes that call this for the same folder waiting; the lock ends with the process."""
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)


def sync_path(path: Path) -> None:
    """Sync the content of a file, or the names in a folder, to disk; raise `OSError` on failure."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

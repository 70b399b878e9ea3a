"""Names and files that outlive a power failure: what a file system has not been told to sync, it may forget."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO


def shown(path: Path | str) -> str:
    r"""A path as it may be told anywhere: bytes of it that are no UTF-8 as `\xff`."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


PRIVATE_FOLDER, PRIVATE_FILE, PUBLIC_FOLDER = 0o700, 0o600, 0o777
"""What is stored is its owner's alone; what is put out for others is as the process's umask says."""


def private(path: str, flags: int) -> int:
    """Open a file that its owner alone may read: an `opener` for `open`."""
    return os.open(path, flags, PRIVATE_FILE)


def open_plain(path: Path) -> BinaryIO:
    """Open a file to read, which is no symbolic link; `OSError` where it is one."""
    return open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW))


def make_folder(path: Path, mode: int = PRIVATE_FOLDER) -> None:
    """Make a folder and its parents, each new name forced to disk; nothing is done where it is there.

    **Errors** `OSError` where one cannot be made, or its place is taken by a file.

    **Cost** one sync per folder that is new.
    """
    if path.is_dir():
        return
    make_folder(path.parent, mode)
    path.mkdir(mode=mode, exist_ok=True)
    sync_path(path.parent)


def replace_text(file: Path, text: str) -> None:
    """Give a file another content, forced to disk, of which a reader sees all or nothing; `OSError` where that fails."""
    aside = file.with_name(f".{file.name}")
    aside.touch(PRIVATE_FILE)
    aside.write_text(text)
    sync_path(aside)
    aside.rename(file)
    sync_path(file.parent)


def numbered(folder: Path) -> tuple[int, ...]:
    """The numbers by which what is in a folder is called, in order; none if it is not there."""
    return tuple(sorted(int(path.name) for path in folder.iterdir() if path.name.isdigit())) if folder.is_dir() else ()


def sync_path(path: Path) -> None:
    """Force a file's content, or the names in a folder, to disk; `OSError` where that fails."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

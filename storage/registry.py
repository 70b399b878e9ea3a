"""Keep the list of the LMDB environments that this process has open.

LMDB allows one opening of a file per process, but several databases, threads and tasks use the same file. This is the
only module state in the project, because LMDB's own table of open files, which it mirrors, is process-wide too. An
entry made before a fork belongs to the parent, and the child does not use it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

from dbsp.lmdb_environments import data_file
from dbsp.storage.environment import DatabaseEnvironment

_open_environments: dict[tuple[int, str], DatabaseEnvironment] = {}
_guard = threading.Lock()


def acquire(folder: Path, make: Callable[[], DatabaseEnvironment]) -> DatabaseEnvironment:
    """Return the environment of this folder, and open it if necessary; the caller must `release` it.

    If another process has replaced the folder (another inode), open the new one; the users of the old one keep it.
    """
    key = (os.getpid(), str(folder.resolve()))
    with _guard:
        found = _open_environments.get(key)
        if found is not None and not is_current(found, folder):
            del _open_environments[key]
            found = None
        if found is None:
            found = make()
            _open_environments[key] = found
        found.users += 1
        return found


def share(environment: DatabaseEnvironment) -> DatabaseEnvironment:
    """Return an open environment for one more user, which must `release` it."""
    with _guard:
        environment.users += 1
    return environment


def is_open(folder: Path) -> bool:
    """Return whether this process has the environment of this folder open; LMDB would not open it a second time."""
    with _guard:
        return (os.getpid(), str(folder.resolve())) in _open_environments


def is_current(environment: DatabaseEnvironment, folder: Path) -> bool:
    """Return whether the folder still holds the file that was opened."""
    try:
        return data_file(folder).stat().st_ino == environment.inode
    except OSError:
        return False


def release(environment: DatabaseEnvironment) -> None:
    """End one use of an environment; close it if no other user is left."""
    with _guard:
        environment.users -= 1
        if environment.users > 0:
            return
        for key in [key for key, value in _open_environments.items() if value is environment]:
            del _open_environments[key]
        environment.close()

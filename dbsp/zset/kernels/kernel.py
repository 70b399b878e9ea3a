"""Kernels: numba functions with one fixed signature each, compiled at their first call and cached on disk.

Importing a module of kernels compiles nothing. Inputs are declared read-only, which accepts writable arrays too. So a
column read from a memory map and a newly computed one run the same machine code. Every kernel releases the GIL.

The cache is in `NUMBA_CACHE_DIR`, or else in the user's cache folder. If that is not writable, it is in a folder of
this user under the system's temporary one. The cache is renewed for a changed file, but not for a changed helper in
another file. So a helper is defined in the module that uses it.
"""

from __future__ import annotations

import getpass
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any


def cache_folder() -> Path:
    """Return a folder for compiled kernels that this user can write to."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
    folder = base / "dbsp" / "numba"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        writable = os.access(folder, os.W_OK | os.X_OK)
    except OSError:
        writable = False
    return folder if writable else _temporary_folder()


def _temporary_folder() -> Path:
    """Return a private folder under the temporary one, because compiled code that others could write must not be loaded."""
    folder = Path(tempfile.gettempdir()) / f"dbsp-numba-{_user()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
        private = status.st_uid == os.getuid() and not status.st_mode & 0o022 and not folder.is_symlink()
    except OSError:
        private = False
    return folder if private else Path(tempfile.mkdtemp(prefix="dbsp-numba-"))


def _user() -> str:
    """Return a name for this user, or the user's number if there is no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return str(os.getuid())


if "NUMBA_CACHE_DIR" not in os.environ:
    os.environ["NUMBA_CACHE_DIR"] = str(cache_folder())

import numba  # noqa: E402  the cache folder must be set before numba reads its settings
from numba import types  # noqa: E402

_settings: Any = numba.config  # numba defines the names of its settings at run time
if not _settings.CACHE_DIR:
    _settings.CACHE_DIR = os.environ["NUMBA_CACHE_DIR"]


def code_folder() -> str:
    """Return the folder of compiled kernels."""
    return str(_settings.CACHE_DIR)


def reads(dtype: Any, dimensions: int = 1) -> Any:
    """Return the type of a contiguous array that a kernel only reads."""
    return types.Array(dtype, dimensions, "C", readonly=True)


def writes(dtype: Any, dimensions: int = 1) -> Any:
    """Return the type of a contiguous array that a kernel writes."""
    return types.Array(dtype, dimensions, "C")


OPTIONS: dict[str, Any] = {"cache": True, "nogil": True, "error_model": "numpy"}

helper = numba.njit(**OPTIONS)
"""The decorator of a function that kernels of the same module call."""


class Kernel:
    """A function that is compiled for one signature at its first call."""

    __slots__ = ("_compiled", "function", "signature")

    def __init__(self, function: Callable[..., Any], signature: Any) -> None:
        """Store the function and the signature to compile."""
        self.function = function
        self.signature = signature
        self._compiled: Callable[..., Any] | None = None

    def compile(self) -> Callable[..., Any]:
        """Return the compiled function, compiled now or loaded from the cache; later calls return the same one."""
        if self._compiled is None:
            self._compiled = numba.njit(self.signature, **OPTIONS)(self.function)
        return self._compiled

    def is_cached(self) -> bool:
        """Return whether the cache holds code of the current source.

        The answer is taken from numba's own index, because numba decides when a file counts as changed.
        """
        cache: Any = numba.njit(**OPTIONS)(self.function)
        return bool(cache._cache._cache_file._load_index())

    def __call__(self, *arguments: Any) -> Any:
        """Run the kernel; compile it at the first call."""
        return (self._compiled or self.compile())(*arguments)


def kernel(signature: Any) -> Callable[[Callable[..., Any]], Kernel]:
    """Decorate a function as a kernel of this signature."""
    return lambda function: Kernel(function, signature)

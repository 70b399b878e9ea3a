"""The user's own file and line: the nearest frame outside this project, and errors that name it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from dbsp.errors import CircuitError

_PACKAGE = Path(__file__).parent.parent
_OWN = tuple(f"{folder}{os.sep}" for folder in {_PACKAGE, _PACKAGE.resolve()})
Made = TypeVar("Made")
_BETWEEN = ("contextlib.py", "functools.py")


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A file and a line of the user's program."""

    file: str
    line: int

    def __str__(self) -> str:
        """Return `file:line`."""
        return f"{self.file}:{self.line}"


def written_at(line: SourceLine | None, action: Callable[[], Made]) -> Made:  # noqa: ARG001 (`user_line` looks for it)
    """Do what another file than a Python program says: `line` is where it says so."""
    return action()


def user_line() -> SourceLine | None:
    """Return the line that called into `dbsp`; None if every frame of the stack belongs to the project."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code is written_at.__code__:
            line: SourceLine | None = frame.f_locals["line"]
            return line
        file = frame.f_code.co_filename
        if not file.startswith(_OWN) and not file.endswith(_BETWEEN):
            return SourceLine(file, frame.f_lineno)
        if frame.f_back is None:
            break
        frame = frame.f_back
    return None


@contextmanager
def located(source: SourceLine | None) -> Iterator[None]:
    """Add the user's file and line to circuit errors that are raised inside."""
    try:
        yield
    except CircuitError as error:
        if source is None or error.located:
            raise
        found = CircuitError(f"{error.message} at={source}", error.hint)
        found.located = True
        raise found from error.__cause__

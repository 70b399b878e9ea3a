"""What an examination of stored files found: what was read, and what is wrong with what to do about it.

Written by `dbsp.storage.examine` and `dbsp.io.examine`, gathered by `coordinator doctor`. An examination reads and never
writes; it goes on after the first thing that is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from dbsp.errors import DbspError

UNREADABLE: tuple[type[Exception], ...] = (DbspError, ValueError, KeyError, IndexError, TypeError, ArithmeticError)
"""What decoding damaged bytes may raise, besides the errors of a file's own engine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong: where, what, and what to do. `worker` and `chunk` where it has one."""

    file: Path
    what: str
    remedy: str
    worker: int | None = None
    chunk: int | None = None


@dataclass(slots=True, kw_only=True)
class Examined:
    """One file: how much of each kind was read, and what is wrong with it."""

    file: Path
    remedy: str
    worker: int | None = None
    counts: dict[str, int] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def count(self, what: str, number: int = 1) -> None:
        """So many more of this kind were read."""
        self.counts[what] = self.counts.get(what, 0) + number

    def found(self, what: str, *, chunk: int | None = None, remedy: str | None = None) -> None:
        """Something is wrong."""
        self.findings.append(
            Finding(file=self.file, what=what, remedy=remedy or self.remedy, worker=self.worker, chunk=chunk)
        )

    @contextmanager
    def guarded(
        self, where: str = "", *, chunk: int | None = None, also: tuple[type[Exception], ...] = ()
    ) -> Iterator[None]:
        """What the block cannot read becomes a finding; `also` are errors of the file's engine."""
        try:
            yield
        except (*UNREADABLE, *also) as error:
            text = error.message if isinstance(error, DbspError) else f"{type(error).__name__}: {error}"
            self.found(f"{where}: {text}" if where else text, chunk=chunk)

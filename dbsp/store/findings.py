"""Findings of an examination of stored files: how much was read, each fault, and its remedy.

`dbsp.storage.examine` and `dbsp.io.examine` write findings; `coordinator doctor` gathers them. An examination reads
and never writes, and goes on after the first fault.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from dbsp.errors import DbspError

UNREADABLE: tuple[type[Exception], ...] = (DbspError, ValueError, KeyError, IndexError, TypeError, ArithmeticError)
"""Errors that decoding damaged bytes may raise, besides the errors of the file's own engine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A fault in a file: its place, its description and its remedy; `worker` and `chunk` if the fault has them."""

    file: Path
    what: str
    remedy: str
    worker: int | None = None
    chunk: int | None = None


@dataclass(slots=True, kw_only=True)
class Examined:
    """The examination of one file: the number of things read, by kind, and the faults found."""

    file: Path
    remedy: str
    worker: int | None = None
    counts: dict[str, int] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def count(self, what: str, number: int = 1) -> None:
        """Add to the number of things of this kind that were read."""
        self.counts[what] = self.counts.get(what, 0) + number

    def found(self, what: str, *, chunk: int | None = None, remedy: str | None = None) -> None:
        """Record a fault; the file's general remedy applies unless `remedy` is given."""
        self.findings.append(
            Finding(file=self.file, what=what, remedy=remedy or self.remedy, worker=self.worker, chunk=chunk)
        )

    @contextmanager
    def guarded(
        self, where: str = "", *, chunk: int | None = None, also: tuple[type[Exception], ...] = ()
    ) -> Iterator[None]:
        """Record a finding if the block fails to read its bytes; `also` are errors of the file's engine."""
        try:
            yield
        except (*UNREADABLE, *also) as error:
            text = error.message if isinstance(error, DbspError) else f"{type(error).__name__}: {error}"
            self.found(f"{where}: {text}" if where else text, chunk=chunk)

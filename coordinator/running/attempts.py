"""A start that knows it has died: which step was under way, how many processes it has ended, and a try in a process apart.

The record of a step is its first attempt. While a step runs, a marker (epoch, step) stands in a small file, written without a
sync: it survives the process, and need not survive the host. A start that finds it counts a death in the ledger, and so does
a step that lost a Python worker. After `DEATHS_MAX` the step is tried in a process of its own, on a view of the state before
it that is never committed. If that process lives, the count begins anew and the step runs here, so that kills from outside
alone never halt the pipeline. If it dies, the step ends with `DeadlyStepError`, and the machine halts before it.

Left out: the process itself (`dbsp.coordinator.trials`), and what is decided then (`coordinator skip`).
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from dbsp.coordinator.decisions import commands, states
from dbsp.coordinator.running import control as ledgers
from dbsp.coordinator.running.control import Deaths, Ledger
from dbsp.coordinator.running.notices import Notify, StepDied, StepNotTried, StepTried
from dbsp.errors import PYTHON_WORKER_DIED, DataError, DbspError, MismatchError, RowsError, UnavailableError
from dbsp.layout import Layout
from dbsp.logs import StepRecord
from dbsp.skips import ACCEPT_OUTPUT, drop_command, unreadable_row

DEATHS_MAX = 3
MARKER_FILE = "step.marker"
_MARK = struct.Struct("<Qq")
_NO_STEP = -1


class DeadlyStepError(DataError):
    """The step ends the process that runs it; `death` says how."""

    def __init__(self, message: str, hint: str | None = None, death: str = "") -> None:
        """Keep how the process has ended."""
        Exception.__init__(self, message, hint, death)
        self.message, self.hint, self.death = message, hint, death


def before_step(record: StepRecord, error: Exception) -> states.Halt | None:
    """Return the halt before a step that ends its process, gives another output, or reads what no setting explains; else None."""
    if isinstance(error, DeadlyStepError):
        rows = sum(range_.last - range_.first for range_ in record.ranges)
        return states.Halt(
            step=record.step, node=-1, name="", command="", count=rows, rows=(), message=error.message, death=error.death,
            ranges=record.ranges,
        )  # fmt: skip
    if isinstance(error, MismatchError):
        return states.Halt(
            step=record.step, node=-1, name="its outputs", command=ACCEPT_OUTPUT, count=0, rows=(), message=str(error)
        )
    row = unreadable_row(error) if isinstance(error, RowsError) else None
    if row is None:
        return None
    failed = states.LocatedRow(
        table=row.table, partition=row.partition, offset=row.offset, reason=row.reason, payload=row.payload
    )
    return states.Halt(
        step=record.step, node=-1, name=f"the input of {row.table}", command=drop_command([row], row.reason), count=1,
        rows=(failed,), message=str(error),
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A step to try: its record as it is to be tried, and the state it runs on, which is open in this epoch and layout."""

    record: StepRecord
    epoch: int
    layout: Layout


class Trials(Protocol):
    """Tries steps in processes of their own."""

    def death(self, trial: Trial) -> str | None:
        """Return how the process has ended that tried the step; None if it lived, also if the step failed as others do.

        **Errors** `UnavailableError` if no process can be started.
        """
        ...


class Marker(Protocol):
    """What stands while a step runs."""

    def begin(self, epoch: int, step: int) -> None:
        """Note that a step runs."""
        ...

    def end(self) -> None:
        """Note that none does."""
        ...

    def unfinished(self) -> int | None:
        """Return the step in whose midst a process has ended; None if there is none."""
        ...

    def close(self) -> None:
        """Release what is open; what stands goes on to stand."""
        ...


class NoMarker:
    """The marker of a world in which nothing survives the process."""

    def begin(self, epoch: int, step: int) -> None:
        """Do nothing."""

    def end(self) -> None:
        """Do nothing."""

    def unfinished(self) -> int | None:
        """Return None."""
        return None

    def close(self) -> None:
        """Do nothing."""


class FileMarker:
    """The marker as a file of the data folder.

    **Cost** two writes of 16 bytes a step, without a sync.
    """

    def __init__(self, data_dir: Path) -> None:
        """Nothing is opened before the first use."""
        self._path = data_dir / MARKER_FILE
        self._file: int | None = None

    def begin(self, epoch: int, step: int) -> None:
        """Note that a step runs."""
        if self._file is None:
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.pwrite(self._file, _MARK.pack(epoch, step), 0)

    def end(self) -> None:
        """Note that none does."""
        if self._file is not None or self._path.exists():
            self.begin(0, _NO_STEP)

    def unfinished(self) -> int | None:
        """Return the step in whose midst a process has ended; None if there is none, or if the file is cut short."""
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return None
        step = int(_MARK.unpack(data)[1]) if len(data) == _MARK.size else _NO_STEP
        return None if step < 0 else step

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


class Attempts:
    """Counts the deaths of steps, and tries a step apart before it ends one more process.

    **State** the ledger's count, as this process has read or written it last.
    """

    def __init__(
        self,
        marker: Marker,
        trials: Trials | None,
        change: Callable[[Callable[[Ledger], Ledger]], Ledger],
        note: Notify,
    ) -> None:
        """`change` changes the ledger; without `trials` deaths are counted and nothing is tried."""
        self._marker, self._trials, self._change, self._note = marker, trials, change, note
        self._deaths: Deaths | None = None
        self._begun = False

    def claimed(self, ledger: Ledger) -> None:
        """Count the step that the marker names, once: this process has come to own the pipeline."""
        self._deaths = ledger.deaths
        step = None if self._begun else self._marker.unfinished()
        self._begun = True
        if step is not None:
            self._count(step)
            self._marker.end()

    @contextmanager
    def of(self, command: commands.RunStep) -> Iterator[None]:
        """Run a step within: marked, and tried apart before if it has ended too many processes.

        **Errors** `DeadlyStepError` if the process in which it was tried has died.
        """
        step = command.record.step
        self._try_apart(command)
        self._marker.begin(command.epoch, step)
        try:
            yield
        except UnavailableError as error:
            if PYTHON_WORKER_DIED in error.message:
                self._count(step)
            raise
        finally:
            self._marker.end()
        if self._deaths is not None and self._deaths.step <= step:
            self._deaths = self._change(ledgers.forget_deaths).deaths

    def _count(self, step: int) -> None:
        self._deaths = self._change(lambda ledger: ledgers.note_death(ledger, step)).deaths
        self._note(StepDied(step=step, deaths=self._deaths.count if self._deaths is not None else 0))

    def _try_apart(self, command: commands.RunStep) -> None:
        """Try a step that has ended too many processes; a step of a migration is not tried, as its layouts are two."""
        deaths, record = self._deaths, command.record
        due = deaths is not None and deaths.step == record.step and deaths.count >= DEATHS_MAX
        if not due or self._trials is None or command.coming is not None:
            return
        try:
            death = self._trials.death(Trial(record=record, epoch=command.epoch, layout=command.layout))
        except DbspError as error:
            self._note(StepNotTried(step=record.step, error=str(error)))
            return
        self._note(StepTried(step=record.step, death=death))
        if death is not None:
            raise DeadlyStepError(
                f"the step ends the process that runs it: step={record.step} death={death}",
                "`coordinator skip` finds the rows that do, and goes on without them",
                death,
            )
        self._deaths = self._change(ledgers.forget_deaths).deaths

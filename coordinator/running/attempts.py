"""Protect the pipeline from a step that kills its process: count the deaths, then try the step in a separate process.

While a step runs, a small marker file contains its (epoch, step). The file is written without a sync: it survives the
process, and need not survive the host. A start that finds the marker counts a death in the ledger; so does a step that
lost a Python worker. After `DEATHS_MAX` deaths the step is tried in its own process, on a view of the state before it
that is never committed.

If that process survives, the count restarts and the step runs here. So kills from outside alone never halt the
pipeline. If it dies, the step ends with `DeadlyStepError`, and the machine halts before the step.

Elsewhere: the process itself (`dbsp.coordinator.checks.trials`), and the decision that follows (`coordinator skip`).
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
from dbsp.logs.replays import replayed_places
from dbsp.logs.step_commands import ACCEPT_OUTPUT, drop_command, unreadable_row

DEATHS_MAX = 3
MARKER_FILE = "step.marker"
_MARK = struct.Struct("<Qq")
_NO_STEP = -1


class DeadlyStepError(DataError):
    """The error of a step that kills its process; `death` says how the process died."""

    def __init__(self, message: str, hint: str | None = None, death: str = "") -> None:
        """Keep the message, the hint and how the process ended, so that the error can be pickled."""
        Exception.__init__(self, message, hint, death)
        self.message, self.hint, self.death = message, hint, death


def before_step(record: StepRecord, error: Exception) -> states.Halt | None:
    """Return the halt before a step that cannot run to its end; None if the error is of another kind.

    Such a step ends its process, gives another output than before, or reads an input row that no setting explains.
    """
    if isinstance(error, DeadlyStepError):
        rows = sum(range_.last - range_.first for range_ in record.ranges) + len(replayed_places(record.commands))
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
    """A step to try: the record to try, and the state to run on, which is open in this epoch and layout."""

    record: StepRecord
    epoch: int
    layout: Layout


class Trials(Protocol):
    """Something that tries steps in processes of their own."""

    def death(self, trial: Trial) -> str | None:
        """Try the step and return how its process died; None if it survived, also if the step failed with an ordinary error.

        **Errors** `UnavailableError` if no process can be started.
        """
        ...


class Marker(Protocol):
    """A durable note of the step that runs, which survives the process."""

    def begin(self, epoch: int, step: int) -> None:
        """Note that the step runs."""
        ...

    def end(self) -> None:
        """Note that no step runs."""
        ...

    def unfinished(self) -> int | None:
        """Return the step during which a process ended; None if there is none."""
        ...

    def close(self) -> None:
        """Release the open file; the note itself stays."""
        ...


class NoMarker:
    """The marker for runs in which nothing survives the process."""

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
    """The marker as a file in the data folder.

    **Cost** two writes of 16 bytes a step, without a sync.
    """

    def __init__(self, data_dir: Path) -> None:
        """Open no file before the first use."""
        self._path = data_dir / MARKER_FILE
        self._file: int | None = None

    def begin(self, epoch: int, step: int) -> None:
        """Note that the step runs."""
        if self._file is None:
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.pwrite(self._file, _MARK.pack(epoch, step), 0)

    def end(self) -> None:
        """Note that no step runs."""
        if self._file is not None or self._path.exists():
            self.begin(0, _NO_STEP)

    def unfinished(self) -> int | None:
        """Return the step during which a process ended; None if there is none, or if the file is truncated."""
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
    """The count of deaths of the current step; tries the step apart before it kills one more process.

    **State** the ledger's count, as this process has read or written it last.
    """

    def __init__(
        self,
        marker: Marker,
        trials: Trials | None,
        change: Callable[[Callable[[Ledger], Ledger]], Ledger],
        note: Notify,
    ) -> None:
        """Use `change` to change the ledger; without `trials` deaths are counted, but no step is tried."""
        self._marker, self._trials, self._change, self._note = marker, trials, change, note
        self._deaths: Deaths | None = None
        self._begun = False

    def claimed(self, ledger: Ledger) -> None:
        """Count a death of the step that the marker names, once, when this process takes over the pipeline."""
        self._deaths = ledger.deaths
        step = None if self._begun else self._marker.unfinished()
        self._begun = True
        if step is not None:
            self._count(step)
            self._marker.end()

    @contextmanager
    def of(self, command: commands.RunStep) -> Iterator[None]:
        """Run the body with the step marked, after a trial if the step has killed too many processes.

        **Errors** `DeadlyStepError` if the process of the trial has died.
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
        """Try a step that has killed too many processes in a separate one; steps of a migration (two layouts) are not tried."""
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

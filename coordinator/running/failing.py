"""Decide what failing rows mean for the pipeline: it halts before their step, or only their input waits.

A step on which rows fail at a node fails at every replay, so only a user's decision helps. A message that the settings
do not explain has not even been decoded. Its step never ran to the end. The step leaves the message, and what follows
in its partition, to a later step. The table waits, and all other tables go on. After a decision (`coordinator skip`)
the first step that takes the message drops it. A start tries the message again, with the settings of that time.

Invariants: rows are left to later steps only in records that this process has logged and that never ran to the end. So
no output ever changes. The newest record gives its rows back first, so that ranges always follow each other (invariant 7).
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from dbsp.coordinator.decisions import commands, states
from dbsp.coordinator.running.attempts import before_step
from dbsp.coordinator.running.blame import Locate, unlocated
from dbsp.coordinator.running.notices import InputRefused, Notify, RowNotDeferred, RowNotLocated
from dbsp.errors import RowsError
from dbsp.logs import InputLog, Range, RefusesRows, StepLog, StepRecord
from dbsp.logs.step_commands import DroppedRow, defer_command, drop_command, skip_command, unreadable_row


class Failing:
    """Judges the errors of steps.

    **State** the steps that this process has logged and that have not run; the rows that no setting explains. Some of
    these rows are to be dropped by the next step that takes them.
    """

    def __init__(self, inputs: InputLog, steps: StepLog, locate: Locate, note: Notify) -> None:
        """Begin with no failing row."""
        self._inputs, self._steps, self._locate, self._note = inputs, steps, locate, note
        self._logged: set[int] = set()
        self._lock = threading.Lock()
        self._refused: dict[tuple[str, int], DroppedRow] = {}
        self._dropping: list[DroppedRow] = []

    # --- steps --------------------------------------------------------------------------------------------------

    def step_commands(self, ranges: Sequence[Range]) -> tuple[str, ...]:
        """Return the decisions to drop rows of these ranges, which are logged with the step that takes the rows."""
        rows = [row for row in self._dropping if _taken(ranges, row)]
        return tuple(drop_command([row], row.reason) for row in rows)

    def logged(self, record: StepRecord) -> None:
        """Note a step that this process has logged."""
        self._logged.add(record.step)
        self._dropping = [row for row in self._dropping if not _taken(record.ranges, row)]

    def done(self, step: int) -> None:
        """Note a step that has run to its end."""
        self._logged.discard(step)

    # --- errors -------------------------------------------------------------------------------------------------

    def halt(self, command: commands.Command, error: Exception) -> states.Halt | None:
        """Return what a user must decide, with the known input positions of the failed rows; None if no rows failed."""
        if not isinstance(command, commands.RunStep):
            return None
        halt = before_step(command.record, error)
        if halt is not None or not isinstance(error, RowsError):
            return halt
        return states.Halt(
            step=command.record.step, node=error.node, name=error.name, command=skip_command(error.node),
            count=error.count, rows=self._located(command.record, error), message=error.message,
        )  # fmt: skip

    def _located(self, record: StepRecord, error: RowsError) -> tuple[states.LocatedRow, ...]:
        """Return the failed rows; their input positions stay unknown if the input cannot be read again now."""
        try:
            return self._locate(record, error)
        except Exception as other:  # noqa: BLE001 - positions are a help only: a user can decide without them
            self._note(RowNotLocated(step=record.step, error=f"{type(other).__name__}: {other}"))
            return unlocated(record, error)

    def deferred(self, command: commands.Command, error: Exception) -> bool:
        """Leave a row that no setting explains to a later step, and let its table wait; return False if impossible."""
        row = unreadable_row(error) if isinstance(error, RowsError) else None
        inputs = self._inputs
        if row is None or not isinstance(command, commands.RunStep) or not isinstance(inputs, RefusesRows):
            return False
        try:
            if not self._left_to_later(command, row):
                return False
        except Exception as other:  # noqa: BLE001 - after any error the pipeline halts instead
            self._note(RowNotDeferred(step=command.record.step, error=f"{type(other).__name__}: {other}"))
            return False
        with self._lock:
            self._refused[row.table, row.partition] = row
        inputs.refuse(row.table, f"{error}; its payload: {row.payload}")
        refused = InputRefused(
            step=command.record.step, table=row.table, partition=row.partition, offset=row.offset, reason=row.reason
        )
        self._note(refused)
        return True

    def _left_to_later(self, command: commands.RunStep, row: DroppedRow) -> bool:
        step = command.record.step
        records = [record for record in self._steps.read(step) if _reaches(record, row)]
        if not _taken(command.record.ranges, row) or not {record.step for record in records} <= self._logged:
            return False
        for record in reversed(records):
            self._steps.decide(command.epoch, record.step, defer_command(row.table, row.partition, row.offset))
        return True

    # --- decisions ----------------------------------------------------------------------------------------------

    @property
    def refused(self) -> tuple[DroppedRow, ...]:
        """Return the rows for which tables wait; may be called from any thread."""
        with self._lock:
            return tuple(self._refused[place] for place in sorted(self._refused))

    def drop_refused(self) -> tuple[DroppedRow, ...]:
        """Release the waiting tables and return their rows, which the next steps that take them drop."""
        rows = self.refused
        with self._lock:
            self._refused = {}
        self._dropping += rows
        if isinstance(self._inputs, RefusesRows):
            for table in sorted({row.table for row in rows}):
                self._inputs.release(table)
        return rows


def _taken(ranges: Sequence[Range], row: DroppedRow) -> bool:
    return any(
        (each.table, each.partition) == (row.table, row.partition) and each.first <= row.offset < each.last
        for each in ranges
    )


def _reaches(record: StepRecord, row: DroppedRow) -> bool:
    """Return True if a step reads the row's place at or after the row."""
    return any(
        (each.table, each.partition) == (row.table, row.partition) and each.last > row.offset for each in record.ranges
    )

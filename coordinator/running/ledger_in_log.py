"""The ledger in the step log, where the step log is not on the coordinator's disk (Kafka).

Each change of the ledger is in the step log before it is on the disk. So a record never names a layout or a checkpoint that a
start could not find after the disk was lost. Three things are left out. The epoch is the log's own. The count of deaths
concerns processes on this host. A change before the first claim follows with the claim.

Source: docs/design/0053-copied-checkpoints.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import cast

from dbsp.coordinator.config import Config
from dbsp.coordinator.running.control import Control, Ledger, decode_ledger, encode_ledger
from dbsp.errors import ConfigError
from dbsp.logs import CarriesLedger, StepLog


class LoggedControl:
    """A ledger whose changes a step log carries, too; see `Control`."""

    def __init__(self, control: Control, steps: CarriesLedger) -> None:
        """Write nothing yet."""
        self._control, self._steps = control, steps

    def load(self) -> Ledger | None:
        """Return the ledger; None before `begin`."""
        return self._control.load()

    def begin(self, ledger: Ledger) -> Ledger:
        """Write the first ledger unless one exists; the claim lets the log carry it."""
        return self._control.begin(ledger)

    def change(self, epoch: int | None, action: Callable[[Ledger], Ledger]) -> Ledger:
        """Apply the change in one transaction of the disk; the log has it first.

        If the transaction fails afterwards, the log is ahead of the disk until the next change. Nothing has used what the log
        says more, and the disk counts as long as it is there.
        """

        def logged(ledger: Ledger) -> Ledger:
            changed = action(ledger)
            self._steps.note_ledger(encode_ledger(replace(changed, epoch=0, deaths=None)))
            return changed

        return self._control.change(epoch, logged)

    def close(self) -> None:
        """Close the ledger; the caller closes the log."""
        self._control.close()


def logged_control(control: Control, steps: StepLog) -> Control:
    """Return a ledger that the step log carries, if the log can."""
    return LoggedControl(control, steps) if isinstance(steps, CarriesLedger) else control


def ledger_in_log(config: Config) -> Ledger | None:
    """Return the ledger that the step log of the settings carries, where the data folder has none; write nothing there.

    **Errors** those of opening the log.
    """
    if config.input.logs_elsewhere is None or (config.data_dir / "control").exists():
        return None
    try:
        steps = config.input.open_steps(config.residence)
    except ConfigError:  # there is no such topic yet; what else is wrong with it, the start says when it opens the log
        return None
    try:
        found = cast(CarriesLedger, steps).ledger() if isinstance(steps, CarriesLedger) else None
        return None if found is None else replace(decode_ledger(found), epoch=cast(CarriesLedger, steps).epoch())
    finally:
        steps.close()

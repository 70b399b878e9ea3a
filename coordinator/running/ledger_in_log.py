"""The ledger in the step log, where the step log is not on the coordinator's disk (Kafka).

Each change of the ledger is in the step log before it is on the disk. So a record never names a layout or a checkpoint that a
start could not find after the disk was lost. Three things are left out. The epoch is the log's own. The count of deaths
concerns processes on this host. A change before the first claim follows with the claim.

Source: docs/design/0053-copied-checkpoints.md.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import cast

from dbsp.coordinator.checks.doctor import read_ledger
from dbsp.coordinator.running.control import Control, Ledger
from dbsp.coordinator.running.ledger_file import decode_ledger, encode_ledger
from dbsp.coordinator.settings.config import Config
from dbsp.errors import ConfigError
from dbsp.logs import CarriesLedger, StepLog


class LoggedControl:
    """A ledger whose changes a step log carries, too; see `Control`."""

    def __init__(self, control: Control, steps: CarriesLedger) -> None:
        """Store the ledger and the log."""
        self._control, self._steps = control, steps
        self._doubts = threading.Event()

    def doubt(self) -> None:
        """Make the next change check whether another coordinator has claimed the log; any thread may call this.

        An idle coordinator looks into its own folder every second. One on another host leaves no trace there.
        """
        self._doubts.set()

    def load(self) -> Ledger | None:
        """Return the ledger; None before `begin`."""
        return self._control.load()

    def begin(self, ledger: Ledger) -> Ledger:
        """Write the first ledger unless one exists; the claim lets the log carry it."""
        return self._control.begin(ledger)

    def change(self, epoch: int | None, action: Callable[[Ledger], Ledger]) -> Ledger:
        """Apply the change in one transaction of the disk; the log has it first.

        If the transaction fails afterwards, the log is ahead of the disk until the next change. Nothing has used the
        change that only the log has. While the disk is there, its ledger counts.
        """

        if self._doubts.is_set():
            self._steps.refuse_replaced()
            self._doubts.clear()

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


def _age(ledger: Ledger) -> tuple[int, int]:
    """Return the versions of the newest checkpoint and the newest layout, which only grow."""
    return ledger.published, max(ledger.layouts)


def ledger_in_log(config: Config) -> Ledger | None:
    """Return the ledger that the step log carries, if the data folder has none or an older one; write nothing there.

    A folder has an older one if a coordinator on another host has claimed the log since. A claim that ended before the
    folder had its epoch looks the same. The ledger of the log is right then, too, as each change is there first. If it has newer
    checkpoints or layouts, the workers' databases on the coordinator's own disk are stale, and are made again from copies.
    **Errors** those of opening the log.
    """
    if config.input.logs_elsewhere is None:
        return None
    there = (config.data_dir / "control").exists()
    try:
        steps = config.input.open_steps(config.residence)
    except ConfigError:  # the topic does not exist yet; any other fault is reported when the start opens the log
        return None
    try:
        if not isinstance(steps, CarriesLedger):
            return None
        log = cast(CarriesLedger, steps)
        known = read_ledger(config.data_dir) if there else None
        if (known is not None and log.epoch() <= known.epoch) or (carried := log.ledger()) is None:
            return None
        found = replace(decode_ledger(carried), epoch=log.epoch())
        if known is None or _age(known) == _age(found):
            return found
        is_newer = _age(known) < _age(found)  # otherwise a version that writes no ledger into the log has run since
        return replace(found, own_disk_since=found.epoch) if is_newer else None
    finally:
        steps.close()

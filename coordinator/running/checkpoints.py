"""Carry out the commands of a checkpoint: pin, wait for the copy, publish, and trim the logs below the oldest version.

Invariants: the input positions at a checkpoint are in the ledger before the first worker pins it. A version is published when
all workers hold it, and their standbys on other hosts. If there are copies, its object is among them, too. Logs are trimmed
only below the oldest version that a worker can still open (invariant 12).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from dbsp.coordinator.decisions import commands, events
from dbsp.coordinator.decisions.cutting import Positions
from dbsp.coordinator.decisions.fills import kept_for
from dbsp.coordinator.running import control as ledgers
from dbsp.coordinator.running.checkpoint_copy import CheckpointCopy
from dbsp.coordinator.running.clock import Clock
from dbsp.coordinator.running.control import Ledger, Saved
from dbsp.coordinator.running.copies_behind import CopyingBehind
from dbsp.coordinator.running.far_standbys import FarStandbys
from dbsp.coordinator.running.format_window import risen, window_ends_us
from dbsp.coordinator.running.intake import all_wait
from dbsp.coordinator.running.letters import KeepsLetters, NoLetters
from dbsp.coordinator.running.loop_settings import LoopSettings
from dbsp.coordinator.running.notices import Observer, TrimFailed
from dbsp.coordinator.running.replay_notes import ReplayNotes
from dbsp.coordinator.running.status import LiveStatus
from dbsp.errors import InternalError, UnavailableError
from dbsp.logs import InputLog, StepLog
from dbsp.runtime.runtime import Runtime
from dbsp.steps.timing import Timing
from dbsp.store import CheckpointId, CommitReport

Change = Callable[[Callable[[Ledger], Ledger]], Ledger]


@dataclass(frozen=True, slots=True, kw_only=True)
class InputCut:
    """The input positions and the timing between two steps."""

    positions: Positions
    timing: Timing


@dataclass(frozen=True, slots=True, kw_only=True)
class Logs:
    """The logs that a checkpoint allows to trim, and the letters that notes of the input log are about."""

    inputs: InputLog
    steps: StepLog
    letters: KeepsLetters = field(default_factory=NoLetters)


class Checkpoints:
    """The part of the command runner for checkpoints; `change` changes the ledger under the newest epoch."""

    def __init__(
        self,
        clock: Clock,
        logs: Logs,
        change: Change,
        live_status: LiveStatus,
        observer: Observer,
        settings: LoopSettings,
        behind: CopyingBehind,
        *,
        standbys: FarStandbys,
    ) -> None:
        """Store the parts; change nothing yet.

        Two settings are used. Logs are kept `retention_s` longer than the versions need. `rollback_window_s` after
        this version's first checkpoint the older version cannot continue any more (`format_window`).
        """
        self._window_us = round(settings.rollback_window_s * 1e6)
        self._clock, self._logs, self._change, self._published = clock, logs, change, behind.objects
        self._behind, self._standbys = behind, standbys
        self._live_status, self._observer, self._retention_s = live_status, observer, settings.retention_s
        self._notes = ReplayNotes(logs.inputs, logs.letters)
        self._copying: CheckpointCopy | None = None
        self._floors: list[tuple[float, int, Positions]] = []
        self.rollback_until_us: int | None = None
        """The time until which the previous version of dbsp can continue from here; any thread may read it."""

    def note_window(self, ledger: Ledger) -> None:
        """Store the end of the rollback window, from the ledger of an opened or published version."""
        self.rollback_until_us = window_ends_us(ledger, self._window_us)

    def forget(self) -> None:
        """Forget the checkpoint in flight, as a new epoch begins or the service ends."""
        self._copying = None
        self._published.end()
        self._behind.end()
        self._standbys.end()

    def intend(self, version: int, checkpoint: CheckpointId, cut: InputCut) -> None:
        """Note in the ledger the checkpoint that workers are about to commit."""
        saved = Saved(
            version=version, checkpoint=checkpoint, positions=cut.positions, timing=cut.timing,
            wall_us=self._clock.wall_us(), published=False,
        )  # fmt: skip
        self._change(lambda ledger: ledgers.intend(ledger, saved))

    def pin(
        self, runtime: Runtime, command: commands.PinVersion, cut: InputCut, woken: Callable[[], None]
    ) -> events.VersionPinned:
        """Note the input positions in the ledger, pin every worker, and begin to copy, in this order."""
        started = self._clock.monotonic_s()
        self.intend(command.version, command.checkpoint, cut)
        runtime.pin(command.version, command.checkpoint, command.layout)
        copied = runtime.copy(command.version, command.checkpoint, command.layout)
        epoch, layout = command.checkpoint.epoch, command.layout
        followed = self._standbys.after(runtime, copied, command.version, epoch, layout)
        future = self._published.after(followed, command.version, command.checkpoint.epoch)
        future.add_done_callback(lambda _: woken())
        pause = self._clock.monotonic_s() - started
        self._copying = CheckpointCopy(command=command, started_s=started, pause_s=pause, future=future)
        return events.VersionPinned(version=command.version)

    def is_copied(self, version: int) -> bool:
        """Return whether the copy of a version has ended, well or not."""
        return self._copying is not None and self._copying.command.version == version and self._copying.future.done()

    def reports(self, version: int) -> Mapping[int, CommitReport]:
        """Return the acknowledgements of all workers; wait for the end of the copy."""
        copying = self._copying
        if copying is None or copying.command.version != version:
            raise InternalError(f"no copy of this version is under way: version={version}")
        return copying.reports()

    def end(self, runtime: Runtime, command: commands.AwaitCopy | commands.Publish) -> events.Copied | events.Published:
        """Wait for the end of the copy; or note in the ledger that all workers hold the version, and trim the logs."""
        if isinstance(command, commands.AwaitCopy):
            self.reports(command.version)
            return events.Copied(version=command.version)
        if self._copying is not None:
            self._note(self._copying)
            self._copying = None
        elif self._standbys.rule.per_worker:
            self._follow_to_made(runtime, command)
        ledger = self._change(
            lambda found: risen(
                ledgers.publish(self._behind.noted(found), command.version, ends_rescale=command.ends_rescale),
                self._clock.wall_us(), self._window_us,
            )
        )  # fmt: skip
        self.note_window(ledger)
        self._behind.published(ledger)
        if not command.ends_rescale:  # steps wait for the end of a rescale, so leave trimming to the next checkpoint
            self._trim(ledger)
        return events.Published(version=command.version)

    def _follow_to_made(self, runtime: Runtime, command: commands.Publish) -> None:
        """Let standbys on other hosts follow to a version that a rescale has made, while no step runs."""
        ledger, checkpoint = self._change(lambda found: found), command.checkpoint
        layout = ledger.layouts[checkpoint.layout_version]
        self._standbys.reach(runtime, command.version, checkpoint.epoch, layout)

    def _note(self, copying: CheckpointCopy) -> None:
        published, now = copying.published(self._clock.monotonic_s()), self._live_status.now
        self._live_status.post(replace(now, checkpoints=now.checkpoints + 1, checkpoint_seconds=published.seconds))
        self._observer.noted(published)

    def _trim(self, ledger: Ledger) -> None:
        """Drop log entries that no openable version needs and `retention_s` does not keep."""
        floor = ledger.floor()
        if floor is None:
            return
        now = self._clock.monotonic_s()
        self._floors.append((now, floor.checkpoint.step, kept_for(ledger.fill, floor.positions)))
        old = [each for each in self._floors if now - each[0] >= self._retention_s]
        if not old or all_wait(self._logs.inputs):  # the next checkpoint drops more
            return
        self._floors = [each for each in self._floors if now - each[0] < self._retention_s]
        _, step, positions = old[-1]
        try:
            self._logs.steps.trim(step)
            self._logs.inputs.trim(positions)
            self._notes.trimmed(positions)
        except UnavailableError as error:  # the next checkpoint drops more
            self._observer.noted(TrimFailed(step=step, error=str(error)))

"""The progress of a migration, as seen in the steps that this process ran.

The event loop's thread reports every step; any thread may read the progress.
"""

from __future__ import annotations

from dbsp.coordinator.decisions import commands
from dbsp.coordinator.running.clock import Clock
from dbsp.coordinator.running.notices import RescaleMoved
from dbsp.coordinator.running.progress import MovingProgress
from dbsp.layout import Layout
from dbsp.runtime.runtime import MigrationReport, MoveReport, StepReport


class Moves:
    """The progress of the migration under way, collected from the reports of its steps."""

    def __init__(self, clock: Clock) -> None:
        """Begin with no migration."""
        self._clock = clock
        self._progress: MovingProgress | None = None
        self._since_s = 0.0

    @property
    def progress(self) -> MovingProgress | None:
        """Return the progress of the migration under way; None if there is none."""
        return self._progress

    def forget(self) -> None:
        """Forget the progress after a rollback; the replay reports it again."""
        self._progress = None

    def stepped(self, command: commands.RunStep, report: StepReport) -> MoveReport | None:
        """Note a finished step; return the totals of the migration if this step ended it, else None."""
        found, coming = report.migration, command.coming
        if found is None or coming is None:
            return None
        self._progress = progress = self._with(command.layout, coming, found)
        if not found.over:
            return None
        self._progress = None
        total = sum(worker.state_bytes for worker in report.workers)
        return MoveReport.between(command.layout, coming, bytes_moved=progress.moved_bytes, bytes_total=total)

    def _with(self, old: Layout, new: Layout, found: MigrationReport) -> MovingProgress:
        """Return the progress with the keys that one more step has moved."""
        now, before = self._clock.monotonic_s(), self._progress
        if before is None:
            self._since_s = now
        keys = found.moved_keys + (before.moved_keys if before is not None else 0)
        rate = keys / max(now - self._since_s, 1e-6)
        return MovingProgress(
            strategy=found.strategy, workers=len(new.workers), workers_before=len(old.workers), moved_keys=keys,
            moved_bytes=found.moved_bytes + (before.moved_bytes if before is not None else 0),
            left_keys=found.left_keys, seconds=now - self._since_s,
            expected_s=found.left_keys / rate if keys and rate > 0 else None,
        )  # fmt: skip


def moved_notice(old: Layout, new: Layout, moved: MoveReport) -> RescaleMoved:
    """Return the notice that a rescale has moved all state."""
    return RescaleMoved(
        workers=len(new.workers), workers_before=len(old.workers), shards_moved=moved.shards_moved,
        shards=moved.shards, bytes_moved=moved.bytes_moved, bytes_total=moved.bytes_total, bytes_ahead=moved.bytes_ahead,
    )  # fmt: skip

"""The checkpoint in flight: pinned on every worker, and copied while steps run."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass

from dbsp.coordinator.decisions import commands
from dbsp.coordinator.running.notices import CheckpointPublished
from dbsp.errors import DataError
from dbsp.store import CommitReport


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointCopy:
    """The command of a checkpoint, when it began, how long it stopped the steps, and the future of its copy."""

    command: commands.PinVersion
    started_s: float
    pause_s: float
    future: Future[Mapping[int, CommitReport]]

    def reports(self) -> Mapping[int, CommitReport]:
        """Return the acknowledgements of all workers; wait for the end of the copy."""
        reports, version = self.future.result(), self.command.version
        missing = sorted(set(self.command.layout.workers) - set(reports))
        if missing:
            raise DataError(f"workers did not acknowledge a commit: version={version} workers={missing}")
        return reports

    def published(self, now_s: float) -> CheckpointPublished:
        """Return the notice that every worker has acknowledged the checkpoint."""
        reports = self.reports().values()
        return CheckpointPublished(
            version=self.command.version, step=self.command.checkpoint.step, seconds=round(now_s - self.started_s, 6),
            pause_seconds=round(self.pause_s, 6), bytes_written=sum(report.bytes_written for report in reports),
            state_bytes=sum(report.state_bytes for report in reports),
        )  # fmt: skip

"""The values that every task of a run shares."""

from __future__ import annotations

from dataclasses import dataclass

from dbsp.plan.plan import Plan
from dbsp.runtime.background import BackgroundWorkers
from dbsp.runtime.runtime import WorkerResources


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The values that every task of a run shares: worker resources, plan, name of the run, background workers.

    `common_disk` says that all hosts see the same files. Otherwise each host sees only the files of its own workers.
    """

    resources: WorkerResources
    plan: Plan
    run: str
    background: BackgroundWorkers | None = None
    common_disk: bool = True

    @property
    def readers(self) -> BackgroundWorkers | None:
        """Return the background workers if they read ahead, else None.

        Threads of this process always do. Processes do only where a read is more expensive than passing rows between
        processes.
        """
        if self.background is None or not self.background.apart or getattr(self.resources, "input_is_expensive", True):
            return self.background
        return None

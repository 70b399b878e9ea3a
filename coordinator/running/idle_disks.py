"""Look at the disks of the workers while the pipeline is idle: no step runs that would notice a lost one.

A step that has run says that the disks are there. Without one, the loop looks every `host_lost_s` seconds. Source:
docs/design/0049-lost-hosts.md.
"""

from __future__ import annotations

from contextlib import suppress

from dbsp.coordinator.running.clock import Clock
from dbsp.coordinator.running.lost_hosts import SilentHosts
from dbsp.errors import DbspError, UnavailableError
from dbsp.layout import Layout
from dbsp.runtime import disks
from dbsp.runtime.runtime import RunsOnHosts, Runtime


class IdleDisks:
    """The time of the last step or look; only the thread that uses the runtime calls it."""

    def __init__(self, clock: Clock, hosts: SilentHosts) -> None:
        """Begin as if a step had just run."""
        self._clock, self._hosts = clock, hosts
        self._step, self._looked_s = -1, clock.monotonic_s()

    def refuse_lost(self, runtime: Runtime | None, layout: Layout, step: int) -> None:
        """Raise `UnavailableError` if it is time to look, and a worker's disk is lost though its host answers.

        `step` is the next step.
        """
        now_s, after_s = self._clock.monotonic_s(), self._hosts.loss.after_s
        if step != self._step:
            self._step, self._looked_s = step, now_s
        if not after_s or now_s - self._looked_s < after_s or self._hosts.loss.common_disk or not any(layout.hosts):
            return
        try:
            self._look(runtime, layout)
        finally:
            self._looked_s = self._clock.monotonic_s()

    def _look(self, runtime: Runtime | None, layout: Layout) -> None:
        if not isinstance(runtime, RunsOnHosts):
            return
        self._hosts.look(runtime, layout.hosts)
        silent = self._hosts.silent(layout.hosts)
        homes = {worker: host for worker, host in zip(layout.workers, layout.hosts, strict=True) if host not in silent}
        lost: list[int] = []
        with suppress(DbspError):  # a host fell silent meanwhile: others judge that
            lost = _lost(runtime, homes)
        if lost:
            hosts = sorted({homes[worker] for worker in lost})
            raise UnavailableError(f"the disks of workers are lost: workers={lost} hosts={', '.join(hosts)}")


def _lost(runtime: RunsOnHosts, homes: dict[int, str]) -> list[int]:
    """Return the workers whose disks cannot be written, or have no database of theirs."""
    broken = disks.unwritable(runtime, sorted({*homes.values()}))
    missing = disks.without_database(runtime, list(homes), list(homes.values()))
    return sorted({*missing, *(worker for worker, host in homes.items() if host in broken)})

"""Find out, while steps run, whether the hosts answer on which a rescale places its first workers.

A machine that was just started has no executor yet. A command that needs one would stop the steps until it is there.
A look at a host may take a second, so a thread of its own looks.

Invariants
1. One look runs at a time.
2. A look counts for the hosts and the runtime for which it was taken.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from dbsp.coordinator.decisions import events
from dbsp.coordinator.running.clock import Clock
from dbsp.runtime.runtime import KnowsHosts, Runtime

AWAITED_S = 60.0
"""For how long hosts are awaited: as long as a start waits for executors."""
LOOK_EVERY_S = 0.5


@dataclass(slots=True, eq=False)
class _Awaited:
    """The hosts that are awaited, and the silent ones at the last look; None before one has ended."""

    runtime: Runtime
    hosts: tuple[str, ...]
    since_s: float
    silent: tuple[str, ...] | None = None
    looked_s: float = 0.0
    looks: bool = False


class JoiningHosts:
    """The hosts of a rescale; `woken` is called on the thread of a look when it has ended."""

    def __init__(self, clock: Clock, woken: Callable[[], None]) -> None:
        """Await no host yet."""
        self._clock, self._woken = clock, woken
        self._awaited: _Awaited | None = None

    def news(self, runtime: Runtime | None, hosts: tuple[str, ...]) -> events.HostsAwaited | None:
        """Return the news that these hosts answer, or were awaited in vain; None while they are awaited."""
        if not isinstance(runtime, KnowsHosts):
            return events.HostsAwaited(hosts=hosts)
        now_s, awaited = self._clock.monotonic_s(), self._awaited
        if awaited is None or (awaited.runtime, awaited.hosts) != (runtime, hosts):
            awaited = self._awaited = _Awaited(runtime=runtime, hosts=hosts, since_s=now_s)
        if awaited.looks:
            return None
        if awaited.silent is not None and (not awaited.silent or now_s - awaited.since_s >= AWAITED_S):
            self._awaited = None
            return events.HostsAwaited(hosts=hosts, silent=awaited.silent)
        if awaited.silent is None or now_s - awaited.looked_s >= LOOK_EVERY_S:
            awaited.looks, awaited.looked_s = True, now_s
            threading.Thread(target=self._look, args=(awaited,), name="dbsp-joining-hosts", daemon=True).start()
        return None

    def _look(self, awaited: _Awaited) -> None:
        try:
            runtime = awaited.runtime
            awaited.silent = tuple(runtime.silent(awaited.hosts)) if isinstance(runtime, KnowsHosts) else ()
        finally:
            awaited.looks = False
            self._woken()

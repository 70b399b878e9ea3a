"""Track the hosts that do not answer, and decide when they count as lost.

A host that is powered off refuses no connection: it is silent. So the runtime connects with a bound, before workers are fenced
and while a command takes long. A host that was silent at every look for `host_lost_s` counts as lost.

A host that has not answered since its runtime began may be one that still starts. It counts as lost only when the runtime is
older than `KnowsHosts.first_answer_s`, too. Otherwise a small `host_lost_s` would move workers at each plain start of Spark.

The epoch is the safety, not the time: a host that is wrongly taken for lost is fenced like any other late process. Its databases
are never used again, because the ledger has the epoch of each move (`MovedWorker.epoch`).
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dbsp.coordinator.running.clock import Clock
from dbsp.errors import AwayError, UnavailableError
from dbsp.runtime.runtime import KnowsHosts, Runtime

WAIT_S = 5.0
"""Seconds that a check before a fence waits for silent hosts: executors register some seconds after Spark starts."""
LOOK_EVERY_S = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLoss:
    """The rule for lost hosts: a host that is silent for `after_s` seconds is lost (None: never).

    `movable`: a worker's database can be made again on another host, as standbys, copies or a common disk have it. With
    `only_standbys` that host must have a standby of the worker.
    """

    after_s: float | None = None
    movable: bool = False
    only_standbys: bool = False
    common_disk: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """The lost hosts of workers, and all hosts that do not answer now."""

    hosts: tuple[str, ...]
    silent: tuple[str, ...]


class SilentHosts:
    """The silent hosts, with the start of their silence; any thread may use it. `lost` are the lost hosts of the last look."""

    def __init__(self, clock: Clock, loss: HostLoss) -> None:
        """Begin without a silent host."""
        self.loss = loss
        self._clock = clock
        self.lost: tuple[str, ...] = ()
        self._since_s: dict[str, float] = {}
        self._runtime: Runtime | None = None
        self._began_s = self._first_answer_s = 0.0
        self._seen: set[str] = set()
        self._lock = threading.Lock()

    def look(self, runtime: Runtime | None, hosts: Iterable[str]) -> tuple[str, ...]:
        """Ask the runtime about these hosts; return those that are lost."""
        asked = sorted({host for host in hosts if host})
        if self.loss.after_s is None or not asked or not isinstance(runtime, KnowsHosts):
            return ()
        silent = frozenset(runtime.silent(asked))
        now_s = self._clock.monotonic_s()
        with self._lock:
            if runtime is not self._runtime:  # its executors are all new
                self._runtime, self._began_s, self._seen = runtime, now_s, set()
                self._first_answer_s = runtime.first_answer_s
            self._seen |= {*asked} - silent
            self._since_s = {
                host: self._since_s.get(host, now_s)
                for host in {*self._since_s, *silent}
                if host in silent or host not in asked
            }
            self.lost = tuple(host for host in asked if host in silent and self._is_lost(host, now_s))
            return self.lost

    def _is_lost(self, host: str, now_s: float) -> bool:
        """Return whether a host that was silent at the last look has been so for too long; the caller has the lock."""
        after_s = self.loss.after_s
        if after_s is None or not now_s - self._since_s[host] >= after_s > 0:
            return False
        return host in self._seen or now_s - self._began_s >= self._first_answer_s

    def refuse_lost(self, hosts: Iterable[str]) -> None:
        """Raise `UnavailableError` if one of these hosts was lost at the last look and its workers can move elsewhere."""
        gone = sorted({*self.lost}.intersection(hosts))
        if gone and self.loss.movable:
            raise UnavailableError(
                f"hosts of workers are lost: hosts={', '.join(gone)}", "their workers move by themselves"
            )

    def await_all(self, runtime: Runtime, hosts: Sequence[str], offered: Sequence[str]) -> Lost | None:
        """Wait a moment until all these hosts answer; return the lost ones, None if there are none.

        Workers of lost hosts may move to the `offered` ones. While no host answers at all, none counts as lost: the
        coordinator itself may be cut off. A single host is never lost, as the service ends with it.
        **Errors** `AwayError` if a host is silent, and not for long enough to be lost.
        """
        until_s = self._clock.monotonic_s() + WAIT_S
        everywhere = {*hosts, *offered}
        if len(everywhere) == 1:
            return None
        while True:
            lost = tuple(host for host in self.look(runtime, everywhere) if host in hosts)
            silent = self.silent(everywhere)
            if not silent.keys() & set(hosts):
                return None
            if lost and silent.keys() < everywhere:
                return Lost(hosts=lost, silent=tuple(silent))
            if self._clock.monotonic_s() >= until_s:
                raise AwayError(self._story(silent))
            self._clock.wait(threading.Event(), LOOK_EVERY_S)

    def silent(self, hosts: Iterable[str]) -> dict[str, float]:
        """Return for how many seconds each silent host of these has been silent."""
        now_s = self._clock.monotonic_s()
        with self._lock:
            return {host: now_s - self._since_s[host] for host in sorted(set(hosts)) if host in self._since_s}

    def long_silent(self, hosts: Iterable[str]) -> tuple[str, ...]:
        """Return those of these hosts that have been silent for so long that they count as lost, by the last look at each."""
        now_s = self._clock.monotonic_s()
        with self._lock:
            return tuple(host for host in sorted(set(hosts)) if host in self._since_s and self._is_lost(host, now_s))

    def _story(self, silent: dict[str, float]) -> str:
        shown = ", ".join(f"{host} for {seconds:.0f} s" for host, seconds in silent.items())
        what = "their workers move to other hosts" if self.loss.movable else "the service ends"
        after = f"host_lost_s={self.loss.after_s:g}"
        with self._lock:
            starting = not self._seen.issuperset(silent) and self._first_answer_s > (self.loss.after_s or 0)
        if starting:
            after += f", and not before the application is {self._first_answer_s:g} s old"
        return f"hosts of workers do not answer: {shown}; {what} after {after}"

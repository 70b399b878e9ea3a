"""The lease of a coordinator whose logs are on Kafka: it writes heartbeats, and a standby starts when none has come for a while.

`owner.lock` tells the end of a process on the same host at once. A standby on another host has no such lock. It also sees
nothing of a coordinator that was stopped, or whose host has lost its network. So it counts the seconds without a heartbeat.

Invariants
1. The lease says only *when* to start. The claim of the epoch makes it safe: an owner that was wrongly taken for dead is fenced.
2. Only time counts in which the standby itself heard the brokers. When they are away, everybody waits for them.
3. Of several standbys the one whose heartbeat comes first after the silence starts. The others go on waiting.

Left out: a coordinator whose steps hang while its threads run still writes heartbeats.
Source: docs/design/0057-lease.md, docs/operations.md.
"""

from __future__ import annotations

import math
import socket
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

from dbsp.coordinator.settings.config import Config
from dbsp.errors import DbspError, UnavailableError
from dbsp.logs import Heartbeat, Heartbeats
from dbsp.runtime.runtime import HasApplication, Runtime

BEATS_PER_LEASE = 5


def open_heartbeats(config: Config) -> Heartbeats | None:
    """Return the heartbeats of a pipeline; None if its logs are in the data folder.

    **Errors** `AwayError` if the brokers do not answer, `ConfigError` without the right to use the topic.
    """
    return config.input.open_heartbeats(config.residence)


def place_of(data_dir: Path) -> str:
    """Return the name of the host and the data folder, which a coordinator shares with its standbys on the same host."""
    found = data_dir.stat()
    return f"{socket.gethostname()} {found.st_dev}:{found.st_ino}"


def application_of(beats: Heartbeats) -> str:
    """Return the application that the last coordinator had on a cluster; empty if none is known."""
    newest = list(beats.read(beats.end() - 1).values())
    return newest[-1].application if newest else ""


def name_of(data_dir: Path) -> str:
    """Return a name for the heartbeats of one coordinator on this host, with this data folder."""
    return f"{place_of(data_dir)} {uuid.uuid4().hex}"


class Heart:
    """A thread that writes a heartbeat now and again while the coordinator runs.

    A heartbeat that cannot be written is not an error of the pipeline: the next one may arrive. The first of several such
    failures is printed.

    Heartbeats of others between two of its own are a reason to `doubt` that the pipeline is still its own.

    The heartbeats name the application that the coordinator has on a cluster. Until it has one, they name the one of the
    coordinator before it.
    """

    def __init__(self, beats: Heartbeats, of: str, lease_s: float, tell: Callable[[str], None]) -> None:
        """Write nothing yet."""
        self._beats, self._of, self._lease_s, self._tell = beats, of, lease_s, tell
        self._application, self._newest = application_of(beats), -1
        self.doubt: Callable[[], None] = lambda: None
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="dbsp-heartbeats", daemon=True)

    def begin(self) -> None:
        """Write heartbeats from now on; do nothing if that has begun."""
        if not self._thread.is_alive():
            self._thread.start()

    def attend(self, runtime: Runtime) -> Runtime:
        """Free what the coordinator before has on the cluster of the runtime; return the runtime."""
        if isinstance(runtime, HasApplication):
            try:
                runtime.application.end_other(self._application)
            except DbspError as error:
                self._tell(f"error: {error}; hint: {error.hint}")
            self._application = runtime.application.name
        return runtime

    def _run(self) -> None:
        failing = False
        while True:
            try:
                place = self._beats.beat(Heartbeat(of=self._of, application=self._application), self._lease_s)
                failing = False
                if -1 < self._newest < place - 1:
                    self.doubt()
                self._newest = place
            except DbspError as error:
                if not failing:
                    self._tell(f"error: no heartbeat can be written, so a standby may start: {error}")
                failing = True
            if self._ends.wait(self._lease_s / BEATS_PER_LEASE):
                return

    def close(self, *, stopped: bool = False, pause_s: float = 0.0) -> None:
        """Write no more heartbeats; a last one says that a user has `stopped` the pipeline, or that it pauses."""
        if self._ends.is_set():
            return
        self._ends.set()
        if self._thread.is_alive():
            self._thread.join()
        last = Heartbeat(of=self._of, stopped=stopped, pause_s=pause_s, application=self._application)
        if stopped or pause_s:
            try:
                self._beats.beat(last, self._lease_s)
            except DbspError as error:
                self._tell(f"error: standbys on other hosts do not hear how the pipeline ended: {error}")
        self._beats.close()


class CoordinatorLease:
    """The heartbeats of others, as a standby hears them."""

    def __init__(self, beats: Heartbeats, lease_s: float, clock_s: Callable[[], float] = time.monotonic) -> None:
        """Begin to listen: the lease runs from now on."""
        self._beats, self._lease_s, self._clock_s = beats, lease_s, clock_s
        self._end = beats.end()
        self._silent_since_s = self._answered_s = clock_s()
        self.newest: Heartbeat | None = None
        """The newest heartbeat that this standby has read."""

    def is_over(self) -> bool:
        """Return whether no heartbeat has come for the whole lease, although the brokers answered all the while.

        The standby looks several times in a lease. A longer time between two answers says nothing about the coordinator: the
        brokers were away, or the standby itself did not run.
        """
        heard: Mapping[int, Heartbeat] = {}
        try:
            if self._beats.end() != self._end:
                heard = self._beats.read(self._end)
        except UnavailableError:
            self._answered_s = -math.inf
        now_s = self._clock_s()
        if heard or now_s - self._answered_s > self._lease_s / 2:
            self._silent_since_s = now_s
        self._answered_s = now_s
        if heard:
            newest = max(heard)
            self._end, self.newest = newest + 1, heard[newest]
        patience_s = self._lease_s if self.newest is None else max(self._lease_s, self.newest.pause_s)
        return now_s - self._silent_since_s >= patience_s

    def is_of(self, place: str) -> bool:
        """Return whether the newest heartbeat came from this host and data folder."""
        return self.newest is not None and self.newest.of.startswith(f"{place} ")

    def try_take(self, of: str) -> bool:
        """Write the first heartbeat of a new coordinator; return whether no other standby was faster."""
        try:
            self._beats.beat(Heartbeat(of=of, application=application_of(self._beats)), self._lease_s)
            first = next((each.of for each in self._beats.read(self._end).values()), of)
        except UnavailableError:
            return False
        return first == of

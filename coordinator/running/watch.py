"""A thread that checks a service once a second, also while the thread of the event loop is blocked.

So these conditions show within seconds: a step that hangs, a recovery that does not end, an unreachable input, a clock
that is ahead. The number of waiting rows is read from the inputs, not from the last step.

The thread decides nothing (see `decisions.machine`); `decisions.alarms` judges what is wrong.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Protocol

from dbsp.coordinator.decisions.alarms import NOT_READY, Alarm, Doing, Looked, Pace, alarms
from dbsp.coordinator.decisions.cutting import Positions
from dbsp.coordinator.running.clock import Clock
from dbsp.coordinator.running.command_runner import CommandRunner
from dbsp.coordinator.running.notices import AlarmOver, AlarmRaised, FileReloaded, Notify, WatchFailed
from dbsp.coordinator.running.status import LiveStatus, Snapshot
from dbsp.errors import DbspError
from dbsp.logs import InputLog, TellsWaits, Waiting
from dbsp.runtime.runtime import KnowsHosts, TellsAwaited, TellsCopyTrouble

LOOK_EVERY_S = 1.0
CLOSE_S = 5.0
REST_BY_LOOK = 4
"""The pause between two looks is this many times as long as a look takes, which grows with the partitions."""
NOT_TAKING = ("Starting", "Recovering", "Replaying")
"""States of a start or a rollback, in which no step is taken."""
TAKING = frozenset({"Running", "Paused", "Checkpointing", "WarmingUp", "Cancelling"})
"""States in which steps are taken, or are delayed for moments only."""
ASK_WORKERS_S = 3.0
"""Seconds of a step after which the runtime is asked which workers have not answered."""
LOOK_IDLE_S = 5.0
"""Seconds between two checks of the hosts while no command runs: each check connects to all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The findings of the last look: alarms, waiting inputs, the running command, unanswered workers, the ends of inputs."""

    alarms: tuple[Alarm, ...] = ()
    waits: tuple[Waiting, ...] = ()
    doing: Doing | None = None
    doing_s: float = 0.0
    awaited: tuple[int, ...] = ()
    hosts_away: tuple[str, ...] = ()
    ends: Positions = field(default_factory=dict)
    clock_ahead_s: float = 0.0


class Reloads(Protocol):
    """A value read from files, such as certificates, that is reloaded when the files change.

    `refused` is the reason why the changed files are not used; None if they are.
    """

    what: str
    refused: str | None

    def look(self) -> bool:
        """Read the files again if they have changed; return True if the new contents are used from now on."""
        ...


class Watch:
    """The health checks of one service. `health` may be read from any thread."""

    def __init__(
        self,
        live_status: LiveStatus,
        runner: CommandRunner,
        clock: Clock,
        inputs: InputLog,
        note: Notify,
        *,
        own_input: Callable[[], InputLog] | None = None,
        others: Callable[[], Sequence[Waiting]] = tuple,
        shows_clock: bool = False,
    ) -> None:
        """Store the parts; check nothing before `look` or `start`.

        `own_input` opens a separate handle of the input, where two threads must not share the service's handle or its
        calls may hang. `others` returns the waiting inputs that have threads of their own. `shows_clock` is True if a
        view depends on `now()`.
        """
        self.health = Health()
        self._live_status, self._runner, self._clock, self._inputs = live_status, runner, clock, inputs
        self._note, self._own_input, self._others, self._shows_clock = note, own_input, others, shows_clock
        self._own: InputLog | None = None
        self._pace, self._paced = Pace(), -1
        self._unsettled_s: float | None = None
        self._hosts_looked_s = -LOOK_IDLE_S
        self._reported: dict[tuple[str, str], Alarm] = {}
        self._failure: str | None = None
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None
        self._reloads: tuple[Reloads, ...] = ()

    def reload(self, reloads: Reloads) -> None:
        """Check these files for changes at each look from now on, and reload them."""
        self._reloads = (*self._reloads, reloads)

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run, name="dbsp-watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread and close its handle on the input; do not wait for a look that hangs at a broker."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join(CLOSE_S)
        ended = self._thread is None or not self._thread.is_alive()
        if ended and self._own is not None:
            with suppress(DbspError):
                self._own.close()

    def _run(self) -> None:
        while not self._ending.is_set():
            began = self._clock.monotonic_s()
            self.look()
            took = self._clock.monotonic_s() - began
            self._ending.wait(max(LOOK_EVERY_S, REST_BY_LOOK * took))

    def look(self) -> Health:
        """Run all checks once, and return the findings."""
        now, now_s = self._live_status.now, self._clock.monotonic_s()
        doing = self._runner.doing
        running_s = 0.0 if doing is None else now_s - doing.since_s
        awaited, hosts_away = self._workers(doing, running_s)
        self._look_at_hosts(now, doing, now_s, running_s)
        waits = self._waits(now)
        seen = Looked(
            now_s=now_s, now_unix_s=self._clock.wall_us() / 1e6, state=now.state, doing=doing, slowest_s=self._slowest(now),
            unsettled_s=self._unsettled(now, now_s), last_error=now.last_error,
            halted=None if now.halt is None else now.halt.message, ended=now.ended, waits=waits, awaited=awaited,
            hosts_away=hosts_away, clock_ahead_s=self._runner.clock_ahead_s if self._shows_clock else 0.0,
            refused=self._reloaded(), copy_trouble=self._copy_trouble(),
            copies_lag=self._runner.behind.lags,
        )  # fmt: skip
        found = self._since(alarms(seen))
        self.health = replace(
            self.health, alarms=tuple(found), waits=waits, doing=doing, doing_s=running_s, awaited=tuple(awaited),
            hosts_away=tuple(hosts_away), clock_ahead_s=self._runner.clock_ahead_s,
        )  # fmt: skip
        self._tell(found)
        self._look_at_inputs()
        return self.health

    def _reloaded(self) -> list[tuple[str, str]]:
        """Reload changed files; return those that are not used, each with the reason."""
        for each in self._reloads:
            if each.look():
                self._note(FileReloaded(what=each.what))
        return [(each.what, each.refused) for each in self._reloads if each.refused is not None]

    def _slowest(self, now: Snapshot) -> float:
        """Return the duration of the slowest of the last steps, in seconds."""
        report = now.last_report
        if report is not None and report.step != self._paced:
            self._paced = report.step
            self._pace.add(report.seconds)
        return self._pace.slowest_s

    def _unsettled(self, now: Snapshot, now_s: float) -> float | None:
        """Return the time since which the service starts or recovers; None in any other state, such as a rescale."""
        if now.state not in NOT_TAKING:
            self._unsettled_s = None
        elif self._unsettled_s is None:
            self._unsettled_s = now_s
        return self._unsettled_s

    def _workers(self, doing: Doing | None, running_s: float) -> tuple[Sequence[int], Sequence[str]]:
        """Return the unanswered workers, and the hosts that do not answer at all, of a step that takes long."""
        runtime = self._runner.running
        if doing is None or doing.step is None or running_s < ASK_WORKERS_S or not isinstance(runtime, TellsAwaited):
            return (), ()
        try:
            return runtime.awaited(), runtime.hosts_away()
        except Exception as error:  # noqa: BLE001 - names of workers are a help, and must not prevent the alarm
            self._failed(error)
            return (), ()

    def _look_at_hosts(self, now: Snapshot, doing: Doing | None, now_s: float, running_s: float) -> None:
        """Cancel a command that waits for a lost host, so that the recovery moves the host's workers.

        The loop asks for lost hosts while no command runs (`SilentHosts.refuse_lost`). Recovery itself looks at the hosts
        before it fences workers.
        """
        runtime = self._runner.running
        if now.layout is None or now.state in ("Starting", "Recovering"):
            return
        if running_s < ASK_WORKERS_S and (doing is not None or now_s < self._hosts_looked_s + LOOK_IDLE_S):
            return
        self._hosts_looked_s = now_s
        if len({*now.layout.hosts, *(host for host, _ in now.layout.offered)}) == 1:
            return
        try:
            if self._runner.silent_hosts.look(runtime, now.layout.hosts) and isinstance(runtime, KnowsHosts):
                runtime.cancel()
        except Exception as error:  # noqa: BLE001 - the command ends by its own time-out
            self._failed(error)

    def _copy_trouble(self) -> str | None:
        """Return the reason why the copy of a checkpoint makes no progress; None if it does."""
        runtime = self._runner.running
        found = runtime.copy_trouble() if isinstance(runtime, TellsCopyTrouble) else None
        runner = self._runner
        return found or runner.published.trouble or runner.behind.trouble or runner.standbys.trouble

    def _waits(self, now: Snapshot) -> tuple[Waiting, ...]:
        """Return the inputs that wait, as any handle reports them, and the pipeline itself if it waits.

        Each has the earliest known beginning of its wait.
        """
        found: dict[str, Waiting] = {}
        waits = list(self._others())
        for each in (self._inputs, self._own):
            waits += each.waits() if isinstance(each, TellsWaits) else ()
        for wait in waits:
            before = found.get(wait.table)
            if before is None or wait.since_s < before.since_s:
                found[wait.table] = wait
        return (*found.values(), *(() if now.away is None else (now.away,)))

    def _since(self, found: list[Alarm]) -> list[Alarm]:
        """Return the alarms, each with the time when it was first raised."""
        return [
            replace(alarm, since_s=min(alarm.since_s, before.since_s))
            if (before := self._reported.get((alarm.kind, alarm.about))) is not None
            else alarm
            for alarm in found
        ]

    def _tell(self, found: list[Alarm]) -> None:
        """Notify the observers of new alarms, and of alarms that are over."""
        fresh = {(alarm.kind, alarm.about): alarm for alarm in found}
        for key, alarm in fresh.items():
            if key not in self._reported:
                self._note(AlarmRaised(kind=alarm.kind, about=alarm.about, text=alarm.text))
        for key, alarm in self._reported.items():
            if key not in fresh:
                self._note(AlarmOver(kind=alarm.kind, about=alarm.about))
        self._reported = fresh

    def _look_at_inputs(self) -> None:
        """Read the end offsets of the inputs; an input that does not respond keeps its last known end."""
        try:
            if self._own is None and self._own_input is not None:
                self._own = self._own_input()
            ends = (self._own or self._inputs).ends()
        except Exception as error:  # noqa: BLE001 - the event loop gets this error too, and the machine judges it
            self._failed(error)
        else:
            self._failure = None
            self.health = replace(self.health, ends={**self.health.ends, **ends})

    def _failed(self, error: Exception) -> None:
        """Report an error once; repeat it only after another error or a success."""
        story = f"{type(error).__name__}: {error}"
        if story != self._failure:
            self._failure = story
            self._note(WatchFailed(error=story))


def unread_rows(health: Health, processed: Positions) -> dict[str, int]:
    """Return for each table how many rows no step has read, by the last look at the inputs."""
    rows: dict[str, int] = {}
    for (table, partition), end in health.ends.items():
        rows[table] = rows.get(table, 0) + max(0, end - processed.get((table, partition), 0))
    return rows


def is_ready(now: Snapshot, health: Health) -> bool:
    """Return True if the service takes steps and no serious alarm is raised."""
    return now.state in TAKING and not now.ended and not any(alarm.kind in NOT_READY for alarm in health.alarms)

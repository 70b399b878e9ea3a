"""A thread that looks at a service once a second, whatever the event loop's thread waits for.

So a step that hangs, a recovery that does not end, an input whose broker is away and a clock that is ahead show within seconds,
by their names; and what waits in the inputs is told by the inputs, not by the last step.

Left out: deciding anything (`decisions.machine`), and what is wrong with what (`decisions.alarms`).
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
from dbsp.runtime.runtime import TellsAwaited

LOOK_EVERY_S = 1.0
CLOSE_S = 5.0
REST_BY_LOOK = 4
"""A look at many partitions takes long: between two looks lies so many times what one took."""
NOT_TAKING = ("Starting", "Recovering", "Replaying")
"""States of the start and of a rollback."""
TAKING = frozenset({"Running", "Paused", "Checkpointing", "WarmingUp", "Cancelling"})
"""States in which steps are taken, or could be, but for moments."""
ASK_WORKERS_S = 3.0
"""After how many seconds of a step the runtime is asked who has not answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """What the last look found: alarms, inputs that wait, what is being done and who has not answered, where inputs end."""

    alarms: tuple[Alarm, ...] = ()
    waits: tuple[Waiting, ...] = ()
    doing: Doing | None = None
    doing_s: float = 0.0
    awaited: tuple[int, ...] = ()
    hosts_away: tuple[str, ...] = ()
    ends: Positions = field(default_factory=dict)
    clock_ahead_s: float = 0.0


class Reloads(Protocol):
    """Something that is read from files again when they change; `what` names it, `refused` says why the files are not used."""

    what: str
    refused: str | None

    def look(self) -> bool:
        """Read the files again if they have changed; return whether they are used from now on."""
        ...


class Watch:
    """Looks at one service. `health` may be read from any thread."""

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
        """Look at nothing before `look` or `start`.

        `own_input` opens a handle of the watch's own, where the service's may not be asked by two threads or may hang;
        `others` tells which inputs wait that have threads of their own. `shows_clock` tells whether a view depends on `now()`.
        """
        self.health = Health()
        self._live_status, self._runner, self._clock, self._inputs = live_status, runner, clock, inputs
        self._note, self._own_input, self._others, self._shows_clock = note, own_input, others, shows_clock
        self._own: InputLog | None = None
        self._pace, self._paced = Pace(), -1
        self._unsettled_s: float | None = None
        self._reported: dict[tuple[str, str], Alarm] = {}
        self._failure: str | None = None
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None
        self._reloads: tuple[Reloads, ...] = ()

    def reload(self, reloads: Reloads) -> None:
        """Look at one more thing that is read from files."""
        self._reloads = (*self._reloads, reloads)

    def start(self) -> None:
        """Begin to look."""
        self._thread = threading.Thread(target=self._run, name="dbsp-watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End, and close the handle on the input; a look that waits for a broker is left to itself."""
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
        """Look once; what was found."""
        now, now_s = self._live_status.now, self._clock.monotonic_s()
        doing = self._runner.doing
        running_s = 0.0 if doing is None else now_s - doing.since_s
        awaited, hosts_away = self._workers(doing, running_s)
        waits = self._waits(now)
        seen = Looked(
            now_s=now_s, now_unix_s=self._clock.wall_us() / 1e6, state=now.state, doing=doing, slowest_s=self._slowest(now),
            unsettled_s=self._unsettled(now, now_s), last_error=now.last_error,
            halted=None if now.halt is None else now.halt.message, ended=now.ended, waits=waits, awaited=awaited,
            hosts_away=hosts_away, clock_ahead_s=self._runner.clock_ahead_s if self._shows_clock else 0.0,
            refused=self._reloaded(),
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
        """Read again what has changed; return what changed and is not used, and why."""
        for each in self._reloads:
            if each.look():
                self._note(FileReloaded(what=each.what))
        return [(each.what, each.refused) for each in self._reloads if each.refused is not None]

    def _slowest(self, now: Snapshot) -> float:
        """How long the slowest of the last steps took."""
        report = now.last_report
        if report is not None and report.step != self._paced:
            self._paced = report.step
            self._pace.add(report.seconds)
        return self._pace.slowest_s

    def _unsettled(self, now: Snapshot, now_s: float) -> float | None:
        """Since when no step can be taken; a checkpoint or a rescale under way is none of that."""
        if now.state not in NOT_TAKING:
            self._unsettled_s = None
        elif self._unsettled_s is None:
            self._unsettled_s = now_s
        return self._unsettled_s

    def _workers(self, doing: Doing | None, running_s: float) -> tuple[Sequence[int], Sequence[str]]:
        """The workers that have not answered, and hosts that do not answer at all, of a step that takes its time."""
        runtime = self._runner.running
        if doing is None or doing.step is None or running_s < ASK_WORKERS_S or not isinstance(runtime, TellsAwaited):
            return (), ()
        try:
            return runtime.awaited(), runtime.hosts_away()
        except Exception as error:  # noqa: BLE001 - it is a help, and must not stand in the way of the alarm
            self._failed(error)
            return (), ()

    def _waits(self, now: Snapshot) -> tuple[Waiting, ...]:
        """The inputs that wait, as any handle on them tells, and the pipeline itself, if it waits; each since its beginning."""
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
        """The alarms, each since it was first there."""
        return [
            replace(alarm, since_s=min(alarm.since_s, before.since_s))
            if (before := self._reported.get((alarm.kind, alarm.about))) is not None
            else alarm
            for alarm in found
        ]

    def _tell(self, found: list[Alarm]) -> None:
        """Put into the log which alarms there are from now on, and which are over."""
        fresh = {(alarm.kind, alarm.about): alarm for alarm in found}
        for key, alarm in fresh.items():
            if key not in self._reported:
                self._note(AlarmRaised(kind=alarm.kind, about=alarm.about, text=alarm.text))
        for key, alarm in self._reported.items():
            if key not in fresh:
                self._note(AlarmOver(kind=alarm.kind, about=alarm.about))
        self._reported = fresh

    def _look_at_inputs(self) -> None:
        """Ask where the inputs end; what does not answer keeps its last end."""
        try:
            if self._own is None and self._own_input is not None:
                self._own = self._own_input()
            ends = (self._own or self._inputs).ends()
        except Exception as error:  # noqa: BLE001 - the event loop meets it too, and the machine judges it
            self._failed(error)
        else:
            self._failure = None
            self.health = replace(self.health, ends={**self.health.ends, **ends})

    def _failed(self, error: Exception) -> None:
        """Put an error into the log, once until it is another one."""
        story = f"{type(error).__name__}: {error}"
        if story != self._failure:
            self._failure = story
            self._note(WatchFailed(error=story))


def unread_rows(health: Health, processed: Positions) -> dict[str, int]:
    """How many rows of each table no step has taken, as far as the last look at the inputs tells."""
    rows: dict[str, int] = {}
    for (table, partition), end in health.ends.items():
        rows[table] = rows.get(table, 0) + max(0, end - processed.get((table, partition), 0))
    return rows


def is_ready(now: Snapshot, health: Health) -> bool:
    """Return whether the service takes steps and answers."""
    return now.state in TAKING and not now.ended and not any(alarm.kind in NOT_READY for alarm in health.alarms)

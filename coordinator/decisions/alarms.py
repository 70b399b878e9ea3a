"""Derive the alarms of a service, by a pure function of the observed condition of its parts.

An alarm has a kind, a cause, and the time at which the cause began. It ends when its cause ends. No decision of the
machine depends on alarms. Module `running.watch` observes the parts and reports the alarms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from dbsp.logs import Waiting

STEP_SLOW, COMMAND_SLOW, RECOVERING, HALTED, INPUT_WAITS, CLOCK_AHEAD, NOT_RELOADED, COPIES_AWAY, ENDED = (
    "step-slow", "command-slow", "recovering", "halted", "input-waits", "clock-ahead", "not-reloaded", "copies-away",
    "ended",
)  # fmt: skip
KINDS = (STEP_SLOW, COMMAND_SLOW, RECOVERING, HALTED, INPUT_WAITS, CLOCK_AHEAD, NOT_RELOADED, COPIES_AWAY, ENDED)
NOT_READY = frozenset({STEP_SLOW, COMMAND_SLOW, RECOVERING, HALTED, ENDED})
"""The alarms that mean that the service takes no steps."""
STEP_SLOW_S, SLOWER = 8.0, 4.0
"""A step is slow if it takes longer than 8 s, and longer than 4 times the slowest of the last `STEPS_KEPT` steps."""
COMMAND_SLOW_S = 60.0
RECOVERING_S = 8.0
CLOCK_AHEAD_S = 5.0
STEPS_KEPT = 20
LONG_COMMANDS = frozenset({"RedistributeShards", "AwaitCopy"})
"""Commands whose time grows with the state; another part of the status shows their progress."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Doing:
    """The command that runs now: its name, the step number of a `RunStep`, and its start by the monotonic and the wall clock."""

    command: str
    step: int | None
    since_s: float
    since_unix_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """A condition that is wrong: its kind, its subject, its start (seconds since 1970), and a text for the operator."""

    kind: str
    about: str
    since_s: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """The observed condition of all parts of a service at one moment; the input of `alarms`.

    No step can be taken since `unsettled_s` (monotonic) or `unsettled_unix_s` (wall clock). `awaited` are the workers
    that have not answered, `hosts_away` the hosts of workers that do not answer at all. `clock_ahead_s` is how far
    `now()` is ahead of the wall clock, where a view uses `now()`. `refused` lists the changed files that are not used:
    what each file is for, and why it was refused. `copy_trouble` is why the copy of a checkpoint waits. With
    `copies_lag` the checkpoint does not wait for it.
    """

    now_s: float
    now_unix_s: float
    state: str
    doing: Doing | None = None
    slowest_s: float = 0.0
    unsettled_s: float | None = None
    last_error: str | None = None
    halted: str | None = None
    ended: bool = False
    waits: Sequence[Waiting] = ()
    awaited: Sequence[int] | None = None
    hosts_away: Sequence[str] = ()
    clock_ahead_s: float = 0.0
    refused: Sequence[tuple[str, str]] = ()
    copy_trouble: str | None = None
    copies_lag: bool = False


@dataclass(slots=True)
class Pace:
    """The durations of the last `STEPS_KEPT` steps, in seconds."""

    seconds: list[float] = field(default_factory=list)

    def add(self, seconds: float) -> None:
        """Add the duration of a step, and drop the oldest one beyond `STEPS_KEPT`."""
        self.seconds = [*self.seconds[1 - STEPS_KEPT :], seconds]

    @property
    def slowest_s(self) -> float:
        """Return the duration of the slowest of the last steps, in seconds; 0 before the first step."""
        return max(self.seconds, default=0.0)


_WAITS = "steps go on, but the checkpoint waits for its copies"


def alarms(seen: Looked) -> list[Alarm]:
    """Return all alarms, the most serious first."""
    found = [*_command(seen), *_state(seen)]
    found += [
        Alarm(kind=INPUT_WAITS, about=wait.table, since_s=wait.since_s, text=waiting_as_text(wait))
        for wait in seen.waits
    ]
    if seen.clock_ahead_s > CLOCK_AHEAD_S:
        text = f"now() is {seen.clock_ahead_s:,.0f} s ahead of the wall clock: views over now() show no newer row until then"
        found.append(Alarm(kind=CLOCK_AHEAD, about="", since_s=seen.now_unix_s, text=text))
    if seen.copy_trouble is not None:
        what = "checkpoints go on, but their copies fall behind" if seen.copies_lag else _WAITS
        text = f"{what}: {seen.copy_trouble}"
        found.append(Alarm(kind=COPIES_AWAY, about="", since_s=seen.now_unix_s, text=text))
    return found + [
        Alarm(
            kind=NOT_RELOADED,
            about=what,
            since_s=seen.now_unix_s,
            text=f"changed files are not used, what was read before stays: {why}",
        )
        for what, why in seen.refused
    ]


def slow_after_s(doing: Doing, slowest_s: float) -> float | None:
    """Return the seconds after which the command counts as slow; None for a command that may take any time."""
    if doing.step is not None:
        return max(STEP_SLOW_S, SLOWER * slowest_s)
    return None if doing.command in LONG_COMMANDS else COMMAND_SLOW_S


def _command(seen: Looked) -> list[Alarm]:
    """Return the alarm of a command that takes longer than usual, as a list of at most one."""
    doing = seen.doing
    limit = None if doing is None else slow_after_s(doing, seen.slowest_s)
    if doing is None or limit is None or seen.now_s - doing.since_s <= limit:
        return []
    what = f"step {doing.step}" if doing.step is not None else doing.command
    text = f"{what} has run for {seen.now_s - doing.since_s:,.0f} s, longer than usual"
    if seen.awaited:
        text += f"; workers that have not answered: {', '.join(map(str, seen.awaited))}"
    if seen.hosts_away:
        text += f"; hosts that do not answer: {', '.join(seen.hosts_away)}"
    kind = STEP_SLOW if doing.step is not None else COMMAND_SLOW
    return [Alarm(kind=kind, about=what, since_s=doing.since_unix_s, text=text)]


def _state(seen: Looked) -> list[Alarm]:
    """Return the alarm of a state in which no step is taken, as a list of at most one."""
    if seen.ended:
        return [Alarm(kind=ENDED, about="", since_s=seen.now_unix_s, text=f"the service has ended: {seen.last_error}")]
    if seen.halted is not None:
        return [Alarm(kind=HALTED, about="", since_s=seen.now_unix_s, text=seen.halted)]
    # a start that replays many steps makes progress: no alarm
    replays = seen.state == "Replaying" and seen.last_error is None
    if seen.unsettled_s is None or replays or seen.now_s - seen.unsettled_s <= RECOVERING_S:
        return []
    text = f"no step can be taken: state={seen.state}"
    if seen.last_error is not None:
        text += f" last_error={seen.last_error}"
    since_s = seen.now_unix_s - (seen.now_s - seen.unsettled_s)
    return [Alarm(kind=RECOVERING, about="", since_s=since_s, text=text)]


def waiting_as_text(wait: Waiting) -> str:
    """Describe an input that waits: its table, its place and the reason.

    **Example**

    >>> waiting_as_text(Waiting(table="orders", place="topic=shop", reason="Kafka does not answer", since_s=0.0))
    'input orders waits: topic=shop: Kafka does not answer'
    """
    return f"input {wait.table} waits: {wait.place}: {wait.reason}"

"""The migration commands of a step record, as text and as values. A command decides a step; it never reports an outcome.

    migrate strategy=icadd phase=begin from=3 to=4
    migrate strategy=icadd phase=enter
    migrate strategy=icadd phase=move budget=1000
    migrate strategy=icadd phase=cancel version=5

`from` and `to` are the versions of logged layouts (F and F'). A step record has at most one such command; all workers
get it at the start of the step. The keys that move follow from the state, in hash order, so a replay moves the same
ones.

Source: docs/concepts/rescale.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from dbsp.distribute import messages
from dbsp.distribute.names import STRATEGIES
from dbsp.errors import DataError
from dbsp.layout import Layout
from dbsp.logs.step_commands import MIGRATE

_HINT = "run the version that wrote it"


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginCommand:
    """Begin to migrate from layout version `old` to `new`: workers determine the keys that move."""

    strategy: str
    old: int
    new: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EnterCommand:
    """Start the phase in which keys move; all keys that move are known before."""

    strategy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveCommand:
    """Move the next keys of every owner, at most `budget` keys each."""

    strategy: str
    budget: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelCommand:
    """Migrate back, to the layout of version `version`."""

    strategy: str
    version: int


MigrateCommand: TypeAlias = BeginCommand | EnterCommand | MoveCommand | CancelCommand

_FORMS: tuple[tuple[str, Callable[[str, tuple[int, ...]], MigrateCommand]], ...] = (
    (r"phase=begin from=(\d+) to=(\d+)", lambda name, n: BeginCommand(strategy=name, old=n[0], new=n[1])),
    (r"phase=enter", lambda name, _: EnterCommand(strategy=name)),
    (r"phase=move budget=(\d+)", lambda name, n: MoveCommand(strategy=name, budget=n[0])),
    (r"phase=cancel version=(\d+)", lambda name, n: CancelCommand(strategy=name, version=n[0])),
)


def to_text(command: MigrateCommand) -> str:
    """Return the command in the form of a step record.

    >>> to_text(MoveCommand(strategy="icadd", budget=1000))
    'migrate strategy=icadd phase=move budget=1000'
    """
    match command:
        case BeginCommand(old=old, new=new):
            rest = f"begin from={old} to={new}"
        case EnterCommand():
            rest = "enter"
        case MoveCommand(budget=budget):
            rest = f"move budget={budget}"
        case CancelCommand(version=version):
            rest = f"cancel version={version}"
    return f"{MIGRATE}strategy={command.strategy} phase={rest}"


def from_text(text: str) -> MigrateCommand:
    """Return the command that a step record's text denotes.

    **Errors** `DataError` for an unknown command, because a step must not run as if the command were absent.

    >>> from_text("migrate strategy=redistribute phase=begin from=3 to=4")
    BeginCommand(strategy='redistribute', old=3, new=4)
    """
    for strategy in STRATEGIES:
        for form, make in _FORMS:
            found = re.fullmatch(f"{MIGRATE}strategy={strategy} {form}", text)
            if found:
                return make(strategy, tuple(map(int, found.groups())))
    raise DataError(f"a step record holds an unknown command: command={text!r}", _HINT)


def migration_of(commands: Iterable[str]) -> MigrateCommand | None:
    """Return the migration command among the commands of a step record, or None.

    **Errors** `DataError` if there are two migration commands, or one that this version does not know.

    >>> migration_of(["skip node=3", "migrate strategy=icadd phase=enter"])
    EnterCommand(strategy='icadd')
    """
    found = [from_text(command) for command in commands if command.startswith(MIGRATE)]
    if len(found) > 1:
        raise DataError(f"a step record holds more than one command to migrate: commands={found}", _HINT)
    return found[0] if found else None


def event_of(command: MigrateCommand, new: Layout) -> messages.Event:
    """Return the event that every worker's distributor gets; `new` is the target layout of a migration that begins."""
    match command:
        case BeginCommand(new=version):
            if new.version != version:
                raise DataError(f"a command names another layout: version={version} layout_version={new.version}")
            return messages.BeginMessage(layout=new)
        case EnterCommand():
            return messages.Enter()
        case MoveCommand(budget=budget):
            return messages.Move(budget=budget)
        case CancelCommand(version=version):
            return messages.Cancel(version=version)

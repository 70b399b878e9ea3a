"""Commands in a step record: decisions to go on without some rows, or to leave them to a later step.

`skip node=12`: in this step the rows that fail at node 12 leave the stream as dead letters. Without the command, the
error policy `stop` ends a step with failing rows with `RowsError`. The command names the node, not the rows. The
record and the state alone decide which rows fail there, so every replay skips the same rows (invariant 3).

`drop {"reason": …, "rows": [[table, partition, offset, payload], …]}`: these input rows end the process that runs the
step. The step does not read them at all. They become dead letters with the payload that the command holds.

`defer [table, partition, offset]`: this step takes no row of this partition from this offset on. The step's ranges are
cut there, so that a later step takes these rows. This command is no decision. The input waits meanwhile, because
the message at the offset cannot be decoded under the settings.

`replay {"table": …, "letters": […], "rows": …}`: the step takes the rows of dead letters, which the command has
(`dbsp.logs.replays`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from dbsp.errors import DataError, RowsError
from dbsp.logs import Range

MIGRATE = "migrate "
"""The prefix of commands that move keys; `dbsp.distribute.commands` refuses those that it does not know."""
BACKFILL = "fill "
"""The prefix of the command of a backfill step; see `dbsp.plan.backfill`."""

REPLAY = "replay "
"""The prefix of the command that has the rows of dead letters; see `dbsp.logs.replays`."""

_PREFIX = "skip node="
_DROP = "drop "
_DEFER = "defer "
ACCEPT_OUTPUT = "accept-output"
"""The command that accepts the new output of a replayed step; a later step emits its difference to the old output."""
DEADLY = "the row ended the process that ran its step: "
"""The prefix of the reason of a dropped row that ended the process."""
WAY_PAST = "correct the settings and start again, or make this message a dead letter: `coordinator skip`"
UNREADABLE = -1
"""The node number of a row that failed before it reached any node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedRow:
    """A row of the input that a step leaves out, with the known part of its content."""

    table: str
    partition: int
    offset: int
    payload: str
    reason: str = ""


def drop_command(rows: Sequence[DroppedRow], reason: str) -> str:
    """Return the command that leaves out these rows.

    >>> drop_command([DroppedRow(table="t", partition=0, offset=5, payload="{}")], "SIGSEGV")
    'drop {"reason": "SIGSEGV", "rows": [["t", 0, 5, "{}"]]}'
    """
    places = [[row.table, row.partition, row.offset, row.payload] for row in rows]
    return _DROP + json.dumps({"reason": reason, "rows": places})


def dropped_rows(commands: Iterable[str]) -> tuple[DroppedRow, ...]:
    """Return the rows that a step with these commands leaves out."""
    found: list[DroppedRow] = []
    for command in commands:
        if command.startswith(_DROP):
            said = json.loads(command.removeprefix(_DROP))
            found += [
                DroppedRow(table=table, partition=partition, offset=offset, payload=payload, reason=said["reason"])
                for table, partition, offset, payload in said["rows"]
            ]
    return tuple(found)


def defer_command(table: str, partition: int, offset: int) -> str:
    """Return the command that leaves a partition's rows from this offset on to a later step.

    >>> defer_command("t", 0, 5)
    'defer ["t", 0, 5]'
    """
    return _DEFER + json.dumps([table, partition, offset])


def deferred(ranges: Sequence[Range], command: str) -> tuple[Range, ...]:
    """Return the ranges that a step still reads under a command; only `defer` shortens them.

    >>> [(r.first, r.last) for r in deferred([Range(table="t", partition=0, first=3, last=9)], 'defer ["t", 0, 5]')]
    [(3, 5)]
    """
    if not command.startswith(_DEFER):
        return tuple(ranges)
    table, partition, offset = json.loads(command.removeprefix(_DEFER))
    cut = (
        replace(each, last=min(each.last, offset)) if (each.table, each.partition) == (table, partition) else each
        for each in ranges
    )
    return tuple(each for each in cut if each.first < each.last)


def is_decided(commands: Sequence[str]) -> bool:
    """Return whether the commands hold a decision about the step: a skip, dropped rows or accepted output."""
    return bool(skipped_nodes(commands) or dropped_rows(commands)) or ACCEPT_OUTPUT in commands


def unreadable(message: str, hint: str | None, row: DroppedRow) -> RowsError:
    """Return the error of a message that cannot be decoded under the settings, such as one with an unknown schema.

    It has the form of a `RowsError`, so that it crosses process boundaries as other failing rows do. `unreadable_row`
    returns the message again.
    """
    place = json.dumps([row.table, row.partition, row.offset])
    return RowsError(message, with_way_past(hint), UNREADABLE, place, 1, ((row.payload, message, 1),))


def with_way_past(hint: str | None) -> str:
    """Return the hint, followed by what a user can do about a message that cannot be decoded under the settings."""
    return WAY_PAST if hint is None else f"{hint}; {WAY_PAST}"


def unreadable_row(error: RowsError) -> DroppedRow | None:
    """Return the message that an error of `unreadable` names; None for any other error."""
    if error.node != UNREADABLE or not error.rows:
        return None
    table, partition, offset = json.loads(error.name)
    return DroppedRow(table=table, partition=partition, offset=offset, payload=error.rows[0][0], reason=error.message)


def without_rows(ranges: Sequence[Range], rows: Sequence[DroppedRow]) -> tuple[Range, ...]:
    """Return the ranges, split into pieces that leave out these rows.

    >>> row = DroppedRow(table="t", partition=0, offset=5, payload="{}")
    >>> [(r.first, r.last) for r in without_rows([Range(table="t", partition=0, first=3, last=9)], [row])]
    [(3, 5), (6, 9)]
    >>> [(r.first, r.last) for r in without_rows([Range(table="t", partition=0, first=5, last=9)], [row])]
    [(6, 9)]
    """
    kept: list[Range] = []
    for range_ in ranges:
        at = range_.first
        holes = {row.offset for row in rows if (row.table, row.partition) == (range_.table, range_.partition)}
        for hole in sorted(offset for offset in holes if range_.first <= offset < range_.last):
            kept.append(replace(range_, first=at, last=hole))
            at = hole + 1
        kept.append(replace(range_, first=at))
    return tuple(piece for piece in kept if piece.first < piece.last) if rows else tuple(ranges)


def skip_command(node: int) -> str:
    """Return the command that skips the failing rows of a plan node.

    >>> skip_command(12)
    'skip node=12'
    """
    return f"{_PREFIX}{node}"


def skipped_nodes(commands: Iterable[str]) -> frozenset[int]:
    """Return the nodes whose failing rows leave the stream in a step with these commands.

    **Errors** `DataError` for a command that this version does not know: running the step without the command would
    give another result.

    >>> sorted(skipped_nodes(["skip node=12", "skip node=3"]))
    [3, 12]
    """
    found = set()
    for command in commands:
        if command.startswith((MIGRATE, BACKFILL, REPLAY, _DROP, _DEFER)) or command == ACCEPT_OUTPUT:
            continue
        number = command.removeprefix(_PREFIX)
        if number == command or not number.isdigit():
            raise DataError(
                f"a step record holds an unknown command: command={command!r}", "run the version that wrote it"
            )
        found.add(int(number))
    return frozenset(found)

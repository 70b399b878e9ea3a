"""The decision to go on without rows that failed, as a command in a step record.

Under the error policy `stop` a step on which rows fail at a node ends with `RowsError`. `skip node=12`, added to the record of
that step, says: in this step the rows that fail at node 12 leave the stream as dead letters. It names the node, not the
rows, because which rows fail there is decided by the record and the state alone: the same at every replay (invariant 3).
"""

from __future__ import annotations

from collections.abc import Iterable

from dbsp.errors import DataError

MIGRATE = "migrate "
"""How commands of another kind begin: see `dbsp.distribute.commands`, which refuses those that it does not know."""
FILL = "fill "
"""How a third kind begins: see `dbsp.plan.filling`."""

_PREFIX = "skip node="


def skip_command(node: int) -> str:
    """The command for a node of the plan.

    >>> skip_command(12)
    'skip node=12'
    """
    return f"{_PREFIX}{node}"


def skipped_nodes(commands: Iterable[str]) -> frozenset[int]:
    """The nodes whose failing rows leave the stream in a step with these commands.

    **Errors** `DataError` for a command that this version does not know: it must not be run as if it were not there.

    >>> sorted(skipped_nodes(["skip node=12", "skip node=3"]))
    [3, 12]
    """
    found = set()
    for command in commands:
        if command.startswith((MIGRATE, FILL)):
            continue
        number = command.removeprefix(_PREFIX)
        if number == command or not number.isdigit():
            raise DataError(
                f"a step record holds an unknown command: command={command!r}", "run the version that wrote it"
            )
        found.add(int(number))
    return frozenset(found)

"""The decision to go on without rows that failed, as a command in a step record.

Under the error policy `stop` a step on which rows fail at a node ends with `RowsError`. `skip node=12`, added to the record of
that step, says: in this step the rows that fail at node 12 leave the stream as dead letters. It names the node, not the
rows, because which rows fail there is decided by the record and the state alone: the same at every replay (invariant 3).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dbsp.errors import DataError, RowsError

MIGRATE = "migrate "
"""How commands of another kind begin: see `dbsp.distribute.commands`, which refuses those that it does not know."""

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
        if command.startswith(MIGRATE):
            continue
        number = command.removeprefix(_PREFIX)
        if number == command or not number.isdigit():
            raise DataError(
                f"a step record holds an unknown command: command={command!r}", "run the version that wrote it"
            )
        found.add(int(number))
    return frozenset(found)


def merged(errors: Sequence[RowsError]) -> RowsError:
    """What failed on several workers in one segment, as one error: that of the first node at which rows failed.

    All workers run the nodes in one order, so those that went further had no failing row at that node.

    >>> first = RowsError("a row failed", None, 3, "apply#3", 1, (("r", "why", 1),))
    >>> other = RowsError("a row failed", None, 7, "apply#7", 5, ())
    >>> merged([other, first, first]).count
    2
    """
    node = min(error.node for error in errors)
    here = [error for error in errors if error.node == node]
    rows = tuple(sorted(row for error in here for row in error.rows))
    count = sum(error.count for error in here)
    return RowsError(here[0].message, here[0].hint, node, here[0].name, count, rows)

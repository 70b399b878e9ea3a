"""Whether rows that failed end a step: judged over all workers, so that the answer is the same for any number of them.

Under the error policy `stop` a step on which rows fail must not take effect. What failed in a segment travels to every worker
with the next exchange, and each of them, before it does anything else, adds it up: a row that comes through one worker and
goes through another in the same step is no reason to stop, as it is none where one worker sees both. The planner sees to it
that an exchange follows every segment with nodes that may fail, so that no output of a refused step is ever written.

Law: of equal rows at one node, the sum of the weights decides; the node is the first in the plan's order at which rows came.
A row that only goes is no reason: it failed when it came, so it was decided about then. Source: design record 0007.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from dbsp.errors import RowsError

ROWS_NAMED_MAX = 100
HINT = "mend the row, decide with `coordinator skip`, or choose error_policy dead-letter or null"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFailure:
    """What failed on one worker at a node, not yet judged: the node, where that is, the row as it saw it, and why."""

    node: int
    name: str
    place: str
    payload: str
    reason: str
    weight: int


def judge(failed: Iterable[NodeFailure]) -> None:
    """Refuse the step if rows came that failed, naming those of the first node at which some did.

    **Errors** `RowsError`, the same on all workers.

    >>> row = NodeFailure(node=3, name="apply#3", place="node=apply#3 step=0", payload="{}", reason="no", weight=1)
    >>> judge([row, replace(row, weight=-1)])
    >>> judge([row, replace(row, weight=-2), replace(row, node=5, weight=2)])
    Traceback (most recent call last):
    ...
    dbsp.errors.RowsError: a row failed: reason=no row={} node=apply#3 step=0; mend the row, ...
    """
    sums: dict[tuple[int, str, str, str], NodeFailure] = {}
    for row in failed:
        key = row.node, row.name, row.payload, row.reason
        sums[key] = replace(row, weight=row.weight + (sums[key].weight if key in sums else 0))
    came = sorted((key for key, row in sums.items() if row.weight > 0), key=lambda key: (key[0], key[2:], key[1]))
    here = [sums[key] for key in came if key[0] == came[0][0]]
    if not here:
        return
    first, more = here[0], len(here) - 1
    others = f" more_rows={more}" if more else ""
    message = f"a row failed: reason={first.reason} row={first.payload}{others} {first.place}"
    rows = tuple((row.payload, row.reason, row.weight) for row in here[:ROWS_NAMED_MAX])
    raise RowsError(message, HINT, first.node, first.name, len(here), rows)

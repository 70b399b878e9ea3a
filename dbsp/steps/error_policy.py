"""The error policy `stop`: decide over all workers whether failed rows end a step, the same for any number of workers.

A step on which rows fail must not take effect. The next exchange carries the failures of a segment to every worker,
and each worker sums them up before it does anything else. A row may be inserted through one worker and deleted through
another in the same step. Such a row does not end the step, just as with a single worker that sees both changes. The
planner puts an exchange after every segment with nodes that may fail. So no output of a refused step is written.

Law: for equal rows at one node, the sum of the weights decides. The named node is the first in the plan's order with a
positive sum. A row that is only deleted does not end the step: it failed when it was inserted, and a decision was made
then. Source: design record 0007.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from dbsp.errors import RowsError

ROWS_NAMED_MAX = 100
HINT = "fix the row, decide with `coordinator skip`, or choose error_policy dead-letter or null"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFailure:
    """A failed row at a node of one worker, before `judge`: the node, its place in errors, the row as JSON, and the reason."""

    node: int
    name: str
    place: str
    payload: str
    reason: str
    weight: int


def judge(failed: Iterable[NodeFailure]) -> None:
    """Raise `RowsError` if inserted rows failed; the error has the failed rows of the first node with such rows.

    **Errors** `RowsError`, the same on all workers.

    >>> row = NodeFailure(node=3, name="apply#3", place="node=apply#3 step=0", payload="{}", reason="no", weight=1)
    >>> judge([row, replace(row, weight=-1)])
    >>> judge([row, replace(row, weight=-2), replace(row, node=5, weight=2)])
    Traceback (most recent call last):
    ...
    dbsp.errors.RowsError: a row failed: reason=no row={} node=apply#3 step=0; fix the row, ...
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

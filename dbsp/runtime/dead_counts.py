"""The number of rows of a step that became dead letters, by place and kind of reason.

The reasons themselves are texts without a bound; the kinds are three, so that metrics can have them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from dbsp.logs import DeadLetter
from dbsp.steps.timing import LATE

LATE_ROWS, OF_INPUT, OF_OPERATOR = "late", "input", "operator"
"""A row below a waterline; a row that could not be read or was skipped; a row on which a node of the plan failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadCount:
    """The dead rows of one table or node in one step, of one kind."""

    origin: str
    kind: str
    rows: int


def counted(letters: Iterable[DeadLetter]) -> tuple[DeadCount, ...]:
    """Return how many rows these letters stand for; a retracted row counts as none, and a late delete as one.

    **Example**

    >>> def letter(reason: str, offset: int, weight: int = 1) -> DeadLetter:
    ...     return DeadLetter(step=0, origin="t", partition=0, offset=offset, reason=reason, payload="", weight=weight)
    >>> [(each.kind, each.rows) for each in counted([letter("late: 1", 4, -1), letter("no JSON", 5), letter("x", -1, -1)])]
    [('input', 1), ('late', 1)]
    """
    found: Counter[tuple[str, str]] = Counter()
    for letter in letters:
        late = letter.reason.startswith(LATE)
        kind = LATE_ROWS if late else OF_INPUT if letter.offset >= 0 else OF_OPERATOR
        rows = abs(letter.weight) if late else max(letter.weight, 0)
        if rows:
            found[letter.origin, kind] += rows
    return tuple(DeadCount(origin=origin, kind=kind, rows=rows) for (origin, kind), rows in sorted(found.items()))

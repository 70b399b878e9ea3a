"""The number of rows of a step that became dead letters, by origin and kind of reason.

Metrics need labels with few values. Reasons are texts of any number, so they are reduced to three kinds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from dbsp.logs import DeadLetter
from dbsp.steps.timing import LATE

LATE_ROWS, OF_INPUT, OF_OPERATOR = "late", "input", "operator"
"""The kinds: a row below a waterline; an input row that could not be read or was skipped; a row that failed at an operator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadCount:
    """The dead rows of one table or node in one step, of one kind."""

    origin: str
    kind: str
    rows: int


def counted(letters: Iterable[DeadLetter]) -> tuple[DeadCount, ...]:
    """Return the number of dead rows of these letters, by origin and kind.

    A failed retraction counts as no row, because the row's insertion was counted. A late delete counts as one row.

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

"""Comparison of two collections of rows as bags: the rows that one has too many, and those that it lacks."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from dbsp.runtime.bags import bag
from dbsp.runtime.rowset import Rowset

SHOWN = 10


@dataclass(frozen=True, slots=True)
class Difference:
    """Rows that are present but not expected, and rows that are expected but absent, each with a count."""

    extra: tuple[tuple[str, int], ...]
    missing: tuple[tuple[str, int], ...]

    def __bool__(self) -> bool:
        """Return whether the collections differ."""
        return bool(self.extra or self.missing)

    def lines(self) -> list[str]:
        """Return the differing rows as text, a row a line, at most `SHOWN` of each kind: `+` is too many, `-` is missing."""
        shown = [
            f"{sign} {row}" + (f"  ({count} times)" if count > 1 else "")
            for sign, rows in (("-", self.missing), ("+", self.extra))
            for row, count in rows[:SHOWN]
        ]
        more = sum(max(len(rows) - SHOWN, 0) for rows in (self.missing, self.extra))
        return [*shown, *([f"… and {more} more"] if more else [])]


def difference(found: Any, wanted: Any) -> Difference:
    """Compare rows as bags, whatever their order.

    **Shape** Each argument is a `Rowset`, an Arrow table or data frame, or an iterable of dicts. Floats agree in 12
    digits.

    **Example**

    >>> difference([{"k": 1, "n": 2}], [{"k": 1, "n": 3}]).lines()
    ["- {'k': 1, 'n': 3}", "+ {'k': 1, 'n': 2}"]
    """
    here, there = (bag(rows.batch if isinstance(rows, Rowset) else rows) for rows in (found, wanted))
    return Difference(_sorted(here - there), _sorted(there - here))


def _sorted(rows: Counter[Any]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((str(dict(row)), count) for row, count in rows.items()))

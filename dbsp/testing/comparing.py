"""Two collections of rows, compared as bags: what one has too many, and what it lacks."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dbsp.runtime.rowset import Rowset

SHOWN = 10
DIGITS = 12
"""Significant digits in which floats must agree: sums in another order differ in the last ones."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Rows that are there and should not be, and rows that should be there and are not, each with how often."""

    extra: tuple[tuple[str, int], ...]
    missing: tuple[tuple[str, int], ...]

    def __bool__(self) -> bool:
        """Whether there is one."""
        return bool(self.extra or self.missing)

    def lines(self) -> list[str]:
        """Return what differs, a row a line: `+` is too many, `-` is missing."""
        shown = [
            f"{sign} {row}" + (f"  ({count} times)" if count > 1 else "")
            for sign, rows in (("-", self.missing), ("+", self.extra))
            for row, count in rows[:SHOWN]
        ]
        more = sum(max(len(rows) - SHOWN, 0) for rows in (self.missing, self.extra))
        return [*shown, *([f"… and {more} more"] if more else [])]


def difference(found: Any, wanted: Any) -> Difference:
    """Compare rows as bags, whatever their order.

    **Shape** each a `Rowset`, an Arrow table or data frame, or an iterable of dicts. Floats agree in 12 digits.

    **Example**

    >>> difference([{"k": 1, "n": 2}], [{"k": 1, "n": 3}]).lines()
    ["- {'k': 1, 'n': 3}", "+ {'k': 1, 'n': 2}"]
    """
    here, there = bag(found), bag(wanted)
    return Difference(_told(here - there), _told(there - here))


def bag(rows: Any) -> Counter[Any]:
    """Return how often each row is there, by a form of it that compares."""
    if isinstance(rows, Counter):
        return rows
    if isinstance(rows, Rowset):
        names = rows.batch.schema.names
        return Counter({_row(dict(zip(names, row, strict=True))): weight for row, weight in rows.batch.to_rows()})
    return Counter(_row(row) for row in _dicts(rows))


def _dicts(rows: Any) -> Iterable[Mapping[str, Any]]:
    if hasattr(rows, "to_pylist"):
        listed: Iterable[Mapping[str, Any]] = rows.to_pylist()
        return listed
    if hasattr(rows, "__arrow_c_stream__"):
        import pyarrow as pa  # noqa: PLC0415 - rows that are dicts do not need it

        return _dicts(pa.table(rows))
    return list(rows)


def _row(row: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple((name, _value(value)) for name, value in sorted(row.items()))


def _value(value: Any) -> Any:
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else float(f"{value:.{DIGITS}g}") + 0.0
    if isinstance(value, list):
        return tuple(map(_value, value))
    return _row(value) if isinstance(value, Mapping) else value


def _told(rows: Counter[Any]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((str(dict(row)), count) for row, count in rows.items()))

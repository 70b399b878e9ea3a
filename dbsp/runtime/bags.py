"""Collections of rows compared as Z-sets: by the number of times each row occurs, whatever their order and form."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from dbsp.zset.batch import Batch

DIGITS = 12
"""Number of significant digits in which floats must agree; sums in another order differ in the last digits."""


def bag(rows: Any) -> Counter[Any]:
    """Return the weight of each row, by a form of the row that can be compared."""
    if isinstance(rows, Counter):
        return rows
    if isinstance(rows, Batch):
        names = rows.schema.names
        return Counter({_row(dict(zip(names, row, strict=True))): weight for row, weight in rows.to_rows()})
    return Counter(_row(row) for row in _dicts(rows))


def _dicts(rows: Any) -> Iterable[Mapping[str, Any]]:
    if hasattr(rows, "to_pylist"):
        listed: Iterable[Mapping[str, Any]] = rows.to_pylist()
        return listed
    if hasattr(rows, "__arrow_c_stream__"):
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

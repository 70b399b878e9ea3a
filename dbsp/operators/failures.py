"""Failing rows: how the error policy applies to whole columns.

A column is computed for all rows at once. Only if that fails, bisection finds the failing rows (`dbsp.expr.bisection`), so a
step without failures pays nothing. Under `dead-letter` the row leaves the stream and is recorded. Under `null` the value becomes
null if the column allows nulls; otherwise the row is treated as under `dead-letter`. `stop` acts like `dead-letter` here: all
workers together end the step if any row was recorded (`dbsp.steps.error_policy`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dbsp.expr.rows import ColumnReader
from dbsp.operators.operator import StepContext

Positions = npt.NDArray[np.int64]


def report(
    context: StepContext, rows: ColumnReader, names: tuple[str, ...], weights: Positions, reasons: Mapping[int, str]
) -> None:
    """Record failed rows with all their columns; `reasons` maps row indices to error texts."""
    if not reasons:
        return
    if context.whole is not None:
        rows = context.whole()
    failed = sorted(reasons)
    index = pa.array(failed)
    values = {name: rows.column(name).take(index).to_pylist() for name in names}
    for place, row in enumerate(failed):
        payload = payload_of({name: column[place] for name, column in values.items()})
        context.fail(payload, reasons[row], int(weights[row]))


def payload_of(row: Mapping[str, Any]) -> str:
    """Return a row as the JSON text that dead letters contain."""
    return json.dumps(row, default=_plain)


def _plain(value: Any) -> str:
    """Return the text of a value that JSON cannot represent: hexadecimal for bytes, else `str`."""
    return value.hex() if isinstance(value, bytes) else str(value)

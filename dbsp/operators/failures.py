"""What happens to rows on which an evaluation fails: the error policy, on whole columns.

A column is computed for all rows at once; only when that fails is the range halved until the failing rows are known
(`dbsp.expr.bisection`), so a step without failures pays nothing. `dead-letter`: the row leaves the stream and is noted; `null`:
the value becomes null, where the column allows that (else as `dead-letter`). `stop` is as `dead-letter` here: all
workers together end the step when rows were noted (`dbsp.steps.error_policy`).
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
    """Note failed rows, with all their columns."""
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
    """A row as dead letters hold it."""
    return json.dumps(row, default=_plain)


def _plain(value: Any) -> str:
    """A value JSON has no form for: bytes in hexadecimal, else as Python writes it."""
    return value.hex() if isinstance(value, bytes) else str(value)

"""What happens to rows on which an evaluation fails: the error policy, on whole columns.

A column is computed for all rows at once; only when that fails is the range halved until the failing rows are known
(`dbsp.expr.halving`), so a step without failures pays nothing. `dead-letter`: the row leaves the stream and is noted; `null`:
the value becomes null, where the column allows that (else as `dead-letter`); `stop`: the step fails.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dbsp.errors import DataError
from dbsp.expr.expression import Rows
from dbsp.operators.operator import StepContext

Positions = npt.NDArray[np.int64]
STOP_HINT = "mend the row, or choose error_policy dead-letter or null"


def report(
    context: StepContext, rows: Rows, names: tuple[str, ...], weights: Positions, reasons: Mapping[int, str]
) -> None:
    """Note failed rows as dead letters, or stop the step if the policy says so."""
    if not reasons:
        return
    failed = sorted(reasons)
    index = pa.array(failed)
    values = {name: rows.column(name).take(index).to_pylist() for name in names}
    for place, row in enumerate(failed):
        payload = json.dumps({name: column[place] for name, column in values.items()}, default=_plain)
        if context.error_policy == "stop":
            raise DataError(f"a row failed: reason={reasons[row]} row={payload}", STOP_HINT)
        context.fail(payload, reasons[row], int(weights[row]))


def _plain(value: Any) -> str:
    """A value JSON has no form for: bytes in hexadecimal, else as Python writes it."""
    return value.hex() if isinstance(value, bytes) else str(value)

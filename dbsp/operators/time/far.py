"""Handling of rows whose windows exceed the calendar: they fail by the error policy, like a computed date out of range."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dbsp.operators.failures import report
from dbsp.operators.operator import StepContext
from dbsp.zset.batch import Batch
from dbsp.zset.calendar import MICROS, OUTSIDE

Mask = npt.NDArray[np.bool_]
Micros = npt.NDArray[np.int64]


def windowed(
    context: StepContext, batch: Batch, timed: Mask, least: Micros, most: Micros, *, nulls: bool = True
) -> tuple[Batch, Mask]:
    """Return the rows that stay in the stream, and the mask of the returned rows that have windows.

    A `timed` row has windows if its times, from `least` to `most`, are within the calendar. Other timed rows leave the stream
    and are reported. Under the policy `null` they stay without windows, if windows may be null.
    """
    first, last = MICROS
    far = timed & ((least < first) | (most > last))
    if not far.any():
        return batch, timed
    if nulls and context.error_policy == "null":
        return batch, timed & ~far
    report(context, batch, batch.schema.names, batch.weight, dict.fromkeys(np.flatnonzero(far).tolist(), OUTSIDE))
    return batch.filter(~far), timed[~far]

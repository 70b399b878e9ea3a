"""Rows whose windows would reach beyond the calendar: they fail by the error policy, as a computed day does there."""

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
    """The rows, and which of them have windows: the `timed` ones, all of whose days, from `least` to `most`, are of the calendar.

    The others leave the stream and are noted; under the policy `null` they stay, and have none, if windows may be null.
    """
    first, last = MICROS
    far = timed & ((least < first) | (most > last))
    if not far.any():
        return batch, timed
    if nulls and context.error_policy == "null":
        return batch, timed & ~far
    report(context, batch, batch.schema.names, batch.weight, dict.fromkeys(np.flatnonzero(far).tolist(), OUTSIDE))
    return batch.filter(~far), timed[~far]

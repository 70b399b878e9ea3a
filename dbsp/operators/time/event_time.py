"""Event time of a table: how the time of a watermark is read from rows as they were pushed, before any exchange.

The watermark's own node may stand behind filters and projections, and for a table with a primary key behind an exchange, where
nobody knows any more which partition a row came from. So the time is computed at the source, per partition: by the same filters
and projections, of which only what the time needs is kept.

**Law** the latest time of some rows is the maximum over the parts they are cut into. Rows that fail in the chain do not count;
their failures are noted where the chain itself runs.

Source: design record 0041.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc

from dbsp.operators.apply import Apply
from dbsp.operators.operator import StepContext
from dbsp.zset.batch import Batch
from dbsp.zset.schema import INT64


@dataclass(frozen=True, slots=True, kw_only=True)
class EventTime:
    """Reads the time `column` of rows of `table`; `chain` makes the column out of the table's, None where it is one of them."""

    table: str
    column: str
    lateness_us: int
    chain: Apply | None = None

    def waterline(self, rows: Batch, context: StepContext) -> int | None:
        """Return the latest time of the rows with a positive weight, minus the lateness; None if no such row has a time."""
        made = rows if self.chain is None else self.chain.applied(context, rows)
        times = made.column(self.column)
        counts = np.asarray(pc.is_valid(times)) & (made.weight > 0)
        if not counts.any():
            return None
        return int(np.asarray(times.cast(INT64).fill_null(0))[counts].max()) - self.lateness_us

"""Event time of a table: how a watermark's time is read from rows as they were pushed, before any exchange.

The watermark's own node may follow filters and projections. For a table with a primary key it follows an exchange, after
which the input partition of a row is unknown. So the time is computed at the source, per partition. The computation applies the
same filters and projections, reduced to the columns that the time needs.

**Law** The latest time of some rows is the maximum over any partition of the rows. Rows that fail in the chain do not count;
their failures are reported by the chain's own node.

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
    """Reader of the time `column` from rows of `table`.

    `chain` computes the column from the table's columns; None if the column belongs to the table.
    """

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

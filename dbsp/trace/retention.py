"""Floors: rows of a trace below a bound are needed no more, and may be dropped when they are met.

Whoever gives a retention bound knows that no later step reads a row below it: its window is closed. Dropping is physical only:
which rows are still there below a retention bound is nobody's business, and depends on how runs were merged.

Source: design record 0006.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dbsp.zset.batch import Batch
from dbsp.zset.order import order_codes
from dbsp.zset.schema import OrderBy


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionBound:
    """Rows whose value in `column` has an order code below `code` are needed no more; a null is above every retention bound."""

    column: str
    code: int

    def below(self, values: pa.Array) -> npt.NDArray[np.bool_]:
        """Which rows are needed no more, by their values in `column`."""
        return np.asarray(order_codes(values, OrderBy(self.column)) < np.uint64(self.code))


def retained(batch: Batch, retention: RetentionBound | None) -> Batch:
    """An arranged batch without what lies below the retention bound.

    **Law** a filter: what is left is arranged, too.

    **Example**

    >>> from dbsp.zset.batch import arrange
    >>> from dbsp.zset.schema import INT64, Arrangement, Schema
    >>> schema = Schema.of({"k": INT64})
    >>> batch = arrange(Batch.from_rows(schema, [((1,), 1), ((5,), 1)]), Arrangement(schema=schema, key=("k",)))
    >>> retained(batch, RetentionBound(column="k", code=(1 << 63) + 3)).to_rows()
    [((5,), 1)]
    """
    if retention is None or len(batch) == 0:
        return batch
    return batch.filter(~retention.below(batch.column(retention.column)))

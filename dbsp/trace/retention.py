"""Drop the rows of a trace below a retention bound when a merge reads them.

The operator that sets a retention bound knows that no later step reads a row below it, because the row's window is
closed. Dropping is physical only. Which rows below the bound still exist depends on past merges, and no reader may
rely on it.

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
    """Bound below which rows are no longer needed: an order code of the values in `column`.

    Nulls are above every retention bound.
    """

    column: str
    code: int

    def below(self, values: pa.Array) -> npt.NDArray[np.bool_]:
        """Return the mask of the values in `column` that are below the bound."""
        return np.asarray(order_codes(values, OrderBy(self.column)) < np.uint64(self.code))


def retained(batch: Batch, retention: RetentionBound | None) -> Batch:
    """Return an arranged batch without the rows below the retention bound.

    **Law** a filter: the remaining rows stay arranged.

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

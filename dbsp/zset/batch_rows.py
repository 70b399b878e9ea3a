"""Compare and sort the rows of batches exactly, by all their columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dbsp.zset.arrays import Positions
from dbsp.zset.batch import Batch
from dbsp.zset.equality import equal_columns
from dbsp.zset.order import sort_named
from dbsp.zset.schema import OrderBy


def equal_rows(
    left: Batch, left_rows: Positions, right: Batch, right_rows: Positions, columns: Sequence[str] | None = None
) -> NDArray[np.bool_]:
    """Return the mask of the pairs of rows of two batches that agree in the named columns (None: in all).

    **Shape** Two batches with these columns, of the same types; two int64 arrays of m positions; m booleans out.

    **Example**

    >>> import numpy as np
    >>> from dbsp.zset.batch import Batch
    >>> from dbsp.zset.schema import INT64, Schema
    >>> batch = Batch.from_rows(Schema.of({"a": INT64}), [((1,), 1), ((2,), -1), ((1,), -1)])
    >>> equal_rows(batch, np.array([0, 1]), batch, np.array([2, 2])).tolist()
    [True, False]
    """
    names = left.schema.names if columns is None else tuple(columns)
    return equal_columns(
        [left.held_column(name) for name in names], left_rows, [right.held_column(name) for name in names], right_rows
    )


def sort_rows(batch: Batch, order: Sequence[OrderBy]) -> Positions:
    """Return the positions of the rows in exact order; ties are broken by all other columns, ascending, nulls last.

    **Cost** A comparison sort on the columns: for gathered groups, not for whole traces.

    **Example**

    >>> from dbsp.zset.batch import Batch
    >>> from dbsp.zset.schema import INT64, STRING, OrderBy, Schema
    >>> batch = Batch.from_rows(Schema.of({"a": INT64, "b": STRING}), [((1, "x"), 1), ((2, "z"), -1), ((2, "y"), 1)])
    >>> sort_rows(batch, (OrderBy("a", descending=True),)).tolist()
    [2, 1, 0]
    """
    return sort_named(batch.column, batch.schema.names, len(batch), order)

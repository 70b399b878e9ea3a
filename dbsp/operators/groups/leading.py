"""The rows of each key that may be first in one of several orders: enough for min and max if no row is deleted.

**Law** For rows of positive weight, the first row of a key in the result is the first among all rows. This is true of each
order and every rule for ties. The result keeps every row whose order code is the least of its key.

The result does not say which row is first. The owner of the key decides after the rows of all workers have arrived.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dbsp.zset import kernels
from dbsp.zset.batch import Batch
from dbsp.zset.kernels import run_starts
from dbsp.zset.order import order_codes
from dbsp.zset.runs import lengths
from dbsp.zset.schema import OrderBy
from dbsp.zset.sorted_keys import KeyGroups, few_groups, keys_agree, sorted_keys


def leading(rows: Batch, key: Sequence[str], orders: Sequence[OrderBy]) -> Batch:
    """Return the rows that are first, or tie with the first, in one of the orders; all rows if any weight is not positive.

    **Cost** A sort of the keys' hashes (none if they were just sorted), and a pass for each order; no sort by value.

    **Example**

    >>> from dbsp.zset.schema import INT64, Schema
    >>> rows = [((1, 5), 1), ((1, 3), 1), ((1, 4), 1), ((1, 3), 1), ((2, 9), 1)]
    >>> batch = Batch.from_rows(Schema.of({"k": INT64, "x": INT64}), rows)
    >>> sorted(leading(batch, ["k"], [OrderBy("x")]).to_rows())
    [((1, 3), 1), ((1, 3), 1), ((2, 9), 1)]
    """
    if len(rows) == 0 or rows.weight.min() <= 0:
        return rows
    arrays = [rows.held_column(name) for name in key]
    groups = few_groups(arrays, len(rows))
    if groups is not None:
        return rows.take(np.flatnonzero(_first_of(groups, rows, orders)))
    hashes, order = sorted_keys(arrays, len(rows))
    if not keys_agree(arrays, hashes, order):
        return rows
    starts = run_starts(hashes)
    sizes = lengths(starts, len(rows))
    stays = np.zeros(len(rows), np.bool_)
    for by in orders:
        codes = order_codes(rows.column(by.column), by).take(order)
        stays |= codes == np.repeat(np.minimum.reduceat(codes, starts), sizes)
    return rows.take(order[stays])


def _first_of(groups: KeyGroups, rows: Batch, orders: Sequence[OrderBy]) -> NDArray[np.bool_]:
    """Return the mask of the rows that are first in their group, or tie with the first, in one of the orders."""
    stays = np.zeros(len(rows), np.bool_)
    for number, by in enumerate(orders):
        column = rows.column(by.column)
        nulls = column.null_count > 0
        if any(other.reverses(by, nulls=nulls) for other in orders[:number]):
            continue
        codes = order_codes(column, by)
        if any(other.reverses(by, nulls=nulls) for other in orders[number + 1 :]):
            stays |= kernels.ends_of_groups(codes, groups.of, len(groups))
        else:
            stays |= codes == kernels.least_of_groups(codes, groups.of, len(groups)).take(groups.of)
    return stays

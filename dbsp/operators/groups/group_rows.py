"""All current rows of some groups, read from a trace by group, for aggregates that need the whole group."""

from __future__ import annotations

import numpy as np

from dbsp.errors import InternalError
from dbsp.operators.groups.part import Positions, of_same_keys
from dbsp.trace.spine import Spine
from dbsp.zset.arrays import from_values, value_view
from dbsp.zset.batch import Batch, consolidate
from dbsp.zset.schema import INT64, Column, Schema

_GROUP = "__group__"


def rows_of(spine: Spine, groups: Batch) -> tuple[Positions, Batch]:
    """Return the group index of each row, and the rows without their keys, consolidated over all runs, in no order.

    **Cost** All rows of the groups.
    """
    if groups.key_hash is None:
        raise InternalError("groups are arranged")
    group, found = of_same_keys(groups, *spine.matches(groups.key_hash, words=False))
    values = [column for column in found.schema if column.name not in groups.schema]
    schema = Schema((Column(_GROUP, INT64, nullable=False), *values))
    columns = (from_values(group, INT64), *(found.column(column.name) for column in values))
    whole = consolidate(Batch(schema=schema, columns=columns, weights=found.weights))
    rest = Batch(schema=Schema(tuple(values)), columns=whole.columns[1:], weights=whole.weights)
    return np.array(value_view(whole.columns[0])), rest

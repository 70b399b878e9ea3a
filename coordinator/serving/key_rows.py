"""Make a row out of the conditions of a query's WHERE, as the key of the rows to read.

It stands apart from the finding of the conditions, because the process that runs queries does that and loads no kernels.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from dbsp.coordinator.query.pushdown import Equal
from dbsp.zset.batch import Batch
from dbsp.zset.schema import Schema

_IS_KIND = {"STRING": pa.types.is_string, "INTEGER": pa.types.is_integer}


def row_of(equal: Equal, schema: Schema) -> Batch | None:
    """Return the conditions as a row of columns of the view; None if none of them can be compared without a cast.

    >>> from dbsp.zset.schema import INT64, STRING
    >>> schema = Schema.of({"item": STRING, "paid": INT64})
    >>> row_of([("item", "STRING", "x"), ("paid", "STRING", "7")], schema).to_rows()
    [(('x',), 1)]
    """
    values: dict[str, Any] = {}
    for column, kind, text in equal:
        same = [each for each in schema if each.name.lower() == column]
        if len(same) != 1 or not _IS_KIND[kind](same[0].type) or same[0].name in values:
            continue
        try:
            values[same[0].name] = pa.scalar(text if kind == "STRING" else int(text), same[0].type).as_py()
        except (pa.ArrowException, ValueError, OverflowError):
            continue
    if not values:
        return None
    some = schema.select([name for name in schema.names if name in values])
    return Batch.of(some, [pa.array([values[column.name]], column.type) for column in some])

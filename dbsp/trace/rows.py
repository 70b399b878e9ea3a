"""Join rows of stored batches without losing their hashes.

Operators read loose batches from a trace. The hashes computed when the rows were stored stay with the rows, so no
stored row is hashed again.
"""

from __future__ import annotations

from collections.abc import Sequence

from dbsp.zset.batch import Batch, concat, no_rows_of
from dbsp.zset.schema import Arrangement


def end_to_end(batches: Sequence[Batch], arrangement: Arrangement) -> Batch:
    """Return one arranged batch that contains `batches`, whose rows must already follow each other in order.

    **Cost**: copies every row; a single batch is returned as is.
    """
    if len(batches) == 1:
        return batches[0]
    return concat(batches, words=True).but(arrangement=arrangement)


def empty(arrangement: Arrangement) -> Batch:
    """Return a loose batch without rows, with the word columns of this arrangement."""
    return no_rows_of(arrangement).but(arrangement=None)

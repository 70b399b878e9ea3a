"""Gathering and joining rows of stored batches without losing their hashes.

Operators get loose batches out of a trace; the hashes that were computed when the rows were stored travel along, so nobody
hashes a stored row again.
"""

from __future__ import annotations

from collections.abc import Sequence

from dbsp.zset.batch import Batch, concat, no_rows_of
from dbsp.zset.schema import Arrangement


def end_to_end(batches: Sequence[Batch], arrangement: Arrangement) -> Batch:
    """Arranged batches whose rows follow each other, as one arranged batch.

    **Cost**: copies every row, except that one batch alone is handed back.
    """
    if len(batches) == 1:
        return batches[0]
    return concat(batches, words=True).but(arrangement=arrangement)


def empty(arrangement: Arrangement) -> Batch:
    """No rows, loose, with the word columns that rows of this arrangement have."""
    return no_rows_of(arrangement).but(arrangement=None)

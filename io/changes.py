"""Conversion of decoded pushes into the changes that a step reads."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dbsp.io.pushed import Push
from dbsp.logs import Changes, DeadLetter, Range


def changes_of(
    push: Push,
    range_: Range,
    step: int,
    offsets: NDArray[np.int64] | None = None,
    *,
    stored_bytes: int,
    arrived_s: float | None = None,
) -> Changes:
    """Return the push at a range as changes and dead letters.

    `offsets` are those of all its rows; without them, the offsets of the range follow each other without gaps.
    `stored_bytes` and `arrived_s` are as of `Changes`.
    """
    if offsets is None:
        offsets = np.arange(range_.first, range_.first + push.rows, dtype=np.int64)
    dead = tuple(
        DeadLetter(
            step=step,
            origin=range_.table,
            partition=range_.partition,
            offset=int(offsets[row.index]),
            reason=row.reason,
            payload=row.payload,
            header=row.header,
        )
        for row in push.bad
    )
    return Changes(
        table=range_.table,
        partition=range_.partition,
        batch=push.batch,
        operations=push.operations,
        offsets=offsets[push.good_indices()],
        dead=dead,
        stored_bytes=stored_bytes,
        arrived_s=arrived_s,
    )

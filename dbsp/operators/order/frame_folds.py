"""Folds over frames: a function of all rows of each place's frame.

**Law** each value is the fold over the rows of the frame, in the fold's own order.

**Cost** a fold has no inverse, so the rows of each frame are gathered anew: as many rows as all frames have together. At most
about `PIECE_ROWS` rows are gathered at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise

import numpy as np
import pyarrow as pa

from dbsp.operators.groups.fold_part import FoldPart
from dbsp.operators.order.window_places import I64, Frame, WindowPlaces
from dbsp.zset.batch import Batch
from dbsp.zset.batch_rows import sort_rows
from dbsp.zset.kernels import expand_ranges

PIECE_ROWS = 1 << 20


def fold_frames(part: FoldPart, frame: Frame, places: WindowPlaces) -> tuple[pa.Array, Mapping[int, str]]:
    """Return the column, and the reason for each place on whose frame the fold failed."""
    form = part.values
    kept = form.kept(places.rows)
    before = np.append(0, np.cumsum(kept))
    starts, ends = (before[side] for side in places.frames(frame))
    some = places.rows.filter(kept)
    rows = Batch(
        schema=form.values, columns=tuple(some.column(column.name) for column in form.columns), weights=some.weights
    )
    rank = np.empty(len(rows), np.int64)
    rank[sort_rows(rows, part.order)] = np.arange(len(rows))
    made: list[pa.Array] = []
    reasons: dict[int, str] = {}
    for first, last in _pieces(ends - starts):
        place, at = expand_ranges(starts[first:last], ends[first:last])
        at = at[np.lexsort((rank[at], place))]
        column, wrong = part.fold.of(rows.take(at), np.append(0, np.cumsum((ends - starts)[first:last])))
        made.append(column)
        reasons |= {first + number: reason for number, reason in wrong.items()}
    return pa.concat_arrays(made), reasons


def _pieces(lengths: I64) -> Iterator[tuple[int, int]]:
    """Yield ranges of consecutive places whose frames hold about `PIECE_ROWS` rows."""
    piece = np.cumsum(lengths) // PIECE_ROWS
    cuts = np.flatnonzero(piece[1:] != piece[:-1]) + 1
    yield from pairwise([0, *cuts.tolist(), len(lengths)])

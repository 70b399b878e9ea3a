"""Consolidation of rows sorted by their words, which `arrange` and `merge` share.

1. Rows with equal words are candidates; only rows equal in all columns are added up.
2. If rows with equal words differ (a collision), their run is first sorted into the canonical order of its columns. So equal rows
   become neighbours: A, B, A with one hash consolidates. Every worker also stores the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dbsp.zset import kernels
from dbsp.zset.arrays import Positions, gather
from dbsp.zset.equality import equal_columns
from dbsp.zset.kernels import WordColumns
from dbsp.zset.order import sort_columns


@dataclass(frozen=True, slots=True)
class Consolidated:
    """The rows that remain: their numbers in the source, their positions in the sorted order, and their summed weights."""

    rows: Positions
    positions: Positions
    weights: NDArray[np.int64]


def consolidate_sorted(
    columns: Sequence[pa.Array], order: Positions, words: WordColumns, weights: NDArray[np.int64], *, decided: bool
) -> Consolidated:
    """Add up the weights of equal rows and drop the zeros.

    `columns` and `weights` are the source rows, `order` sorts them, `words` are sorted by it. `decided` says that equal
    words guarantee equal rows.
    """
    fresh = kernels.run_flags(*words)
    if not decided:
        order, fresh = _settle(columns, order, fresh)
    if fresh.all() and weights.all():  # no row repeats and no weight is zero
        return Consolidated(order, np.arange(len(order)), weights.take(order, axis=0))
    return Consolidated(*kernels.reduce_runs(weights, order, fresh))


def _settle(
    columns: Sequence[pa.Array], order: Positions, fresh: NDArray[np.uint8]
) -> tuple[Positions, NDArray[np.uint8]]:
    """Sort runs of equal words that contain different rows, and mark the start of each different row."""
    repeats = kernels.set_positions(fresh == 0)
    if not len(repeats):
        return order, fresh
    same = equal_columns(columns, order[repeats - 1], columns, order[repeats])
    if same.all():
        return order, fresh
    run = np.cumsum(fresh, dtype=np.int64) - 1
    crowded = np.zeros(int(run[-1]) + 1, np.bool_)
    crowded[run[repeats[~same]]] = True
    members = np.flatnonzero(crowded[run])
    rows, runs = order[members], run[members]
    order, fresh = order.copy(), fresh.copy()
    order[members] = rows[sort_columns([gather(column, rows) for column in columns], runs)]
    inner = members[1:][runs[1:] == runs[:-1]]
    fresh[inner] = ~equal_columns(columns, order[inner - 1], columns, order[inner])
    return order, fresh

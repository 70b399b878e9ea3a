"""Sorting and merging rows by their words: what `arrange` and `merge` share.

1. Rows with equal words are candidates; only rows equal in all columns are added up.
2. Where rows with equal words differ (a collision), that run is put into the canonical order of its columns first, so
   that equal rows are neighbours: A, B, A with one hash consolidates, and every worker stores one order.
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
from dbsp.zset.order import sort_columns

WordColumns = tuple[NDArray[np.uint64], NDArray[np.uint64] | None, NDArray[np.uint64] | None]
"""Key hash, order code, row hash; the last two may be absent."""


@dataclass(frozen=True, slots=True)
class Consolidated:
    """Which rows stay: their numbers in the source, their positions in the sorted order, and their summed weights."""

    rows: Positions
    positions: Positions
    weights: NDArray[np.int64]


def consolidate_sorted(
    columns: Sequence[pa.Array], order: Positions, words: WordColumns, weights: NDArray[np.int64], *, decided: bool
) -> Consolidated:
    """Add up the weights of equal rows and drop the zeros.

    `columns` and `weights` are the source rows, `order` sorts them, `words` are sorted by it. `decided` says that rows
    with equal words are certainly equal.
    """
    starts = kernels.run_starts(*words)
    if not decided and len(starts) < len(order):
        order, starts = _settle(columns, order, starts)
    summed = kernels.sum_runs(weights, starts, order)
    kept = kernels.nonzero_rows(summed)
    if len(kept) < len(starts):
        starts, summed = starts[kept], summed[kept]
    return Consolidated(order[starts], starts, summed)


def _settle(columns: Sequence[pa.Array], order: Positions, starts: Positions) -> tuple[Positions, Positions]:
    """Reorder runs of equal words that hold different rows, and start a run at each different row."""
    fresh = np.zeros(len(order), np.bool_)
    fresh[starts] = True
    repeats = np.flatnonzero(~fresh)
    same = equal_columns(columns, order[repeats - 1], columns, order[repeats])
    if same.all():
        return order, starts
    run = np.cumsum(fresh) - 1
    crowded = np.zeros(len(starts), np.bool_)
    crowded[run[repeats[~same]]] = True
    members = np.flatnonzero(crowded[run])
    order = order.copy()
    rows = order[members]
    gathered = [gather(column, rows) for column in columns]
    sorted_rows = rows[sort_columns(gathered, run[members])]
    order[members] = sorted_rows
    fresh[members] = True
    inner = members[1:][~_run_starts_at(run[members])]
    fresh[inner] = ~equal_columns(columns, order[inner - 1], columns, order[inner])
    return order, np.flatnonzero(fresh)


def _run_starts_at(runs: Positions) -> NDArray[np.bool_]:
    """Whether each member but the first belongs to another run than the member before it."""
    return np.asarray(runs[1:] != runs[:-1])

"""Grouping of rows by key even if hashes collide: rows of one key are neighbours, and keys are ordered by hash."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dbsp.zset.arrays import gather
from dbsp.zset.equality import equal_columns
from dbsp.zset.hashing import hash_columns, hash_decides
from dbsp.zset.kernels import run_starts, sort_words
from dbsp.zset.order import sort_columns
from dbsp.zset.runs import lengths

Positions = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedRuns:
    """Runs of rows with equal keys: the sorting permutation, the start of each run, and the hash of each run's key."""

    order: Positions
    starts: Positions
    key_hash: Words

    @property
    def lengths(self) -> Positions:
        """Return the number of rows in each run."""
        return lengths(self.starts, len(self.order))

    @property
    def last(self) -> Positions:
        """Return the index of the last row of each run."""
        return np.asarray(self.order[self.starts + self.lengths - 1])


def keyed_runs(keys: Sequence[pa.Array], within: Words) -> KeyedRuns:
    """Return the runs of rows with equal keys; the rows of a run are in order of `within`.

    **Cost** One hash and one sort. Only rows whose hash is shared by several keys need a comparison sort.
    """
    hashes, _, _, order = sort_words(hash_columns(keys, len(within)), within, None)
    starts = run_starts(hashes)
    if not hash_decides(keys) and len(starts) < len(order):
        order, starts = _settled(keys, order, starts)
    return KeyedRuns(order=order, starts=starts, key_hash=hashes[starts])


def _settled(keys: Sequence[pa.Array], order: Positions, starts: Positions) -> tuple[Positions, Positions]:
    """Sort the runs of one hash that hold several keys by the keys, and start a run at each key."""
    fresh = np.zeros(len(order), np.bool_)
    fresh[starts] = True
    run = np.cumsum(fresh) - 1
    same = equal_columns(keys, order, keys, order[starts[run]])
    if same.all():
        return order, starts
    crowded = np.zeros(len(starts), np.bool_)
    crowded[run[~same]] = True
    members = np.flatnonzero(crowded[run])
    rows = order[members]
    order = order.copy()
    order[members] = rows[sort_columns([gather(key, rows) for key in keys], run[members])]
    inner = members[~fresh[members]]
    fresh[inner] = ~equal_columns(keys, order[inner - 1], keys, order[inner])
    return order, np.flatnonzero(fresh)

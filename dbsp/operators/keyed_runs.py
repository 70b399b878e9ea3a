"""Rows brought together by key, whatever their hashes: the rows of one key are neighbours, keys in order of their hash."""

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
    """The order that brings equal keys together, where each key's run starts, and its hash."""

    order: Positions
    starts: Positions
    key_hash: Words

    @property
    def lengths(self) -> Positions:
        """How many rows each run has."""
        return lengths(self.starts, len(self.order))

    @property
    def last(self) -> Positions:
        """The row at the end of each run."""
        return np.asarray(self.order[self.starts + self.lengths - 1])


def keyed_runs(keys: Sequence[pa.Array], within: Words) -> KeyedRuns:
    """The runs of rows with one key; rows of a run in order of `within`.

    **Cost** one hash and one sort; a comparison sort of those rows alone whose hash is shared by several keys.
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

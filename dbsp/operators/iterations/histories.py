"""Rounds: inside a recursion a row says, in a column, in which round of the loop it changed.

A stream of the loop at step s and round r is the sum of its changes at all earlier steps and rounds: the two-dimensional
integral of DBSP's nested streams. Kept as a Z-set of (row, round), its change in a step is an ordinary change, so an operator
of the loop is an ordinary incremental operator on rows with one more column. Linear operators carry the column along, a join
takes the later of two rounds, and what is not linear answers with a function of the round (this module).

**Law** causality: what an operator gives at round r depends on what it got at rounds <= r alone. So a change that arrives for
round r may at once correct the answer at later rounds, out of stored history; those corrections wait for their round.

Source: DBSP, sections on nested streams and recursion; design record 0010.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from dbsp.errors import InternalError
from dbsp.operators.keyed_runs import keyed_runs
from dbsp.trace.spine import Spine
from dbsp.zset.batch import Batch, concat
from dbsp.zset.runs import begins, ends
from dbsp.zset.schema import INT64, Column, Schema

ITERATION = "__round__"
ITERATION_RIGHT = "__round_right__"
ITERATION_COLUMN = Column(ITERATION, INT64, nullable=False)

Integers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def with_iteration(schema: Schema) -> Schema:
    """The schema with a round."""
    return Schema((*schema.columns, ITERATION_COLUMN))


def iterations_of(batch: Batch) -> Integers:
    """The round of each row."""
    found: Integers = batch.column(ITERATION).to_numpy(zero_copy_only=False)
    return found


@dataclass(frozen=True, kw_only=True)
class Histories:
    """All rows of the keys that changed, in order of (key, round): those stored, and those that came.

    `moment` numbers the different (key, round) pairs row by row, `first` says at which moments a key begins; `rows` are loose.
    `before` are the weights as stored (zero for rows that came), `change` those that came (zero for rows stored).
    """

    rows: Batch
    run: Integers
    moment: Integers
    before: npt.NDArray[np.int64]
    change: npt.NDArray[np.int64]

    @property
    def moments(self) -> int:
        """How many (key, round) pairs there are."""
        return int(self.moment[-1]) + 1 if len(self.moment) else 0

    @cached_property
    def last_rows(self) -> Integers:
        """The last row of each moment."""
        return np.flatnonzero(ends(self.moment))

    @cached_property
    def begins(self) -> Mask:
        """Whether a moment is the first one of its key."""
        return begins(self.run[self.last_rows])


def histories(spine: Spine, delta: Batch, keys: Sequence[str]) -> Histories:
    """The histories of the keys of `delta`, which is arranged as the spine is, by these keys.

    **Cost** one look-up, and the rows that are stored for the keys: for a set one per round in which the row changed.
    """
    if delta.key_hash is None:
        raise InternalError("changes are arranged by their key")
    # sorted as they are: `np.unique` would build a hash table, many times slower
    _, stored = spine.matches(delta.key_hash[begins(delta.key_hash)])
    rows = concat([stored.loose(), delta.loose()], delta.schema)
    came = np.arange(len(rows)) >= len(stored)
    runs = keyed_runs([rows.column(name) for name in keys], iterations_of(rows).astype(np.uint64))
    rows, came = rows.take(runs.order), came[runs.order]
    fresh = np.zeros(len(rows), np.int64)
    fresh[runs.starts] = 1
    run = np.cumsum(fresh) - 1
    touched = np.bincount(run[came], minlength=len(runs.starts)) > 0
    if not touched.all():  # another key with the hash of one that changed
        kept = np.flatnonzero(touched[run])
        rows, came, run = rows.take(kept), came[kept], (np.cumsum(touched) - 1)[run[kept]]
    round_ = iterations_of(rows)
    new = begins(run, round_)
    stays = ~came.reshape(-1, 1)
    return Histories(
        rows=rows,
        run=run,
        moment=np.cumsum(new) - 1,
        before=np.where(stays, rows.weights, 0),
        change=np.where(stays, 0, rows.weights),
    )


def integrated(found: Histories, weights: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Per moment, the sum of the weights of its key up to its round."""
    total = np.cumsum(weights, axis=0)  # may wrap; what is subtracted wraps alike
    base = (total - weights)[begins(found.run)]
    here: npt.NDArray[np.int64] = total[found.last_rows] - base[np.cumsum(found.begins) - 1]
    return here


def differentiated(values: Integers, begins: Mask) -> Integers:
    """Per moment, the change against the moment before it of the same key; against zero at its first."""
    earlier = np.concatenate([np.zeros(min(1, len(values)), np.int64), values[:-1]])
    return values - np.where(begins, 0, earlier)

"""Iterations: inside a recursion, a column of each row contains the iteration of the loop in which the row changed.

A stream of the loop at step s and iteration r is the sum of its changes at all earlier steps and iterations.
This is the two-dimensional integral of DBSP's nested streams. The stream is stored as a Z-set of (row, iteration).
Its change in a step is then an ordinary change.
So an operator of the loop is an ordinary incremental operator on rows with one more column. Linear operators keep the column.
A join takes the later of two iterations. Nonlinear operators compute a function of the iteration with this module.

**Law** Causality: the output at iteration r depends only on the input at iterations <= r. A change for iteration r may
therefore at once correct the output of later iterations out of stored history. Those corrections wait for their iteration.

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
    """Return the schema with the iteration column appended."""
    return Schema((*schema.columns, ITERATION_COLUMN))


def iterations_of(batch: Batch) -> Integers:
    """Return the iteration of each row."""
    found: Integers = batch.column(ITERATION).to_numpy(zero_copy_only=False)
    return found


@dataclass(frozen=True, kw_only=True)
class Histories:
    """All stored and new rows of the changed keys, in order of (key, iteration).

    A moment is a distinct (key, iteration) pair. `run` is the key number of each row, and `moment` its moment; `rows` are loose.
    `before` contains the stored weights (zero for new rows), `change` the new ones (zero for stored rows).
    """

    rows: Batch
    run: Integers
    moment: Integers
    before: npt.NDArray[np.int64]
    change: npt.NDArray[np.int64]

    @property
    def moments(self) -> int:
        """Return the number of (key, iteration) pairs."""
        return int(self.moment[-1]) + 1 if len(self.moment) else 0

    @cached_property
    def last_rows(self) -> Integers:
        """Return the index of the last row of each moment."""
        return np.flatnonzero(ends(self.moment))

    @cached_property
    def begins(self) -> Mask:
        """Return the mask of the moments that are the first of their key."""
        return begins(self.run[self.last_rows])


def histories(spine: Spine, delta: Batch, keys: Sequence[str]) -> Histories:
    """Return the histories of the keys of `delta`, which is arranged by these keys like the spine.

    **Cost** One look-up, and the rows stored for the keys. A set stores one row per iteration in which the row changed.
    """
    if delta.key_hash is None:
        raise InternalError("changes are arranged by their key")
    # The hashes are sorted already. `np.unique` would build a hash table, which is many times slower.
    _, stored = spine.matches(delta.key_hash[begins(delta.key_hash)])
    rows = concat([stored.loose(), delta.loose()], delta.schema)
    came = np.arange(len(rows)) >= len(stored)
    runs = keyed_runs([rows.column(name) for name in keys], iterations_of(rows).astype(np.uint64))
    rows, came = rows.take(runs.order), came[runs.order]
    fresh = np.zeros(len(rows), np.int64)
    fresh[runs.starts] = 1
    run = np.cumsum(fresh) - 1
    touched = np.bincount(run[came], minlength=len(runs.starts)) > 0
    if not touched.all():  # some stored rows belong to unchanged keys that share the hash of a changed key
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
    """Return per moment the sum of the weights of its key up to its iteration."""
    total = np.cumsum(weights, axis=0)  # may wrap around 64 bits; `base` wraps equally, so the difference is exact
    base = (total - weights)[begins(found.run)]
    here: npt.NDArray[np.int64] = total[found.last_rows] - base[np.cumsum(found.begins) - 1]
    return here


def differentiated(values: Integers, begins: Mask) -> Integers:
    """Return per moment the change against the previous moment of the same key, or against zero at the first."""
    earlier = np.concatenate([np.zeros(min(1, len(values)), np.int64), values[:-1]])
    return values - np.where(begins, 0, earlier)

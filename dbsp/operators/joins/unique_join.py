"""Unique join: an inner equi-join in which one side consists of rows of a table with one permanent row per key.

**Law** The result equals the inner join. With s the unique side, D(a ⋈ s) = Da ⋈ (s + Ds) + a ⋈ Ds.
Ds contains only keys that never existed before, so only rows of a with such keys are read.
A third input has the table's keys, because a filter may leave rows of the table out of s.
A key that is in the table and not in s has no partner and never gets one.

**State** The unique side, its table's keys, and the waiting rows: rows of the other side whose key does not exist yet.
A waiting row is deleted when its key arrives.

**Cost** Per changed row of the other side one look-up, and one in the keys if it has no partner. Such a row is neither sorted
nor stored unless it waits. Per new key one look-up in the waiting rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dbsp.operators.joins.join_shape import I64, JoinShape
from dbsp.operators.joins.products import product
from dbsp.operators.monotone_bounds import MonotoneBounds
from dbsp.operators.operator import Integral, Operator, State, StepContext, Time
from dbsp.stored import stored
from dbsp.trace.spine import Spine
from dbsp.zset.arrays import gather
from dbsp.zset.batch import Batch, arrange, concat
from dbsp.zset.equality import equal_columns
from dbsp.zset.hashing import hash_decides
from dbsp.zset.schema import Arrangement, Schema
from dbsp.zset.sorted_keys import sorted_keys

U64 = npt.NDArray[np.uint64]
WAITING, UNIQUE, KEYS = range(3)


@stored("UniqueJoin", "shape unique keys")
@dataclass(frozen=True, slots=True, kw_only=True)
class UniqueJoin(Operator):
    """Inner equi-join with one unique side (0 left, 1 right); the third input has the new keys of that side's table."""

    depends_on_time: ClassVar[Time] = Time.NOTHING
    shape: JoinShape
    unique: int
    keys: Schema

    def __str__(self) -> str:
        """Return the keys and the side whose rows wait."""
        return f"unique join {self.shape}: {'left' if self.unique else 'right'} rows wait for their only partner"

    @property
    def many(self) -> int:
        """Return the number of the side that is not unique; its rows may wait."""
        return 1 - self.unique

    def arrangements(self) -> tuple[Arrangement, ...]:
        """Return the arrangements of the waiting rows, the unique side, and its table's keys."""
        shape = self.shape
        return (
            Arrangement(schema=shape.side(self.many), key=shape.on(self.many)),
            Arrangement(schema=shape.side(self.unique), key=shape.on(self.unique)),
            Arrangement(schema=self.keys, key=self.keys.names),
        )

    def integrals(self) -> tuple[Integral | None, ...]:
        """Return the integrals of the unique side and of the keys; None for the waiting rows."""
        return None, self.shape.integral(self.unique), Integral(stream=2)

    def monotone_bounds(self, inputs: Sequence[MonotoneBounds]) -> MonotoneBounds:
        """Return the bounds of the output's keys: a changed output row has the key of a changed input row."""
        return self.shape.monotone_bounds(inputs[:2])

    def step(self, context: StepContext, state: State, inputs: tuple[Batch, ...]) -> Batch:  # noqa: ARG002 (protocol)
        """Return the change of the pairs, and update the waiting rows."""
        by_many, by_unique, by_key = self.arrangements()
        many, _ = self.shape.meeting(inputs[self.many], self.many)
        unique, keys = arrange(inputs[self.unique], by_unique), arrange(inputs[2], by_key)
        made, moved = [], []
        if len(many):
            stored = state.spine(UNIQUE).with_batch(unique), state.spine(KEYS).with_batch(keys)
            pairs, waiting = self._met(many, *stored)
            made.append(pairs)
            moved.append(waiting)
        if len(keys):
            made.append(self._awaited(unique, state.spine(WAITING)))
            moved.append(self._served(keys, state.spine(WAITING)).negate())
            state.append(KEYS, keys)
        if len(unique):
            state.append(UNIQUE, unique)
        change = arrange(concat(moved, by_many.schema), by_many)
        if len(change):
            state.append(WAITING, change)
        return concat(made, self.shape.schema)

    def _met(self, many: Batch, unique: Spine, keys: Spine) -> tuple[Batch, Batch]:
        """Return the pairs of changed rows with the existing unique rows, and the rows whose key does not exist yet."""
        columns = [many.held_column(name) for name in self.shape.on(self.many)]
        hashes, order = sorted_keys(columns, len(many))
        query, found = unique.matches(hashes, words=False)
        at, found = self.shape.same_key(many, order[query], found, self.many)
        alone = _not_among(len(many), at)[order]
        hashes, order = hashes[alone], order[alone]
        if len(order):
            query, stored = keys.matches(hashes, words=False)
            known = _equal(columns, order[query], stored.held)
            order = order[_not_among(len(order), query[known])]
        return self._pairs(self.many, many, at, found), many.take(order)

    def _awaited(self, unique: Batch, waiting: Spine) -> Batch:
        """Return the pairs of new rows of the unique side with the rows that waited for their keys."""
        query, found = waiting.matches(unique.words[0], words=False)
        return self._pairs(self.unique, unique, *self.shape.same_key(unique, query, found, self.unique))

    def _served(self, keys: Batch, waiting: Spine) -> Batch:
        """Return the waiting rows whose key has now arrived."""
        query, found = waiting.matches(keys.words[0], words=False)
        theirs = [found.held_column(name) for name in self.shape.on(self.many)]
        same = _equal(theirs, np.arange(len(found)), [gather(column, query) for column in keys.held])
        return found.filter(same)

    def _pairs(self, side: int, rows: Batch, at: I64, found: Batch) -> Batch:
        """Return the output rows of changed rows of a side, given the rows found on the other side."""
        columns = tuple(
            gather(rows.held_column(name), at) if of == side else found.held_column(name)
            for of, name, _ in self.shape.columns
        )
        weights = product(rows.weight.take(at), found.weight)
        return Batch(schema=self.shape.schema, columns=columns, weights=weights.reshape(-1, 1))


def _not_among(count: int, places: I64) -> npt.NDArray[np.bool_]:
    """Return the mask of the indices in `range(count)` that are not in `places`."""
    free = np.ones(count, np.bool_)
    free[places] = False
    return free


def _equal(columns: Sequence[pa.Array], rows: I64, others: Sequence[pa.Array]) -> npt.NDArray[np.bool_]:
    """Return the mask of the candidates, matched by hash, whose keys are really equal."""
    if hash_decides(columns) and hash_decides(others):
        return np.ones(len(rows), np.bool_)
    return equal_columns(columns, rows, others, np.arange(len(rows)))

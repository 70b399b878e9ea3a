"""Outer join: the pairs of a join, and the unmatched rows of one or both sides, padded with nulls.

**Law** left ⋈ right + {rows of a preserved side whose key has no row on the other side, padded with nulls}.
The pairs change as in an inner join. Let u(k) = 1 if key k has no row on the other side, and 0 otherwise.
The unmatched rows change by u'·Da + (u' - u)·a.

**State** Both sides by key, with the needed columns. For each preserved side, the number of rows per key on the other side.

**Cost** Per changed row one look-up in the other side, one in the counts, and the resulting pairs. If a key gets its first
partner or loses its last, also the rows of the preserved side with this key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dbsp.operators.groups.linear_part import checked_sum
from dbsp.operators.joins.join_shape import I64, JoinShape
from dbsp.operators.joins.products import product
from dbsp.operators.monotone_bounds import Bound, MonotoneBounds
from dbsp.operators.operator import Integral, Operator, State, StepContext, Time
from dbsp.stored import stored
from dbsp.trace.spine import Spine
from dbsp.zset.batch import Batch, arrange, concat
from dbsp.zset.schema import NO_COLUMNS, Arrangement, Column, Schema


def count_arrangement(shape: JoinShape, sides: int) -> Arrangement:
    """Return the arrangement of row counts by key, with one weight for each of `sides` sides."""
    schema = Schema(tuple(Column(name, shape.left[name].type) for name in shape.left_on))
    return Arrangement(schema=schema, key=shape.left_on, weights=sides)


def count_change(shape: JoinShape, rows: Batch, side: int, place: int, sides: int) -> Batch:
    """Return the keys of changed rows of a side, with the rows' weights at index `place` of `sides` weights."""
    weights = np.zeros((len(rows), sides), np.int64)
    weights[:, place] = rows.weight
    keys = shape.keys(rows, side, shape.left_on)
    return Batch(schema=keys.schema, columns=keys.held, weights=weights)


@stored("OuterJoin", "shape preserved")
@dataclass(frozen=True, slots=True, kw_only=True)
class OuterJoin(Operator):
    """Outer equi-join; `preserved` lists the sides that keep unmatched rows: (0,) left, (1,) right, (0, 1) full."""

    depends_on_time: ClassVar[Time] = Time.NOTHING
    shape: JoinShape
    preserved: tuple[int, ...]

    def __str__(self) -> str:
        """Return the kind of join with its keys."""
        kind = "full" if len(self.preserved) > 1 else ("left", "right")[self.preserved[0]]
        return f"{kind} join {self.shape}"

    def arrangements(self) -> tuple[Arrangement, ...]:
        """Return the arrangements of the left side, the right side, and the row counts per key."""
        shape = self.shape
        return (
            Arrangement(schema=shape.left, key=shape.left_on),
            Arrangement(schema=shape.right, key=shape.right_on),
            count_arrangement(shape, len(self.preserved)),
        )

    def integrals(self) -> tuple[Integral | None, ...]:
        """Return the integrals of both inputs; None for the row counts."""
        return *(self.shape.integral(side, only=side not in self.preserved) for side in (0, 1)), None

    def monotone_bounds(self, inputs: Sequence[MonotoneBounds]) -> MonotoneBounds:
        """Return the bounds of the output's keys: only a key with a changed row has changed output."""
        return self.shape.monotone_bounds(inputs)

    def closing(self, inputs: Sequence[MonotoneBounds]) -> tuple[tuple[str, Bound] | None, ...]:
        """Return the key columns and bounds below which stored rows and counts are never read again."""
        left, right = self.shape.closing(inputs)
        return left, right, left

    def step(self, context: StepContext, state: State, inputs: tuple[Batch, ...]) -> Batch:  # noqa: ARG002 (protocol)
        """Return the changes of the pairs and of the unmatched rows."""
        shape, arrangements = self.shape, self.arrangements()
        deltas, made = [], []
        for side, batch in enumerate(inputs):
            able, lonely = shape.meeting(batch, side)
            if side in self.preserved and len(lonely):
                made.append(shape.alone(lonely, side, lonely.weight))
            deltas.append(arrange(able, arrangements[side]))
        left, right = deltas
        if len(left):
            made.append(self._pairs(left, state.spine(1).with_batch(right), 0))
        if len(right):
            made.append(self._pairs(right, state.spine(0), 1))
        counts = state.spine(2)
        change = arrange(concat([*self._changes(deltas)], arrangements[2].schema), arrangements[2])
        later = counts.with_batch(change)
        old = counts.sums(change)
        for place, side in enumerate(self.preserved):
            made.append(self._present(deltas[side], side, later, place))
            made.append(self._flipped(state.spine(side), side, change, old, place))
        for index, batch in enumerate((left, right, change)):
            if len(batch):
                state.append(index, batch)
        return concat(made, shape.schema)

    def _pairs(self, delta: Batch, spine: Spine, side: int) -> Batch:
        """Return the pairs of the changed rows of a side with the other side."""
        shape = self.shape
        query, found = shape.same_key(delta, *spine.matches(delta.words[0]), side)
        weights = product(delta.weight[query], found.weight)
        at = np.arange(len(found))
        if side == 0:
            return shape.paired(delta, query, found, at, weights)
        return shape.paired(found, at, delta, query, weights)

    def _changes(self, deltas: Sequence[Batch]) -> list[Batch]:
        """Return for every preserved side the change of the other side's row count per key."""
        sides = len(self.preserved)
        return [
            count_change(self.shape, deltas[1 - side], 1 - side, place, sides)
            for place, side in enumerate(self.preserved)
        ]

    def _present(self, delta: Batch, side: int, counts: Spine, place: int) -> Batch:
        """Return the changed rows of a side whose key has no partner after this step."""
        if len(delta) == 0:
            return Batch.empty(self.shape.schema)
        partners = counts.sums(self.shape.keys(delta, side, self.shape.left_on))[:, place]
        return self.shape.alone(delta, side, np.where(partners > 0, 0, delta.weight))

    def _flipped(self, spine: Spine, side: int, change: Batch, old: I64, place: int) -> Batch:
        """Return the change of stored rows of a side whose key got its first partner or lost its last."""
        new = checked_sum(old, change.weights)
        turn = (new[:, place] <= 0).astype(np.int64) - (old[:, place] <= 0)
        keys = change.filter(turn != 0)
        if len(keys) == 0:
            return Batch.empty(self.shape.schema)
        query, found = rows_of_keys(self.shape, spine, keys, side)
        return self.shape.alone(found, side, product(turn[turn != 0][query], found.weight))


def rows_of_keys(shape: JoinShape, spine: Spine, keys: Batch, side: int) -> tuple[I64, Batch]:
    """Return the stored rows of a side with the given keys, and the index of each row's key.

    `keys` is arranged under the left side's column names.
    """
    renamed = JoinShape(
        left=keys.schema, right=shape.side(side), left_on=shape.left_on, right_on=shape.on(side), columns=(),
        schema=NO_COLUMNS,
    )  # fmt: skip
    return renamed.same_key(keys, *spine.matches(keys.words[0]), 0)

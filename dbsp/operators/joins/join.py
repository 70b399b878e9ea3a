"""Inner equi-join: pairs of rows whose keys are equal. A null key matches nothing, unless the join is null-safe.

**Law** The join is bilinear: D(a ⋈ b) = Da ⋈ (b + Db) + a ⋈ Db, where a and b are as of the step before. Weights multiply.

**State** Both sides by join key, with the columns that the output or the key needs. Rows with a null key are kept only by a
null-safe join. A join without keys is the cross join.

**Cost** Per changed row one look-up in the other side, and the resulting pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from dbsp.operators.joins.join_shape import JoinShape
from dbsp.operators.joins.products import product
from dbsp.operators.monotone_bounds import Bound, MonotoneBounds
from dbsp.operators.operator import Integral, Operator, State, StepContext, Time
from dbsp.stored import stored
from dbsp.zset.arrays import gather, valid_rows
from dbsp.zset.batch import Batch, arrange, concat
from dbsp.zset.equality import equal_columns
from dbsp.zset.hashing import hash_decides
from dbsp.zset.schema import Arrangement, Schema

Positions = npt.NDArray[np.int64]


@stored("Join", "left right left_on right_on columns schema null_safe")
@dataclass(frozen=True, slots=True, kw_only=True)
class JoinOperator(Operator):
    """Inner equi-join; `columns` lists (side, input column, output column)."""

    depends_on_time: ClassVar[Time] = Time.NOTHING
    left: Schema
    right: Schema
    left_on: tuple[str, ...]
    right_on: tuple[str, ...]
    columns: tuple[tuple[int, str, str], ...]
    schema: Schema
    null_safe: bool = False

    def __str__(self) -> str:
        """Return the kind of join with its keys."""
        if not self.left_on:
            return "cross join"
        pairs = zip(self.left_on, self.right_on, strict=True)
        on = ", ".join(a if a == b else f"{a} = {b}" for a, b in pairs)
        return f"join on {on}" + (" null-safe" if self.null_safe else "")

    @property
    def shape(self) -> JoinShape:
        """Return the sides, keys and output columns as a `JoinShape`, which the other joins share."""
        return JoinShape(
            left=self.left, right=self.right, left_on=self.left_on, right_on=self.right_on, columns=self.columns,
            schema=self.schema, null_safe=self.null_safe,
        )  # fmt: skip

    def arrangements(self) -> tuple[Arrangement, ...]:
        """Return the arrangements of the left and the right side by key."""
        return Arrangement(schema=self.left, key=self.left_on), Arrangement(schema=self.right, key=self.right_on)

    def integrals(self) -> tuple[Integral | None, ...]:
        """Return the integrals of both inputs, without rows that have a null key unless the join is null-safe."""
        sides = (self.left_on, self.right_on)
        return tuple(Integral(stream=side, present=() if self.null_safe else on) for side, on in enumerate(sides))

    def monotone_bounds(self, inputs: Sequence[MonotoneBounds]) -> MonotoneBounds:
        """Return the bounds of the output's key columns: a changed output row has the key of a changed input row."""
        return self.shape.monotone_bounds(inputs)

    def closing(self, inputs: Sequence[MonotoneBounds]) -> tuple[tuple[str, Bound] | None, ...]:
        """Return the key columns and the bound below which stored rows match no later row; (None, None) without a bound."""
        return self.shape.closing(inputs)

    def step(self, context: StepContext, state: State, inputs: tuple[Batch, ...]) -> Batch:  # noqa: ARG002 (protocol)
        """Return the change of the pairs, and append the changes of both sides to their traces."""
        by_left, by_right = self.arrangements()
        left = arrange(self._meeting(inputs[0], self.left_on), by_left)
        right = arrange(self._meeting(inputs[1], self.right_on), by_right)
        made = []
        if len(left):
            state.append(0, left)
            query, found = state.spine(1).with_batch(right).matches(left.words[0], words=False)
            made.append(self._pairs(left, query, found, side=0))
        if len(right):
            state.append(1, right)
            query, found = state.spine(0).matches(right.words[0], words=False)
            made.append(self._pairs(right, query, found, side=1))
        return concat(made, self.schema)

    def _meeting(self, rows: Batch, names: tuple[str, ...]) -> Batch:
        """Return the rows whose key can match: those without a null key, or all if the join is null-safe."""
        return rows if self.null_safe else _without_null(rows, names)

    def _pairs(self, delta: Batch, query: Positions, found: Batch, side: int) -> Batch:
        """Return the output rows of (changed row, stored row) candidates with one key hash, after comparing the keys."""
        names, others = (self.left_on, self.right_on) if side == 0 else (self.right_on, self.left_on)
        keys = [delta.held_column(name) for name in names]
        other_keys = [found.held_column(name) for name in others]
        if not (hash_decides(keys) and hash_decides(other_keys)):
            same = equal_columns(keys, query, other_keys, np.arange(len(found)))
            if not same.all():
                query, found = query[same], found.take(np.flatnonzero(same))
        columns = tuple(
            gather(delta.held_column(name), query) if of == side else found.held_column(name)
            for of, name, _ in self.columns
        )
        weights = product(delta.weight.take(query), found.weight)
        return Batch(schema=self.schema, columns=columns, weights=weights.reshape(-1, 1))


def _without_null(batch: Batch, names: tuple[str, ...]) -> Batch:
    """Return the rows that have no null in the given columns."""
    masks = [mask for name in names if (mask := valid_rows(batch.held_column(name))) is not None]
    return batch.filter(np.logical_and.reduce(masks)) if masks else batch

"""Semi and anti join: the left rows whose key has a row on the right side, or has none.

**Law** Let u(k) = 1 if the output keeps the left rows of key k, and 0 otherwise. The output u·a changes by u'·Da + (u' - u)·a.

**State** The left rows by key, and the number of right rows per key. No other column of the right side is stored.

**Cost** Per changed row one look-up in the counts. If a key gets its first partner or loses its last, also its left rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dbsp.operators.groups.linear_part import checked_sum
from dbsp.operators.joins.join_shape import I64, JoinShape
from dbsp.operators.joins.outer_join import count_arrangement, count_change, rows_of_keys
from dbsp.operators.joins.products import product
from dbsp.operators.monotone_bounds import Bound, MonotoneBounds
from dbsp.operators.operator import Integral, Operator, State, StepContext, Time
from dbsp.stored import stored
from dbsp.zset.batch import Batch, arrange, concat
from dbsp.zset.schema import Arrangement


@stored("SemiJoin", "shape anti")
@dataclass(frozen=True, slots=True, kw_only=True)
class SemiJoin(Operator):
    """Keep the left rows that have a partner, or with `anti` those that have none."""

    depends_on_time: ClassVar[Time] = Time.NOTHING
    shape: JoinShape
    anti: bool

    def __str__(self) -> str:
        """Return the kind of join with its keys."""
        return f"{'anti' if self.anti else 'semi'} join {self.shape}"

    def arrangements(self) -> tuple[Arrangement, ...]:
        """Return the arrangements of the left side and of the right side's row counts per key."""
        return Arrangement(schema=self.shape.left, key=self.shape.left_on), count_arrangement(self.shape, 1)

    def integrals(self) -> tuple[Integral | None, ...]:
        """Return the integral of the left input, which an anti join also reads for rows with a null key; None for the counts."""
        return self.shape.integral(0, only=not self.anti), None

    def monotone_bounds(self, inputs: Sequence[MonotoneBounds]) -> MonotoneBounds:
        """Return the bounds of the output's keys: only a key with a changed row has changed output."""
        return self.shape.monotone_bounds(inputs)

    def closing(self, inputs: Sequence[MonotoneBounds]) -> tuple[tuple[str, Bound] | None, ...]:
        """Return the key column and the bound below which stored rows and counts are never read again."""
        left, _ = self.shape.closing(inputs)
        return left, left

    def step(self, context: StepContext, state: State, inputs: tuple[Batch, ...]) -> Batch:  # noqa: ARG002 (protocol)
        """Return the left rows that enter or leave the output."""
        shape = self.shape
        by_key, by_count = self.arrangements()
        able, lonely = shape.meeting(inputs[0], 0)
        made = [shape.alone(lonely, 0, lonely.weight)] if self.anti and len(lonely) else []
        left = arrange(able, by_key)
        right, _ = shape.meeting(inputs[1], 1)
        change = arrange(count_change(shape, right, 1, 0, 1), by_count)
        counts = state.spine(1)
        if len(left):
            partners = counts.with_batch(change).sums(shape.keys(left, 0, shape.left_on))
            made.append(shape.alone(left, 0, product(self._wanted(partners), left.weight)))
            state.append(0, left)
        if len(change):
            old = counts.sums(change)
            turn = self._wanted(checked_sum(old, change.weights)) - self._wanted(old)
            turned = np.flatnonzero(turn)
            if len(turned):
                query, found = rows_of_keys(shape, state.spine(0), change.filter(turn != 0), 0)
                made.append(shape.alone(found, 0, product(turn[turned][query], found.weight)))
            state.append(1, change)
        return concat(made, shape.schema)

    def _wanted(self, counts: I64) -> I64:
        """Return 1 for each count whose key's left rows are in the output, and 0 otherwise."""
        return np.asarray((counts[:, 0] > 0) != self.anti).astype(np.int64)

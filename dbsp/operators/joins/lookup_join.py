"""Lookup join: pair every new left row with the right side as of the row's step; the result never changes afterwards.

**Law** The output of step n is Da(n) ⋈ b(n), with b(n) the right side after step n's changes; it is bilinear in both.
It depends on how the tables' changes are split into steps. The log records the split, so a replay gives the same rows.

**State** The right side by key.

**Cost** Per new left row one look-up, and the resulting pairs.

**Errors** The deletion of a left row changes no output. It becomes a dead letter, and the row's earlier output remains.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dbsp.operators.failures import report
from dbsp.operators.joins.join_shape import JoinShape
from dbsp.operators.joins.products import product
from dbsp.operators.operator import Integral, Operator, State, StepContext, Time
from dbsp.stored import stored
from dbsp.zset.batch import Batch, arrange, concat, consolidate
from dbsp.zset.kernels import scatter_add
from dbsp.zset.schema import Arrangement

REASON = "a lookup join takes new rows only: this one was taken back"


@stored("LookupJoin", "shape outer")
@dataclass(frozen=True, slots=True, kw_only=True)
class LookupJoinOperator(Operator):
    """Join new left rows with the current right side; `outer` keeps left rows without a match."""

    depends_on_time: ClassVar[Time] = Time.STEPS
    shape: JoinShape
    outer: bool

    def __str__(self) -> str:
        """Return the kind of join with its keys."""
        return f"{'left' if self.outer else 'inner'} lookup join {self.shape}"

    def arrangements(self) -> tuple[Arrangement, ...]:
        """Return the arrangement of the right side by key."""
        return (Arrangement(schema=self.shape.right, key=self.shape.right_on),)

    def integrals(self) -> tuple[Integral | None, ...]:
        """Return the integral of the right input."""
        return (self.shape.integral(1),)

    def step(self, context: StepContext, state: State, inputs: tuple[Batch, ...]) -> Batch:
        """Return the new left rows joined with the right side after this step's changes."""
        shape = self.shape
        (by_key,) = self.arrangements()
        right = arrange(shape.meeting(inputs[1], 1)[0], by_key)
        able, lonely = shape.meeting(_new(context, inputs[0]), 0)
        made = [shape.alone(lonely, 0, lonely.weight)] if self.outer else []
        if len(able):
            left = arrange(able, Arrangement(schema=shape.left, key=shape.left_on))
            found = state.spine(0).with_batch(right).matches(left.words[0], words=False)
            query, rows = shape.same_key(left, *found, 0)
            weights = product(left.weight[query], rows.weight)
            made.append(shape.paired(left, query, rows, np.arange(len(rows)), weights))
            if self.outer:
                partners = np.zeros((len(left), 1), np.int64)
                scatter_add(partners, query, rows.weights)
                made.append(shape.alone(left, 0, np.where(partners[:, 0] > 0, 0, left.weight)))
        if len(right):
            state.append(0, right)
        return concat(made, shape.schema)


def _new(context: StepContext, rows: Batch) -> Batch:
    """Return the inserted rows, and report the deleted ones as failures."""
    if len(rows) == 0:
        return rows
    rows = consolidate(rows)
    gone = rows.filter(rows.weight < 0)
    report(context, gone, gone.schema.names, gone.weight, dict.fromkeys(range(len(gone)), REASON))
    return rows.filter(rows.weight > 0).loose()

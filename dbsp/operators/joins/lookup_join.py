"""Lookup join: every new left row with the right side as it is in the step in which the row comes; never changed again.

**Law** output of step n = Da(n) ⋈ b(n), with b(n) the right side after step n's changes: bilinear in these. It is no function of
the tables alone, but of how their changes are cut into steps, which the log records: a replay gives the same rows.

**State** the right side by key.

**Cost** per new left row one look-up, and the pairs it makes.

**Errors** a left row that is taken back cannot be answered: it goes to the dead-letter log, and what was given for it stays.
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
    """`outer` keeps left rows without a match."""

    depends_on_time: ClassVar[Time] = Time.STEPS
    shape: JoinShape
    outer: bool

    def __str__(self) -> str:
        """The keys."""
        return f"{'left' if self.outer else 'inner'} lookup join {self.shape}"

    def arrangements(self) -> tuple[Arrangement, ...]:
        """The right side."""
        return (Arrangement(schema=self.shape.right, key=self.shape.right_on),)

    def integrals(self) -> tuple[Integral | None, ...]:
        """The right side."""
        return (self.shape.integral(1),)

    def step(self, context: StepContext, state: State, inputs: tuple[Batch, ...]) -> Batch:
        """The new rows with what there is."""
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
    """The rows that came; those that were taken back are noted."""
    if len(rows) == 0:
        return rows
    rows = consolidate(rows)
    gone = rows.filter(rows.weight < 0)
    report(context, gone, gone.schema.names, gone.weight, dict.fromkeys(range(len(gone)), REASON))
    return rows.filter(rows.weight > 0).loose()

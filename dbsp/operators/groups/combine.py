"""Combine: pre-sum rows into the form that an aggregate needs, before the exchange.

**Law** Linear: the form of a + b is the form of a plus the form of b. So summing before the exchange and again after it
gives the same result. Several rows of a group become one row of sums.

If rows are stored in an order, they are sent in that order, so that their owner need not sort. If an aggregate needs only the
first rows in some orders and no row is deleted, other rows are not sent.
The reason: the first of a + b is the first of a or of b.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

from dbsp.operators.groups.leading import leading
from dbsp.operators.monotone_bounds import MonotoneBounds
from dbsp.operators.operator import Operator, State, StepContext, Time
from dbsp.stored import stored
from dbsp.zset.batch import Batch, arrange, no_rows_of
from dbsp.zset.schema import Arrangement, OrderBy


class Form(Protocol):
    """A linear transformation of rows into what an aggregate sums.

    The result has the columns that the aggregate needs, and one weight for each of its sums.
    """

    def arrangement(self) -> Arrangement:
        """Return the schema, the key and the number of weights of the transformed rows."""
        ...

    def of(self, batch: Batch) -> Batch:
        """Return the transformed rows as a loose batch: in any order, and perhaps repeated."""
        ...


@stored("Combine", "form order firsts")
@dataclass(frozen=True, slots=True, kw_only=True)
class Combine(Operator):
    """Convert rows into a form and add up equal rows, sorted within each key by `order`.

    With `firsts`, keep only rows that may be the first of their key in one of these orders; for inputs without deletions.
    """

    depends_on_time: ClassVar[Time] = Time.NOTHING
    form: Form
    order: tuple[OrderBy, ...] = ()
    firsts: tuple[OrderBy, ...] = ()

    def __str__(self) -> str:
        """Return the form and the orders as text."""
        firsts = f", first by {' and by '.join(map(str, self.firsts))}" if self.firsts else ""
        return f"combine {self.form}{firsts}"

    def monotone_bounds(self, inputs: Sequence[MonotoneBounds]) -> MonotoneBounds:
        """Return the bounds of the group's keys."""
        keys = self.form.arrangement().key
        return {name: bound for name, bound in inputs[0].items() if name in keys}

    def step(self, context: StepContext, state: State, inputs: tuple[Batch, ...]) -> Batch:  # noqa: ARG002 (protocol)
        """Return the transformed rows of the delta, with equal rows summed and arranged by key."""
        arrangement = replace(self.form.arrangement(), order=self.order)
        if len(inputs[0]) == 0:
            return no_rows_of(arrangement)
        rows = self.form.of(inputs[0])
        return arrange(leading(rows, arrangement.key, self.firsts) if self.firsts else rows, arrangement)

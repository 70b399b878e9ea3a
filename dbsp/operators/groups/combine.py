"""Combine: rows pre-summed into what an aggregate needs of them, before they travel.

**Law** linear: a form of a + b is the form of a plus the form of b, so summing before the exchange and again after it
gives the same. Several rows of a group become one row of sums.

Where rows are kept in an order, they travel in it, so that their owner has nothing to sort. Where an aggregate only asks for
the first rows in some orders and no row ever goes, the others do not travel: the first of a + b is the first of a or of b.
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
    """What rows become for an aggregate: fewer columns, perhaps several weights; linear."""

    def arrangement(self) -> Arrangement:
        """Schema, key and weights of the result."""
        ...

    def of(self, batch: Batch) -> Batch:
        """The rows in this form, loose."""
        ...


@stored("Combine", "form order firsts")
@dataclass(frozen=True, slots=True, kw_only=True)
class Combine(Operator):
    """Brings rows into a form and adds up equal ones, sorted within each key by `order`.

    With `firsts` only rows that may be the first of their key in one of these orders: for rows that never go.
    """

    depends_on_time: ClassVar[Time] = Time.NOTHING
    form: Form
    order: tuple[OrderBy, ...] = ()
    firsts: tuple[OrderBy, ...] = ()

    def __str__(self) -> str:
        """What rows become."""
        firsts = f", first by {' and by '.join(map(str, self.firsts))}" if self.firsts else ""
        return f"combine {self.form}{firsts}"

    def monotone_bounds(self, inputs: Sequence[MonotoneBounds]) -> MonotoneBounds:
        """That of the group's keys."""
        keys = self.form.arrangement().key
        return {name: bound for name, bound in inputs[0].items() if name in keys}

    def step(self, context: StepContext, state: State, inputs: tuple[Batch, ...]) -> Batch:  # noqa: ARG002 (protocol)
        """The sums of the changed rows."""
        arrangement = replace(self.form.arrangement(), order=self.order)
        if len(inputs[0]) == 0:
            return no_rows_of(arrangement)
        rows = self.form.of(inputs[0])
        return arrange(leading(rows, arrangement.key, self.firsts) if self.firsts else rows, arrangement)

"""Combine: rows pre-summed into what an aggregate needs of them, before they travel.

**Law** linear: a form of a + b is the form of a plus the form of b, so summing before the exchange and again after it
gives the same. Several rows of a group become one row of sums.

Where rows are kept in an order, they travel in it, so that their owner has nothing to sort.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from dbsp.horizon import Horizon
from dbsp.operators.operator import Operator, State, StepContext
from dbsp.zset.batch import Batch, arrange
from dbsp.zset.schema import Arrangement, OrderBy


class Form(Protocol):
    """What rows become for an aggregate: fewer columns, perhaps several weights; linear."""

    def arrangement(self) -> Arrangement:
        """Schema, key and weights of the result."""
        ...

    def of(self, batch: Batch) -> Batch:
        """The rows in this form, loose."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Combine(Operator):
    """Brings rows into a form and adds up equal ones, sorted within each key by `order`."""

    form: Form
    order: tuple[OrderBy, ...] = ()

    def __str__(self) -> str:
        """What rows become."""
        return f"combine {self.form}"

    def horizon(self, inputs: Sequence[Horizon]) -> Horizon:
        """That of the group's keys."""
        keys = self.form.arrangement().key
        return {name: bound for name, bound in inputs[0].items() if name in keys}

    def step(self, context: StepContext, state: State, inputs: tuple[Batch, ...]) -> Batch:  # noqa: ARG002 (protocol)
        """The sums of the changed rows."""
        arrangement = replace(self.form.arrangement(), order=self.order)
        if len(inputs[0]) == 0:
            return arrange(Batch.empty(arrangement.schema, arrangement.weights), arrangement)
        return arrange(self.form.of(inputs[0]), arrangement)

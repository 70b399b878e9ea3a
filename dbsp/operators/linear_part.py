"""Counts, exact sums of whole numbers, and their means: aggregates that are linear in the rows.

**State** per group one row whose weights are: the number of rows, then per measure a count of values that are not null or
the limbs of a sum (`dbsp.operators.limbs`). The row leaves when all are zero.

**Law** what is kept of a + b is the sum of what is kept of a and of b; so one look-up and one append per step.

**Limit** an int64 sum that leaves 64 bits, or a decimal sum of more than 38 digits, fails the group's row by the error
policy; when rows that made it so are retracted, the row is right again.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dbsp.operators.columns import column_of
from dbsp.operators.limbs import fits_decimal, fits_int64, joined, quotients, split
from dbsp.operators.operator import State
from dbsp.operators.part import Values, group_of, key_columns
from dbsp.operators.products import product
from dbsp.zset.arrays import from_values, valid_rows
from dbsp.zset.batch import Batch
from dbsp.zset.kernels import scatter_add
from dbsp.zset.schema import INT64, Arrangement, Schema

Sums = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Measure:
    """What is summed per row: 1 where the column is not null, or the limbs of its value."""

    column: str
    limbs: int

    @property
    def slots(self) -> int:
        """How many weights it takes."""
        return max(1, self.limbs)

    def of(self, batch: Batch) -> list[Sums]:
        """What each row adds."""
        array, weight = batch.column(self.column), batch.weight
        if self.limbs:
            return [product(limb, weight) for limb in split(array)]
        valid = valid_rows(array)
        return [weight if valid is None else np.where(valid, weight, 0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearForm:
    """Rows as (keys, vector of sums)."""

    keys: Schema
    measures: tuple[Measure, ...]

    def __str__(self) -> str:
        """The counts and sums."""
        sums = ", ".join(f"{'sum' if measure.limbs else 'count'}({measure.column})" for measure in self.measures)
        return f"count(*){', ' if sums else ''}{sums} by ({', '.join(self.keys.names)})"

    def arrangement(self) -> Arrangement:
        """Keyed by the whole row, which is the group's key."""
        weights = 1 + sum(measure.slots for measure in self.measures)
        return Arrangement(schema=self.keys, key=self.keys.names, weights=weights)

    def of(self, batch: Batch) -> Batch:
        """One row per row, with its weight and its measures."""
        slots = [batch.weight]
        for measure in self.measures:
            slots += measure.of(batch)
        weights = batch.weights if len(slots) == 1 else np.column_stack(slots)
        return Batch(schema=self.keys, columns=key_columns(batch, self.keys.names), weights=weights)

    def slot(self, measure: Measure) -> int:
        """The first weight of a measure."""
        return 1 + sum(m.slots for m in self.measures[: self.measures.index(measure)])


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearCall:
    """One aggregate: function count, sum or avg; where its sum and its count of values are among the weights."""

    name: str
    function: str
    type: pa.DataType
    count_slot: int
    sum_slot: int = 0
    limbs: int = 0
    scale: int = 0

    def values(self, sums: Sums) -> tuple[pa.Array, npt.NDArray[np.bool_] | None]:
        """The column, and which rows do not fit its type."""
        count = np.ascontiguousarray(sums[:, self.count_slot])
        if self.function == "count":
            return from_values(count, INT64), None
        valid = count != 0
        low, high, fits = joined(sums[:, self.sum_slot : self.sum_slot + self.limbs])
        if self.function == "avg":
            means = quotients(low, high, np.where(valid, count, 1), self.scale)
            return column_of(means, valid & fits, self.type), valid & ~fits
        if pa.types.is_decimal(self.type):
            fits &= fits_decimal(low, high)
            words: npt.NDArray[np.uint64] = np.column_stack([low, high.view(np.uint64)])
            return column_of(words, valid & fits, self.type), valid & ~fits
        fits &= fits_int64(low, high)
        return column_of(low.view(np.int64), valid & fits, self.type), valid & ~fits


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearPart:
    """The row count, which every group-by keeps, and all its linear aggregates."""

    rows: LinearForm
    calls: tuple[LinearCall, ...]

    def __str__(self) -> str:
        """The aggregates."""
        return ", ".join(f"{call.name} = {call.function}" for call in self.calls)

    def form(self) -> LinearForm:
        """Keys and sums."""
        return self.rows

    def names(self) -> tuple[str, ...]:
        """The aggregates' names."""
        return tuple(call.name for call in self.calls)

    def arrangements(self) -> tuple[Arrangement, ...]:
        """One trace: the sums."""
        return (self.rows.arrangement(),)

    def step(self, state: State, groups: Batch, delta: Batch) -> tuple[Values, Values]:
        """Old sums from the trace, new ones by adding the change."""
        spine = state.spine(0)
        if delta is groups:
            old = spine.sums(delta)
            new = checked_sum(old, delta.weights)
        else:
            old = spine.sums(as_queries(groups, self.rows.arrangement()))
            change = np.zeros_like(old)
            change[group_of(groups, delta)] = delta.weights
            new = checked_sum(old, change)
        if len(delta):
            state.append(0, delta)
        return self.values_of(old), self.values_of(new)

    def values_of(self, sums: Sums) -> Values:
        """The columns that rows of sums stand for."""
        failed: npt.NDArray[np.bool_] | None = None
        columns = []
        for call in self.calls:
            column, wrong = call.values(sums)
            columns.append(column)
            if wrong is not None and wrong.any():
                failed = wrong if failed is None else failed | wrong
        return Values(columns=tuple(columns), failed=failed, alive=sums[:, 0] != 0)


def checked_sum(left: Sums, right: Sums) -> Sums:
    """`left + right`; `CapacityError` where a sum leaves 64 bits."""
    total = left.copy()
    scatter_add(total, np.arange(len(total)), right)
    return total


def as_queries(groups: Batch, arrangement: Arrangement) -> Batch:
    """The groups as queries of a trace of sums by group."""
    return Batch(
        schema=groups.schema,
        columns=groups.columns,
        weights=np.ones((len(groups), arrangement.weights), np.int64),
        key_hash=groups.key_hash,
        arrangement=arrangement,
    )

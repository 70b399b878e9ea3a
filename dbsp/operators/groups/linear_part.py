"""Aggregates that are linear in the rows: functions of sums of measures (`groups.measures`) per group.

**State** per group one row. Its weights are the number of rows, then the sums of each measure, then the extremes of rows that
are never removed (`groups.extremes`). The row leaves when all weights are zero.

**Law** the state of a + b is the sum of the states of a and of b. So a step needs one look-up and one append.

**Limit** a result that does not fit its type fails the group's row by the error policy. When the rows that caused it are
retracted, the row is right again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dbsp.operators.groups.extremes import ExtremesForm
from dbsp.operators.groups.linear_form import LinearForm, Sums
from dbsp.operators.groups.part import Values, group_of
from dbsp.operators.operator import State
from dbsp.stored import stored
from dbsp.zset.batch import Batch
from dbsp.zset.kernels import scatter_add
from dbsp.zset.schema import Arrangement

Mask = npt.NDArray[np.bool_]
Failed = Mask | Mapping[int, str] | None


class FinishSums(Protocol):
    """A function from sums to a result; a frozen value."""

    def column(self, sums: Sequence[Sums], type_: pa.DataType) -> tuple[pa.Array, Failed]:
        """Return the column, and the groups that failed, perhaps with reasons; `sums` has an (n, slots) array per measure."""
        ...


@stored("LinearCall", "name type slots finish")
@dataclass(frozen=True, slots=True, kw_only=True)
class LinearCall:
    """An aggregate: the slots of its sums among the weights, and the function from sums to the result."""

    name: str
    type: pa.DataType
    slots: tuple[tuple[int, int], ...]
    finish: FinishSums

    def values(self, sums: Sums) -> tuple[pa.Array, Failed]:
        """Return the column, and the groups whose result does not fit its type."""
        return self.finish.column([sums[:, first:last] for first, last in self.slots], self.type)


@stored("LinearPart", "rows calls")
@dataclass(frozen=True, slots=True, kw_only=True)
class LinearPart:
    """The row count, which each group-by stores, and all its linear aggregates."""

    rows: LinearForm | ExtremesForm
    calls: tuple[LinearCall, ...]

    def __str__(self) -> str:
        """Return the aggregates as text."""
        return ", ".join(f"{call.name} = {call.finish}" for call in self.calls)

    def form(self) -> LinearForm | ExtremesForm:
        """Return the form of keys and sums, perhaps with extremes."""
        return self.rows

    def names(self) -> tuple[str, ...]:
        """Return the aggregates' names."""
        return tuple(call.name for call in self.calls)

    def arrangements(self) -> tuple[Arrangement, ...]:
        """Return the arrangement of the one trace: the sums."""
        return (self.rows.kept(),)

    def arrived(self, batch: Batch) -> Batch:
        """Return the rows of all workers in the trace's form, each group once."""
        return self.rows.arrived(batch)

    def step(self, state: State, groups: Batch, delta: Batch) -> tuple[Values, Values]:
        """Return the columns of the old and of the new sums."""
        old, new = self.sums(state, groups, delta)
        return self.values_of(old), self.values_of(new)

    def sums(self, state: State, groups: Batch, delta: Batch) -> tuple[Sums, Sums]:
        """Return the old sums from the trace, and the new ones with the change; the first weight is the number of rows."""
        spine = state.spine(0)
        at = None if delta is groups else group_of(groups, delta)
        old = spine.sums(delta if at is None else as_queries(groups, self.rows.kept()))
        came = delta.weights if at is None else _spread(delta.weights, at, len(groups))
        moved = self.rows.moved(old, came)
        if len(delta):
            state.append(0, delta if moved is came else delta.but(weights=moved if at is None else moved[at]))
        return old, checked_sum(old, moved)

    def values_of(self, sums: Sums) -> Values:
        """Return the output columns that rows of sums denote.

        **Cost** the sums are copied into column order, because each result reads one or a few columns.
        """
        sums = np.asfortranarray(sums)
        failed: Mask | None = None
        reasons: dict[int, str] = {}
        columns = []
        for call in self.calls:
            column, wrong = call.values(sums)
            columns.append(column)
            if isinstance(wrong, Mapping):
                reasons = {**wrong, **reasons}
                marked = np.zeros(len(sums), np.bool_)
                marked[list(wrong)] = True
                wrong = marked
            if wrong is not None and wrong.any():
                failed = wrong if failed is None else failed | wrong
        return Values(columns=tuple(columns), failed=failed, reasons=reasons)


def _spread(weights: Sums, group: npt.NDArray[np.int64], groups: int) -> Sums:
    """Return the weights of each group, which has one row or none; zeros for none."""
    spread = np.zeros((groups, weights.shape[1]), np.int64)
    spread[group] = weights
    return spread


def checked_sum(left: Sums, right: Sums) -> Sums:
    """Return `left + right`; raise `CapacityError` if a sum exceeds 64 bits."""
    total = left.copy()
    scatter_add(total, np.arange(len(total)), right)
    return total


def as_queries(groups: Batch, arrangement: Arrangement) -> Batch:
    """Return the groups as queries of a trace of sums by group."""
    return Batch(
        schema=groups.schema,
        columns=groups.held,
        weights=np.ones((len(groups), arrangement.weights), np.int64),
        key_hash=groups.key_hash,
        arrangement=arrangement,
    )

"""Aggregates that are linear in the rows: sums of measures (`groups.measures`) per group, and what is made of them.

**State** per group one row whose weights are: the number of rows, then the sums of every measure, then extremes of rows that
never go (`groups.extremes`). The row leaves when all are zero.

**Law** what is kept of a + b is the sum of what is kept of a and of b; so one look-up and one append per step.

**Limit** a result that does not fit its type fails the group's row by the error policy; when rows that made it so are
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
    """How a result is made of sums; a frozen value."""

    def column(self, sums: Sequence[Sums], type_: pa.DataType) -> tuple[pa.Array, Failed]:
        """The column, and which rows failed, perhaps with reasons; `sums` has an (n, slots) array per measure."""
        ...


@stored("LinearCall", "name type slots finish")
@dataclass(frozen=True, slots=True, kw_only=True)
class LinearCall:
    """One aggregate: where its sums are among the weights, and what is made of them."""

    name: str
    type: pa.DataType
    slots: tuple[tuple[int, int], ...]
    finish: FinishSums

    def values(self, sums: Sums) -> tuple[pa.Array, Failed]:
        """The column, and which rows do not fit its type."""
        return self.finish.column([sums[:, first:last] for first, last in self.slots], self.type)


@stored("LinearPart", "rows calls")
@dataclass(frozen=True, slots=True, kw_only=True)
class LinearPart:
    """The row count, which every group-by keeps, and all its linear aggregates."""

    rows: LinearForm | ExtremesForm
    calls: tuple[LinearCall, ...]

    def __str__(self) -> str:
        """The aggregates."""
        return ", ".join(f"{call.name} = {call.finish}" for call in self.calls)

    def form(self) -> LinearForm | ExtremesForm:
        """Keys and sums, perhaps with extremes."""
        return self.rows

    def names(self) -> tuple[str, ...]:
        """The aggregates' names."""
        return tuple(call.name for call in self.calls)

    def arrangements(self) -> tuple[Arrangement, ...]:
        """One trace: the sums."""
        return (self.rows.kept(),)

    def arrived(self, batch: Batch) -> Batch:
        """What came from all workers as the trace has it, each group once."""
        return self.rows.arrived(batch)

    def step(self, state: State, groups: Batch, delta: Batch) -> tuple[Values, Values]:
        """The columns of old and new sums."""
        old, new = self.sums(state, groups, delta)
        return self.values_of(old), self.values_of(new)

    def sums(self, state: State, groups: Batch, delta: Batch) -> tuple[Sums, Sums]:
        """Old sums from the trace, new ones by adding the change; the first of a group's is its number of rows."""
        spine = state.spine(0)
        at = None if delta is groups else group_of(groups, delta)
        old = spine.sums(delta if at is None else as_queries(groups, self.rows.kept()))
        came = delta.weights if at is None else _spread(delta.weights, at, len(groups))
        moved = self.rows.moved(old, came)
        if len(delta):
            state.append(0, delta if moved is came else delta.but(weights=moved if at is None else moved[at]))
        return old, checked_sum(old, moved)

    def values_of(self, sums: Sums) -> Values:
        """The columns that rows of sums stand for.

        **Cost** the sums are laid out anew, each by itself: every result reads one or a few of them.
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
    """Those of each group, which has one row or none."""
    spread = np.zeros((groups, weights.shape[1]), np.int64)
    spread[group] = weights
    return spread


def checked_sum(left: Sums, right: Sums) -> Sums:
    """`left + right`; `CapacityError` where a sum leaves 64 bits."""
    total = left.copy()
    scatter_add(total, np.arange(len(total)), right)
    return total


def as_queries(groups: Batch, arrangement: Arrangement) -> Batch:
    """The groups as queries of a trace of sums by group."""
    return Batch(
        schema=groups.schema,
        columns=groups.held,
        weights=np.ones((len(groups), arrangement.weights), np.int64),
        key_hash=groups.key_hash,
        arrangement=arrangement,
    )

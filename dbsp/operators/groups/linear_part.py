"""Aggregates that are linear in the rows: sums of measures (`groups.measures`) per group, and what is made of them.

**State** per group one row whose weights are: the number of rows, then the sums of every measure. The row leaves when all
are zero.

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

from dbsp.errors import CapacityError
from dbsp.operators.groups.measures import Counting
from dbsp.operators.groups.part import Values, group_of, key_columns
from dbsp.operators.operator import State
from dbsp.zset.batch import Batch, of_groups
from dbsp.zset.kernels import add_marked, scatter_add
from dbsp.zset.schema import Arrangement, Schema
from dbsp.zset.sorted_keys import Groups, few_groups

Sums = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Failed = Mask | Mapping[int, str] | None


class Measure(Protocol):
    """What each row adds to a group's sums; a frozen value. Its text is that of a sum."""

    @property
    def slots(self) -> int:
        """How many weights it takes."""
        ...

    def of(self, batch: Batch) -> list[Sums]:
        """What each row adds, one array per slot."""
        ...


class Summed(Measure, Protocol):
    """A measure that can be added up by group without an array for each row."""

    def by_group(self, batch: Batch, groups: Groups) -> list[Sums]:
        """What the rows of each group add, one array per slot; `CapacityError` where a sum leaves 64 bits on the way."""
        ...


Added = Counting | Summed
"""What a form may have as a measure."""


class Finish(Protocol):
    """How a result is made of sums; a frozen value."""

    def column(self, sums: Sequence[Sums], type_: pa.DataType) -> tuple[pa.Array, Failed]:
        """The column, and which rows failed, perhaps with reasons; `sums` has an (n, slots) array per measure."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearForm:
    """Rows as (keys, vector of sums)."""

    keys: Schema
    measures: tuple[Added, ...]

    def __str__(self) -> str:
        """The counts and sums."""
        sums = ", ".join(map(str, self.measures))
        return f"count(*){', ' if sums else ''}{sums} by ({', '.join(self.keys.names)})"

    def arrangement(self) -> Arrangement:
        """Keyed by the whole row, which is the group's key."""
        weights = 1 + sum(measure.slots for measure in self.measures)
        return Arrangement(schema=self.keys, key=self.keys.names, weights=weights)

    def of(self, batch: Batch) -> Batch:
        """One row per row, with its weight and its measures; of rows of few keys these added up, arranged.

        So nothing is laid out for each row that groups have few of; the result is the same when it has been arranged.
        """
        keys = key_columns(batch, self.keys.names)
        if (groups := few_groups(keys, len(batch))) and (added := self._added_up(batch, groups)) is not None:
            return of_groups(keys, groups, added, self.arrangement())
        slots = [batch.weight]
        for measure in self.measures:
            slots += measure.of(batch)
        weights = batch.weights if len(slots) == 1 else np.column_stack(slots)
        return Batch(schema=self.keys, columns=keys, weights=weights)

    def _added_up(self, batch: Batch, groups: Groups) -> Sums | None:
        """The sums of each group; None where one leaves 64 bits on the way."""
        counting = [measure for measure in self.measures if isinstance(measure, Counting)]
        marks = [None, *(measure.marked(batch) for measure in counting)]
        try:
            rows, *counts = add_marked(marks, batch.weight, groups.of, len(groups)).T
            counted = dict(zip(counting, counts, strict=True))
            slots = [rows]
            for measure in self.measures:
                slots += [counted[measure]] if isinstance(measure, Counting) else measure.by_group(batch, groups)
        except CapacityError:
            return None
        return np.column_stack(slots)

    def slots(self, measure: Added | None) -> tuple[int, int]:
        """The weights of a measure, from the first to before the last; of None the number of rows."""
        if measure is None:
            return 0, 1
        first = 1 + sum(m.slots for m in self.measures[: self.measures.index(measure)])
        return first, first + measure.slots


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearCall:
    """One aggregate: where its sums are among the weights, and what is made of them."""

    name: str
    type: pa.DataType
    slots: tuple[tuple[int, int], ...]
    finish: Finish

    def values(self, sums: Sums) -> tuple[pa.Array, Failed]:
        """The column, and which rows do not fit its type."""
        return self.finish.column([sums[:, first:last] for first, last in self.slots], self.type)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearPart:
    """The row count, which every group-by keeps, and all its linear aggregates."""

    rows: LinearForm
    calls: tuple[LinearCall, ...]

    def __str__(self) -> str:
        """The aggregates."""
        return ", ".join(f"{call.name} = {call.finish}" for call in self.calls)

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
        return Values(columns=tuple(columns), failed=failed, alive=sums[:, 0] != 0, reasons=reasons)


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

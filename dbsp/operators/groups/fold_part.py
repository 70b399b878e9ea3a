"""Aggregates of the whole group: its rows in a fixed order, folded into one value.

**State** the rows of each group.

**Cost** when a row of a group changes, the whole group is read and folded again. A fold has no inverse, so nothing less would
do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dbsp.operators.exact_order import sorted_within
from dbsp.operators.groups.group_rows import rows_of
from dbsp.operators.groups.part import Positions, Values
from dbsp.operators.groups.value_part import ValuePart
from dbsp.operators.operator import State
from dbsp.stored import stored
from dbsp.trace.spine import Spine
from dbsp.zset.batch import Batch
from dbsp.zset.schema import Arrangement, OrderBy


class Fold(Protocol):
    """A function from a group's rows to one value; a frozen value."""

    def of(self, rows: Batch, bounds: Positions) -> tuple[pa.Array, Mapping[int, str]]:
        """Return one value per group, and the reasons of the groups that failed.

        Group g has the rows from `bounds[g]` up to before `bounds[g + 1]`; it may have none. A row of weight w occurs w times.
        """
        ...


@stored("FoldPart", "name text values order fold")
@dataclass(frozen=True, slots=True, kw_only=True)
class FoldPart(ValuePart):
    """A fold over the rows of a group by `order`, then by all columns."""

    order: tuple[OrderBy, ...]
    fold: Fold

    def arrangements(self) -> tuple[Arrangement, ...]:
        """Return the arrangement of the rows of each group."""
        return (self.values.arrangement(),)

    def step(self, state: State, groups: Batch, delta: Batch) -> tuple[Values, Values]:
        """Return the values before and after the change."""
        spine = state.spine(0)
        old = new = self._values(spine, groups)
        if len(delta):
            new = self._values(spine.with_batch(delta), groups)
            state.append(0, delta)
        return old, new

    def _values(self, spine: Spine, groups: Batch) -> Values:
        """Return the folds of all rows of the groups."""
        group, rows = rows_of(spine, groups)
        rows = Batch(schema=self.values.values, columns=rows.columns, weights=rows.weights)
        order = sorted_within(group, rows, self.order)
        times = np.maximum(rows.weight[order], 0)
        order = np.repeat(order, times)
        bounds = np.searchsorted(group[order], np.arange(len(groups) + 1))
        column, reasons = self.fold.of(rows.take(order), bounds)
        if not reasons:
            return Values(columns=(column,))
        failed: npt.NDArray[np.bool_] = np.zeros(len(groups), np.bool_)
        failed[list(reasons)] = True
        return Values(columns=(column,), failed=failed, reasons=dict(reasons))

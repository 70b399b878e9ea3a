"""Form that several distinct counts of one column share: the values in each group, with one weight per filter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dbsp.errors import CapacityError
from dbsp.operators.groups.measures import Trues
from dbsp.operators.groups.row_form import RowForm
from dbsp.stored import stored
from dbsp.zset.batch import Batch, of_groups
from dbsp.zset.kernels import add_marked
from dbsp.zset.schema import Arrangement, Schema
from dbsp.zset.sorted_keys import KeyGroups, few_rows

Mask = npt.NDArray[np.bool_]
Weights = npt.NDArray[np.int64]


@stored("DistinctForm", "values filters")
@dataclass(frozen=True, slots=True, kw_only=True)
class DistinctForm:
    """Rows as (keys, value) without null values.

    Weight i counts the rows for which `filters[i]` is true; a filter of None is true for all rows.
    """

    values: RowForm
    filters: tuple[str | None, ...]

    def __str__(self) -> str:
        """Return the column and the filters as text."""
        return f"{self.values} where {', '.join(each or 'true' for each in self.filters)}"

    @property
    def keys(self) -> Schema:
        """Return the schema of the groups' keys."""
        return self.values.keys

    def arrangement(self) -> Arrangement:
        """Return the arrangement by group, with one weight per filter."""
        return Arrangement(schema=self.values.schema, key=self.keys.names, weights=len(self.filters))

    def of(self, batch: Batch) -> Batch:
        """Return the keys and values of the rows that pass a filter, consolidated if few rows are distinct."""
        counted = self.values.counted(batch)
        masks = [None if each is None else Trues(each).marked(counted) for each in self.filters]
        rows = self.values.shaped(counted)
        keys = len(self.keys)
        groups = few_rows(rows.held[:keys], rows.held[keys:], len(rows))
        if groups is not None and (added := _added_up(rows.weight, masks, groups)) is not None:
            return of_groups(rows.held, groups, added, self.arrangement())
        weights = np.empty((len(rows), len(masks)), np.int64)
        for slot, mask in zip(weights.T, masks, strict=True):
            np.multiply(rows.weight, True if mask is None else mask, out=slot)
        rows = rows.with_weights(weights)
        some = [mask for mask in masks if mask is not None]
        return rows if len(some) < len(masks) else rows.filter(np.logical_or.reduce(some))


def _added_up(weight: Weights, masks: Sequence[Mask | None], groups: KeyGroups) -> Weights | None:
    """Return the summed weights per group and filter; None if a sum exceeds 64 bits on the way."""
    try:
        return add_marked(masks, weight, groups.of, len(groups))
    except CapacityError:
        return None

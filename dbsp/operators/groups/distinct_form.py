"""The values of a column in each group, with one weight per filter: what several distinct counts of one column share."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dbsp.operators.groups.row_form import RowForm
from dbsp.zset.arrays import bool_values, valid_rows
from dbsp.zset.batch import Batch
from dbsp.zset.schema import Arrangement, Schema


@dataclass(frozen=True, slots=True, kw_only=True)
class DistinctForm:
    """Rows as (keys, value) without nulls; weight i counts the rows for which `filters[i]` is true, None is true for all."""

    values: RowForm
    filters: tuple[str | None, ...]

    def __str__(self) -> str:
        """The column and the filters."""
        return f"{self.values} where {', '.join(each or 'true' for each in self.filters)}"

    @property
    def keys(self) -> Schema:
        """The keys of the groups."""
        return self.values.keys

    def arrangement(self) -> Arrangement:
        """By group."""
        return Arrangement(schema=self.values.schema, key=self.keys.names, weights=len(self.filters))

    def of(self, batch: Batch) -> Batch:
        """The keys and the value of rows that some filter lets through."""
        masks = [None if each is None else _true(batch, each) for each in self.filters]
        weights = np.empty((len(batch), len(masks)), np.int64)
        for slot, mask in zip(weights.T, masks, strict=True):
            np.multiply(batch.weight, True if mask is None else mask, out=slot)
        rows = self.values.of(batch.with_weights(weights))
        some = [mask for mask in masks if mask is not None]
        return rows if len(some) < len(masks) or len(rows) < len(batch) else rows.filter(np.logical_or.reduce(some))


def _true(batch: Batch, name: str) -> npt.NDArray[np.bool_]:
    """Where a boolean column is true; null is not."""
    array = batch.column(name)
    valid = valid_rows(array)
    return bool_values(array) if valid is None else bool_values(array) & valid

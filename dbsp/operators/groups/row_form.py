"""Form for aggregates that need more than sums: the rows of a group, with the columns that the aggregate reads."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dbsp.operators.groups.measures import Trues
from dbsp.operators.groups.part import key_columns
from dbsp.stored import stored
from dbsp.zset.arrays import valid_rows
from dbsp.zset.batch import Batch
from dbsp.zset.schema import Arrangement, Column, Schema


@stored("RowForm", "keys columns present where")
@dataclass(frozen=True, slots=True, kw_only=True)
class RowForm:
    """Rows as (keys, columns), without rows that have a null in a `present` column or whose `where` column is not true."""

    keys: Schema
    columns: tuple[Column, ...]
    present: tuple[str, ...] = ()
    where: str | None = None

    def __str__(self) -> str:
        """Return the columns, the keys and the filter as text."""
        where = f" where {self.where}" if self.where else ""
        return f"values of {', '.join(c.name for c in self.columns)} by ({', '.join(self.keys.names)}){where}"

    @property
    def values(self) -> Schema:
        """Return the schema of the value columns, under names that no key has."""
        columns = (Column(value_name(c.name), c.type, c.nullable and c.name not in self.present) for c in self.columns)
        return Schema(tuple(columns))

    @property
    def schema(self) -> Schema:
        """Return the schema of the keys followed by the values."""
        return Schema((*self.keys.columns, *self.values.columns))

    def arrangement(self) -> Arrangement:
        """Return the arrangement by group."""
        return Arrangement(schema=self.schema, key=self.keys.names)

    def kept(self, batch: Batch) -> npt.NDArray[np.bool_]:
        """Return the mask of the rows that the aggregate reads: no null in a `present` column, and `where` is true."""
        keep = np.ones(len(batch), np.bool_)
        for name in self.present:
            valid = valid_rows(batch.column(name))
            keep = keep if valid is None else keep & valid
        if self.where is not None:
            keep = keep & Trues(self.where).marked(batch)
        return keep

    def counted(self, batch: Batch) -> Batch:
        """Return the rows that the aggregate reads, with all their columns."""
        keep = self.kept(batch)
        return batch if keep.all() else batch.take(np.flatnonzero(keep))

    def of(self, batch: Batch) -> Batch:
        """Return the keys and the values of the rows that the aggregate reads."""
        return self.shaped(self.counted(batch))

    def shaped(self, counted: Batch) -> Batch:
        """Return the keys and the values of `counted`, the rows that `counted()` returned."""
        columns = key_columns(counted, (*self.keys.names, *(column.name for column in self.columns)))
        return Batch(schema=self.schema, columns=columns, weights=counted.held_weights)


def value_name(column: str) -> str:
    """Return the name of a value column, which no key has."""
    return f"__value__{column}"

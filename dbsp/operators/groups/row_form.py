"""The rows of a group with the columns that an aggregate reads: what needs more than sums is kept from these."""

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
    """Rows as (keys, columns): without those with a null in a `present` column, and only where `where` is true."""

    keys: Schema
    columns: tuple[Column, ...]
    present: tuple[str, ...] = ()
    where: str | None = None

    def __str__(self) -> str:
        """The columns."""
        where = f" where {self.where}" if self.where else ""
        return f"values of {', '.join(c.name for c in self.columns)} by ({', '.join(self.keys.names)}){where}"

    @property
    def values(self) -> Schema:
        """The columns that are read, under names that no key has."""
        columns = (Column(value_name(c.name), c.type, c.nullable and c.name not in self.present) for c in self.columns)
        return Schema(tuple(columns))

    @property
    def schema(self) -> Schema:
        """The keys, then the values."""
        return Schema((*self.keys.columns, *self.values.columns))

    def arrangement(self) -> Arrangement:
        """By group."""
        return Arrangement(schema=self.schema, key=self.keys.names)

    def kept(self, batch: Batch) -> npt.NDArray[np.bool_]:
        """Which rows count."""
        keep = np.ones(len(batch), np.bool_)
        for name in self.present:
            valid = valid_rows(batch.column(name))
            keep = keep if valid is None else keep & valid
        if self.where is not None:
            keep = keep & Trues(self.where).marked(batch)
        return keep

    def counted(self, batch: Batch) -> Batch:
        """The rows that count, with all their columns."""
        keep = self.kept(batch)
        return batch if keep.all() else batch.take(np.flatnonzero(keep))

    def of(self, batch: Batch) -> Batch:
        """The keys and the values of the rows that count."""
        return self.shaped(self.counted(batch))

    def shaped(self, counted: Batch) -> Batch:
        """The keys and the values of rows that all count."""
        columns = key_columns(counted, (*self.keys.names, *(column.name for column in self.columns)))
        return Batch(schema=self.schema, columns=columns, weights=counted.held_weights)


def value_name(column: str) -> str:
    """The name of a value beside the keys."""
    return f"__value__{column}"

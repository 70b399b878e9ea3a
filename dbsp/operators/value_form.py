"""The values of one column by group: what min, max and count-distinct need of the rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dbsp.operators.part import key_columns
from dbsp.zset.arrays import valid_rows
from dbsp.zset.batch import Batch
from dbsp.zset.schema import Arrangement, Column, Schema

VALUE = "__value__"


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueForm:
    """Rows as (keys, value), without those whose value is null."""

    keys: Schema
    column: Column

    def __str__(self) -> str:
        """The column."""
        return f"values of {self.column.name} by ({', '.join(self.keys.names)})"

    @property
    def schema(self) -> Schema:
        """The keys, then the value."""
        return Schema((*self.keys.columns, Column(VALUE, self.column.type, nullable=False)))

    def arrangement(self) -> Arrangement:
        """By group."""
        return Arrangement(schema=self.schema, key=self.keys.names)

    def of(self, batch: Batch) -> Batch:
        """The keys and the value of every row that has one."""
        valid = valid_rows(batch.column(self.column.name))
        if valid is not None:
            batch = batch.take(np.flatnonzero(valid))
        columns = (*key_columns(batch, self.keys.names), batch.column(self.column.name))
        return Batch(schema=self.schema, columns=columns, weights=batch.weights)

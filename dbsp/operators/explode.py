"""Explode: output one row per element of a list.

**Law** Linear: every element's row has the weight of its input row.

**Cost** The elements of the changed rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dbsp.operators.columns import column_of
from dbsp.operators.operator import Operator, State, StepContext, Time
from dbsp.stored import stored
from dbsp.zset.arrays import gather
from dbsp.zset.batch import Batch
from dbsp.zset.schema import INT64, Schema


@stored("Explode", "column element position outer schema")
@dataclass(frozen=True, slots=True, kw_only=True)
class ExplodeOperator(Operator):
    """Replace the list column by its elements; columns that are not in `schema` are left out."""

    depends_on_time: ClassVar[Time] = Time.NOTHING
    column: str
    element: str
    position: str | None
    outer: bool
    schema: Schema

    def __str__(self) -> str:
        """Return the operator's name with the list column."""
        return f"{'outer ' if self.outer else ''}explode {self.column}"

    def step(self, context: StepContext, state: State, inputs: tuple[Batch, ...]) -> Batch:  # noqa: ARG002 (protocol)
        """Return one row per element of the changed rows; with `outer`, also one for an empty list."""
        (batch,) = inputs
        lists = batch.column(self.column)
        counts = np.asarray(pc.fill_null(pc.list_value_length(lists), 0)).astype(np.int64)
        places = np.maximum(counts, 1) if self.outer else counts
        origin = np.repeat(np.arange(len(batch)), places)
        first = np.cumsum(places) - places
        at = np.arange(len(origin)) - first[origin]
        valid = at < counts[origin]
        start = np.cumsum(counts) - counts
        taken = pa.array(start[origin] + at, INT64, mask=~valid)
        made = {self.element: lists.flatten().take(taken)}
        if self.position is not None:
            made[self.position] = column_of(at + 1, valid, INT64)
        columns = tuple(
            made[name] if name in made else gather(batch.column(name), origin) for name in self.schema.names
        )
        return Batch(schema=self.schema, columns=columns, weights=batch.weights[origin])

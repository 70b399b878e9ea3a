"""Scatter: rows with the number of a part, derived from their hash, so that they can be spread over the workers.

**Law** linear. Equal rows are in one part, so a retraction meets its row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dbsp.operators.operator import Operator, State, StepContext, Time
from dbsp.stored import stored
from dbsp.zset.arrays import from_values
from dbsp.zset.batch import Batch
from dbsp.zset.hashing import hash_columns
from dbsp.zset.schema import INT16, Column, Schema

PARTS = 64
_SHIFT = np.uint64(64 - PARTS.bit_length() + 1)


def part_column(schema: Schema) -> Column:
    """Return the added column, under a name that no other column has."""
    name = "__part"
    while name in schema:
        name += "_"
    return Column(name, INT16, nullable=False)


@stored("Scatter", "schema")
@dataclass(frozen=True, slots=True, kw_only=True)
class Scatter(Operator):
    """Add the last column of `schema`: the part number of each row, from 0 to below `PARTS`."""

    depends_on_time: ClassVar[Time] = Time.NOTHING
    schema: Schema

    def __str__(self) -> str:
        """Return the number of parts as text."""
        return f"scatter into {PARTS} parts"

    def step(self, context: StepContext, state: State, inputs: tuple[Batch, ...]) -> Batch:  # noqa: ARG002 (protocol)
        """Return the same rows with their part."""
        (batch,) = inputs
        if len(batch) == 0:
            return Batch.empty(self.schema)
        part = (hash_columns(batch.held, len(batch)) >> _SHIFT).astype(np.int16)
        return Batch(schema=self.schema, columns=(*batch.held, from_values(part, INT16)), weights=batch.weights)

"""Slots: distribute rows by hash over a fixed number of groups, each sorted by time.

Rows that are looked up by time alone have no key of their own. A single group would place all of them on one worker. A slot
number is an ordinary key, so a rescale moves slots like keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dbsp.operators.operator import Operator, State, StepContext, Time
from dbsp.stored import stored
from dbsp.zset.arrays import value_view
from dbsp.zset.batch import Batch
from dbsp.zset.hashing import hash_columns
from dbsp.zset.schema import INT16, INT64, Column, Schema

SLOT = "__slot"
SLOTS = 256
_SHIFT = np.uint64(56)
_SIGN = 1 << 63
_LEAST, _MOST = -(1 << 63) + 1, (1 << 63) - 2


@stored("Slots", "schema")
@dataclass(frozen=True, slots=True, kw_only=True)
class Slots(Operator):
    """Append the slot number of each row as a column."""

    depends_on_time: ClassVar[Time] = Time.NOTHING
    schema: Schema

    @staticmethod
    def over(schema: Schema) -> Slots:
        """Return the operator for rows of the given schema."""
        return Slots(schema=Schema((*schema.columns, Column(SLOT, INT16, nullable=False))))

    def __str__(self) -> str:
        """Return the number of slots as text."""
        return f"{SLOTS} slots"

    def step(self, context: StepContext, state: State, inputs: tuple[Batch, ...]) -> Batch:  # noqa: ARG002 (protocol)
        """Return the rows with their slot numbers."""
        (batch,) = inputs
        slot = (hash_columns(batch.held, len(batch)) >> _SHIFT).astype(np.int16)
        return Batch(schema=self.schema, columns=(*batch.held, pa.array(slot)), weights=batch.weights)


def slot_hashes() -> npt.NDArray[np.uint64]:
    """Return the distinct key hashes of all slots, sorted."""
    return np.unique(hash_columns([pa.array(np.arange(SLOTS, dtype=np.int16))], SLOTS))


def code(value: int) -> int:
    """Return the order code of an integer, clamped so that it differs from the codes of nulls."""
    return min(max(value, _LEAST), _MOST) + _SIGN


def value_of(code_: int) -> int:
    """Return the integer of an order code."""
    return code_ - _SIGN


def whole(batch: Batch, name: str) -> npt.NDArray[np.int64]:
    """Return a column without nulls as an int64 array."""
    column = batch.column(name)
    return np.asarray(value_view(column if column.type == INT64 else column.cast(INT64)))

"""Slots: rows dealt out over a fixed number of groups by their hash, so that each group can be kept in order of time.

What must be found by time alone has no key of its own; one group for all would lie on one worker. A slot is a key like any
other, so a rescale moves slots as it moves keys.
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
    """Adds the number of each row's slot."""

    depends_on_time: ClassVar[Time] = Time.NOTHING
    schema: Schema

    @staticmethod
    def over(schema: Schema) -> Slots:
        """For rows of this schema."""
        return Slots(schema=Schema((*schema.columns, Column(SLOT, INT16, nullable=False))))

    def __str__(self) -> str:
        """How many there are."""
        return f"{SLOTS} slots"

    def step(self, context: StepContext, state: State, inputs: tuple[Batch, ...]) -> Batch:  # noqa: ARG002 (protocol)
        """The rows with their slots."""
        (batch,) = inputs
        slot = (hash_columns(batch.held, len(batch)) >> _SHIFT).astype(np.int16)
        return Batch(schema=self.schema, columns=(*batch.held, pa.array(slot)), weights=batch.weights)


def slot_hashes() -> npt.NDArray[np.uint64]:
    """The key hashes of all slots, sorted, each once."""
    return np.unique(hash_columns([pa.array(np.arange(SLOTS, dtype=np.int16))], SLOTS))


def code(value: int) -> int:
    """The order code of a whole number, kept off the codes that nulls have."""
    return min(max(value, _LEAST), _MOST) + _SIGN


def value_of(code_: int) -> int:
    """The whole number of an order code."""
    return code_ - _SIGN


def whole(batch: Batch, name: str) -> npt.NDArray[np.int64]:
    """An int64 column without nulls."""
    column = batch.column(name)
    return np.asarray(value_view(column if column.type == INT64 else column.cast(INT64)))

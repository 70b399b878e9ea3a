"""Upsert: turn the operations on a table with a primary key into a Z-set with one row per key.

**Law** Per key the last operation of the step wins. An insert replaces the row of its key. A delete of an absent key changes
nothing, and neither does a replacement by the same row.

**State** The current rows, keyed by the primary key, with the needed columns.

**Cost** One look-up per changed key, with all columns of its row. A large state has many chunks; each chunk that contains a
changed key costs some 20 microseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dbsp.logs import INSERT
from dbsp.operators.keyed_runs import KeyedRuns, keyed_runs
from dbsp.operators.operator import OUTPUT, Integral, Operator, Shows, SignatureParts, State, StepContext, Time
from dbsp.operators.source import OPERATION, POSITION
from dbsp.stored import stored, stored_name
from dbsp.zset.arrays import value_view
from dbsp.zset.batch import Batch, arrange, concat
from dbsp.zset.equality import equal_columns
from dbsp.zset.hashing import hash_decides
from dbsp.zset.schema import Arrangement, Schema

_SIGN = np.uint64(1 << 63)


@stored("Upsert", "schema key")
@dataclass(frozen=True, slots=True, kw_only=True)
class Upsert(Operator):
    """Maintain the rows of a table by their primary key."""

    depends_on_time: ClassVar[Time] = Time.NOTHING
    schema: Schema
    key: tuple[str, ...]

    def __str__(self) -> str:
        """Return the key columns as text."""
        return f"upsert by ({', '.join(self.key)})"

    def arrangements(self) -> tuple[Arrangement, ...]:
        """Return the arrangement of the rows by primary key."""
        return (Arrangement(schema=self.schema, key=self.key),)

    def integrals(self) -> tuple[Integral | None, ...]:
        """Return the integral of the operator's own output."""
        return (Integral(stream=OUTPUT),)

    def keeps_table(self) -> bool:
        """Return True: the trace contains the table."""
        return True

    def hands_on_rows(self) -> bool:
        """Return True: a row that enters the output is a pushed row."""
        return True

    def signature(self, given: SignatureParts) -> str:
        """Return a signature that depends on the key alone: the other columns vary with the needs of readers."""
        return given.hashed(stored_name(type(self)), str(self.key), given.inputs[0])

    def step(self, context: StepContext, state: State, inputs: tuple[Batch, ...]) -> Batch:  # noqa: ARG002 (protocol)
        """Return the negated old rows and the new rows of the keys that changed."""
        (operations,) = inputs
        (arrangement,) = self.arrangements()
        if len(operations) == 0:
            return Batch.empty(self.schema)
        position = value_view(operations.column(POSITION)).view(np.uint64) ^ _SIGN
        keys = [operations.column(name) for name in self.key]
        runs = keyed_runs(keys, position)
        last = operations.take(runs.last)
        old = self._old(state, last, runs)
        inserted = value_view(last.column(OPERATION)) == INSERT
        new = last.filter(inserted).project(self.schema.names)
        delta = arrange(concat([old.negate(), Batch.of(self.schema, new.columns)], self.schema), arrangement)
        if len(delta):
            state.append(0, delta)
        return delta

    def shows(self) -> Shows | None:
        """Return the operator itself: its trace is its output."""
        return self

    def shown(self, kept: Batch, error_policy: str) -> Batch:  # noqa: ARG002 (protocol)
        """Return the stored rows unchanged."""
        return kept

    def _old(self, state: State, last: Batch, runs: KeyedRuns) -> Batch:
        """Return the stored rows of the changed keys, in the order of the trace."""
        query, found = state.spine(0).matches(runs.key_hash, words=False)
        keys = [last.column(name) for name in self.key]
        stored = [found.column(name) for name in self.key]
        if hash_decides(keys) and hash_decides(stored):
            return found
        same = equal_columns(keys, query, stored, np.arange(len(found)))
        return found.take(np.flatnonzero(same))

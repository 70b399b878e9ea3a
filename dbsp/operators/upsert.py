"""Upsert: the operations on a table with a primary key become a Z-set that holds one row per key.

**Law** per key the last operation of the step wins. An insert takes the place of the row of its key; a delete of an absent
key does nothing; a replacement by the same row changes nothing.

**State** the rows as they are, keyed by the primary key, with the columns that are needed.

**Cost** a look-up per changed key, with all columns of its row. A large state lies in many chunks, and each that holds a changed
key is some 20 microseconds: at most as many as keys change.
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
    """Keeps the rows of a table by their primary key."""

    depends_on_time: ClassVar[Time] = Time.NOTHING
    schema: Schema
    key: tuple[str, ...]

    def __str__(self) -> str:
        """The key."""
        return f"upsert by ({', '.join(self.key)})"

    def arrangements(self) -> tuple[Arrangement, ...]:
        """The rows, by primary key."""
        return (Arrangement(schema=self.schema, key=self.key),)

    def integrals(self) -> tuple[Integral | None, ...]:
        """The rows it gives."""
        return (Integral(stream=OUTPUT),)

    def keeps_table(self) -> bool:
        """Return True: the trace is the table."""
        return True

    def hands_on_rows(self) -> bool:
        """Return True: a row that enters the answer is a row that was pushed."""
        return True

    def signature(self, given: SignatureParts) -> str:
        """Return a signature that depends on the key alone: the columns of the rows are those that readers need."""
        return given.hashed(stored_name(type(self)), str(self.key), given.inputs[0])

    def step(self, context: StepContext, state: State, inputs: tuple[Batch, ...]) -> Batch:  # noqa: ARG002 (protocol)
        """-old +new of the keys whose row changed."""
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
        """Itself."""
        return self

    def shown(self, kept: Batch, error_policy: str) -> Batch:  # noqa: ARG002 (protocol)
        """The rows as they are kept."""
        return kept

    def _old(self, state: State, last: Batch, runs: KeyedRuns) -> Batch:
        """The stored rows of the keys, as they lie in the trace."""
        query, found = state.spine(0).matches(runs.key_hash, words=False)
        keys = [last.column(name) for name in self.key]
        stored = [found.column(name) for name in self.key]
        if hash_decides(keys) and hash_decides(stored):
            return found
        same = equal_columns(keys, query, stored, np.arange(len(found)))
        return found.take(np.flatnonzero(same))

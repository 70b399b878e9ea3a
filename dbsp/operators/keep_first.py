"""Keep first: pass on the first row of each primary key of an append-only table; later rows are dead letters.

**Law** Per key the first row that ever arrived passes; within a step, the row with the lowest position. Every other row is
reported.

**State** The keys, without the other columns.

**Cost** One look-up per new row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from dbsp.operators.failures import report
from dbsp.operators.keyed_runs import KeyedRuns, Positions, keyed_runs
from dbsp.operators.operator import Operator, SignatureParts, State, StepContext, Time
from dbsp.operators.source import POSITION
from dbsp.stored import stored, stored_name
from dbsp.zset.arrays import value_view
from dbsp.zset.batch import Batch, arrange
from dbsp.zset.equality import equal_columns
from dbsp.zset.hashing import hash_decides
from dbsp.zset.schema import Arrangement, Schema

REASON = "a second row of its primary key in an append-only table"
Mask = npt.NDArray[np.bool_]
_SIGN = np.uint64(1 << 63)


@stored("KeepFirst", "schema key")
@dataclass(frozen=True, slots=True, kw_only=True)
class KeepFirst(Operator):
    """Pass on the first row of each key, and store the keys seen so far."""

    depends_on_time: ClassVar[Time] = Time.NOTHING
    schema: Schema
    key: tuple[str, ...]

    def __str__(self) -> str:
        """Return the key columns as text."""
        return f"first of each ({', '.join(self.key)})"

    def arrangements(self) -> tuple[Arrangement, ...]:
        """Return the arrangement of the keys."""
        return (Arrangement(schema=self.schema.select(self.key), key=self.key),)

    def signature(self, given: SignatureParts) -> str:
        """Return a signature that depends on the key alone: the other columns vary with the needs of readers."""
        return given.hashed(stored_name(type(self)), str(self.key), given.inputs[0])

    def step(self, context: StepContext, state: State, inputs: tuple[Batch, ...]) -> Batch:
        """Return the rows whose key is new, and report the others."""
        rows = inputs[0]
        if len(rows) == 0:
            return Batch.empty(self.schema)
        (arrangement,) = self.arrangements()
        position = value_view(rows.column(POSITION)).view(np.uint64) ^ _SIGN
        rows = rows.project(self.schema.names)
        runs = keyed_runs([rows.column(name) for name in self.key], position)
        first = runs.order[runs.starts]
        fresh = np.zeros(len(rows), np.bool_)
        fresh[first[~self._known(state, rows, first, runs)]] = True
        if not fresh.all():
            reasons = dict.fromkeys(np.flatnonzero(~fresh).tolist(), REASON)
            report(context, rows, self.schema.names, rows.weight, reasons)
            rows = rows.filter(fresh)
        if len(rows):
            state.append(0, arrange(rows.project(self.key), arrangement))
        return Batch.of(self.schema, rows.columns)

    def _known(self, state: State, rows: Batch, first: Positions, runs: KeyedRuns) -> Mask:
        """Return the mask of the step's keys that existed before the step."""
        query, found = state.spine(0).matches(runs.key_hash, words=False)
        keys, stored = [rows.column(name) for name in self.key], list(found.columns)
        if not (hash_decides(keys) and hash_decides(stored)):
            query = query[equal_columns(keys, first[query], stored, np.arange(len(found)))]
        known = np.zeros(len(first), np.bool_)
        known[query] = True
        return known

"""Show a step's segments the state that moved at the step's start: added to the traces, and written with their changes.

A worker takes over rows with their weights, and drops rows by adding them negated. So both are one more batch of the
trace, and the trace after the step contains it like any other change. Nothing is written before a segment writes. So
a step that runs again moves the same rows again, from the state as of step-1.

Source: docs/concepts/rescale.md; design record 0015.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from dbsp.distribute.keys import NO_KEYS
from dbsp.distribute.places import KeyPlaces
from dbsp.runtime.migration_state import MigrationState, keep
from dbsp.store import Database, StepTransaction, TraceSpec
from dbsp.trace.retention import RetentionBound
from dbsp.trace.spine import Spine
from dbsp.zset.batch import Batch
from dbsp.zset.merge import merge

Rows = Mapping[int, Batch]
"""Arranged rows by the number of their trace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """The migration data of a step's tasks, in addition to the order.

    - `places` says to which worker rows are routed.
    - `moved` contains the rows that every worker took over and dropped at the start.
    - `kept` is each worker's migration state after the step.
    - `finds` is True if keys were determined in the step; `begins` is True in the migration's first step.

    A task may get only the part of its own worker.
    """

    places: KeyPlaces
    moved: Mapping[int, Rows] = field(default_factory=dict)
    kept: Mapping[int, MigrationState] = field(default_factory=dict)
    finds: bool = False
    begins: bool = False

    def keep(self, database: Database, worker: int, epoch: int, step: int) -> None:
        """Write the worker's migration state; the worker calls this as its last action in the step."""
        keys = self.places.given_by(worker) if self.finds else NO_KEYS
        keep(database, epoch, step, self.kept[worker], self.begins, keys)


def moved_over(
    migration: Migration | None, worker: int, transaction: StepTransaction, traces: Sequence[TraceSpec]
) -> StepTransaction:
    """Return a worker's transaction with the moved rows on top of its traces.

    The transaction writes `traces`, and may read those of other segments.
    """
    rows = migration.moved.get(worker, {}) if migration is not None else {}
    return _Moved(transaction, tuple(traces), rows, transaction.done) if rows else transaction


@dataclass(slots=True)
class _Moved:
    """A step's transaction with moved rows; see `dbsp.store.StepTransaction`."""

    transaction: StepTransaction
    traces: tuple[TraceSpec, ...]
    rows: Rows
    done: bool
    touched: set[int] = field(default_factory=set)

    def __enter__(self) -> Self:
        """Return this object: the wrapped transaction is entered already."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Do nothing: the caller leaves the wrapped transaction."""

    def spine(self, trace: TraceSpec) -> Spine:
        """Return the trace as of step-1, after the move."""
        spine = self.transaction.spine(trace)
        return spine.with_batch(self.rows[trace.id]) if trace.id in self.rows else spine

    def append(self, trace: TraceSpec, batch: Batch, retention: RetentionBound | None = None) -> None:
        """Add a batch, merged with the trace's moved rows."""
        self.touched.add(trace.id)
        whole = merge(self.rows[trace.id], batch) if trace.id in self.rows else batch
        self.transaction.append(trace, whole, retention)

    def finish(self) -> None:
        """Write everything, also for traces that only have moved rows."""
        for trace in self.traces:
            if trace.id in self.rows and trace.id not in self.touched:
                self.transaction.append(trace, self.rows[trace.id])
        self.transaction.finish()

"""State that moved at the start of a step, as the step's segments see it: on top of the traces, written with what they add.

What a worker takes over are rows with their weights, what it drops are the same rows negated, so both are one more batch of the
trace, and the trace after the step holds it like any other change. Nothing is written before a segment writes, so a step that
is run again moves the same rows again, from the state as of step-1.

Source: docs/concepts/rescale.md; design record 0015.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from dbsp.distribute.keys import NO_KEYS
from dbsp.distribute.places import Places
from dbsp.runtime.kept import Kept, keep
from dbsp.store import Database, StepTransaction, TraceSpec
from dbsp.trace.floor import Floor
from dbsp.trace.spine import Spine
from dbsp.zset.batch import Batch
from dbsp.zset.merge import merge

Rows = Mapping[int, Batch]
"""Arranged rows by the number of their trace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """What the tasks of a migration's step are given beside its order.

    `places` say where rows pass, `moved` what every worker took over and dropped at the start, `kept` what it keeps after the
    step; `finds`: keys were found out in it, `begins`: it is the first one. A task may be given its own worker's part alone.
    """

    places: Places
    moved: Mapping[int, Rows] = field(default_factory=dict)
    kept: Mapping[int, Kept] = field(default_factory=dict)
    finds: bool = False
    begins: bool = False

    def keep(self, database: Database, worker: int, epoch: int, step: int) -> None:
        """Write what the worker keeps; the last thing it does in the step."""
        keys = self.places.given_by(worker) if self.finds else NO_KEYS
        keep(database, epoch, step, self.kept[worker], self.begins, keys)


def moved_over(
    migration: Migration | None, worker: int, transaction: StepTransaction, traces: Sequence[TraceSpec]
) -> StepTransaction:
    """A worker's transaction with what moved on top of its traces; it writes `traces`, and may read those of other segments."""
    rows = migration.moved.get(worker, {}) if migration is not None else {}
    return _Moved(transaction, tuple(traces), rows, transaction.done) if rows else transaction


@dataclass(slots=True)
class _Moved:
    """See `dbsp.store.StepTransaction`."""

    transaction: StepTransaction
    traces: tuple[TraceSpec, ...]
    rows: Rows
    done: bool
    touched: set[int] = field(default_factory=set)

    def __enter__(self) -> Self:
        """The transaction is entered already."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """The transaction is left by who entered it."""

    def spine(self, trace: TraceSpec) -> Spine:
        """The trace as of step-1, after the move."""
        spine = self.transaction.spine(trace)
        return spine.with_batch(self.rows[trace.id]) if trace.id in self.rows else spine

    def append(self, trace: TraceSpec, batch: Batch, floor: Floor | None = None) -> None:
        """Add a batch, with what moved."""
        self.touched.add(trace.id)
        whole = merge(self.rows[trace.id], batch) if trace.id in self.rows else batch
        self.transaction.append(trace, whole, floor)

    def finish(self) -> None:
        """Write everything, also for traces that only moved."""
        for trace in self.traces:
            if trace.id in self.rows and trace.id not in self.touched:
                self.transaction.append(trace, self.rows[trace.id])
        self.transaction.finish()

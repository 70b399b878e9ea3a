"""Signals that say how far event time is in each input partition that a worker reads; computed before any exchange.

**Law** the maxima of all workers' signals depend on the rows of the step alone, because every range is read by one
worker.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter

import numpy as np

from dbsp.logs import INSERT, Changes, StepRecord
from dbsp.operators.operator import StepContext
from dbsp.operators.source import OPERATION
from dbsp.plan.plan import Plan
from dbsp.steps.timing import WATERLINE, Signal
from dbsp.zset.batch import Batch


def signals_of(
    plan: Plan, record: StepRecord, changes: Sequence[Changes], tables: Mapping[str, Batch]
) -> tuple[Signal, ...]:
    """Return per watermark of a table and partition the waterline that the rows read here would allow.

    **Shape** `tables` hold the rows of `changes`, in their order: by table, then by partition.
    **Cost** one pass over the time column; filters and computed times between the table and the watermark are computed twice.
    """
    if not plan.event_times:
        return ()
    policy = "null" if plan.circuit.error_policy == "null" else "dead-letter"
    found = []
    for node, event_time in plan.event_times.items():
        for partition, rows in _by_partition(event_time.table, changes, tables):
            context = StepContext(number=record.step, error_policy=policy)
            at_us = event_time.waterline(rows, context)
            if at_us is not None:
                found.append(Signal(node=node, kind=WATERLINE, at_us=at_us, partition=partition))
    return tuple(found)


def _by_partition(table: str, changes: Sequence[Changes], tables: Mapping[str, Batch]) -> Iterator[tuple[int, Batch]]:
    """Yield the rows of a table for each partition; deletes have no positive weight."""
    first = 0
    own = (change for change in changes if change.table == table)
    for partition, pieces in groupby(own, attrgetter("partition")):
        last = first + sum(len(piece.batch) for piece in pieces)
        yield partition, _weighed(tables[table].slice(first, last))
        first = last


def _weighed(rows: Batch) -> Batch:
    """Return the rows with weights; operations on a table with a primary key get 1 for an insert and 0 for a delete."""
    if OPERATION not in rows.schema:
        return rows
    inserts = np.asarray(rows.column(OPERATION)) == INSERT
    return rows.but(weights=inserts.astype(np.int64).reshape(-1, 1))

"""Integration of a materialized view: its changes are appended to its trace."""

from __future__ import annotations

from dbsp.store import StepTransaction, TraceSpec
from dbsp.zset.batch import Batch, arrange


def integrate(delta: Batch, trace: TraceSpec, transaction: StepTransaction) -> Batch:
    """Append the change of a view to its trace, and return the change, arranged like the trace.

    **Law** After step s the trace contains the sum of the changes up to s, which is the view.
    """
    arranged = arrange(delta, trace.arrangement)
    if len(arranged):
        transaction.append(trace, arranged)
    return arranged

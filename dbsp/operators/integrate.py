"""Integration of a materialized view: its changes are added to its trace."""

from __future__ import annotations

from dbsp.store import StepTransaction, TraceSpec
from dbsp.zset.batch import Batch, arrange


def integrate(delta: Batch, trace: TraceSpec, transaction: StepTransaction) -> Batch:
    """Append the change of a view to its trace; the change, arranged as the trace is.

    **Law** after step s the trace holds the sum of the changes up to s: the view.
    """
    arranged = arrange(delta, trace.arrangement)
    if len(arranged):
        transaction.append(trace, arranged)
    return arranged

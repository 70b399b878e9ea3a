"""What a node did in a step: the figures that `explain(run)` and the metrics show."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeProfile:
    """What one node did in one step on one worker."""

    node: int
    rows_in: int
    rows_out: int
    seconds: float

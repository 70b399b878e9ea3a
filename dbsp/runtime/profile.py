"""The figures of one node in one step."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeProfile:
    """Rows, seconds and state of one node in one step on one worker; the state's size is as of the step before."""

    node: int
    rows_in: int
    rows_out: int
    seconds: float
    state_rows: int = 0
    state_bytes: int = 0

"""The step that fills what a changed circuit adds: which one it is, and when it is due.

The ledger notes it when the circuit is changed, and it is the first step after that, whatever else is wished. Once it is logged
its record says all, as of any other step; the note is dropped with the first checkpoint behind it. Source: design record 0024.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dbsp.plan.filling import filling_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Fill:
    """Step `step` runs with this command, without input, and no time passes in it."""

    step: int
    command: str


def due(fill: Fill | None, next_step: int) -> bool:
    """Whether the next step is the one that fills."""
    return fill is not None and fill.step == next_step


def is_filling(commands: Iterable[str]) -> bool:
    """Whether a step with these commands is one that fills."""
    return filling_of(commands) is not None

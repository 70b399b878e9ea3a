"""The step that fills what a changed circuit adds: which one it is, and when it is due.

The ledger notes it when the circuit is changed, and it is the first step after that,
whatever else is requested. Once it is logged
its record says all, as of any other step; the note is dropped when no version before it may be opened any more.

Source: design record 0024.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dbsp.plan.filling import filling_of
from dbsp.stored import stored


@stored("Fill", "step command")
@dataclass(frozen=True, slots=True, kw_only=True)
class Fill:
    """Step `step` runs with this command, without input, and no time passes in it."""

    step: int
    command: str


def due(fill: Fill | None, next_step: int) -> bool:
    """Whether the next step is the one that fills."""
    return fill is not None and fill.step == next_step


def kept_for(fill: Fill | None, positions: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], int]:
    """The positions below which the input log may be trimmed, while a version may be opened that stands before the fill.

    **Example** the rows of `t` may have to be read once more

    >>> from dbsp.logs import Range
    >>> from dbsp.plan.filling import Filling
    >>> past = (Range(table="t", partition=0, first=0, last=9),)
    >>> filling = Filling(kept=frozenset(), views=frozenset(["v"]), known=frozenset(), past=past)
    >>> kept_for(Fill(step=3, command=filling.to_text()), {("t", 0): 9, ("u", 0): 4})
    {('t', 0): 0, ('u', 0): 4}
    """
    filling = None if fill is None else filling_of([fill.command])
    past = () if filling is None else filling.past
    return {**positions, **{(each.table, each.partition): each.first for each in past}}


def is_filling(commands: Iterable[str]) -> bool:
    """Whether a step with these commands is one that fills."""
    return filling_of(commands) is not None

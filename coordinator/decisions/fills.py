"""The backfill step of a changed circuit: its number, its command, and when it is due.

The change of the circuit notes the backfill in the ledger. It is the first step after the change, whatever else is
requested. Once logged, the step is fully described by its record, as any other step. The note is dropped when no
version before the step can be opened any more.

Source: design record 0024.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dbsp.errors import DataError
from dbsp.plan.backfill import backfill_of
from dbsp.plan.plan import Plan, ViewSpec
from dbsp.plan.stored_views import unfilled_views, views_of
from dbsp.stored import stored


@stored("Fill", "step command old")
@dataclass(frozen=True, slots=True, kw_only=True)
class Fill:
    """The note of a backfill: step `step` runs with this command, without input, and no time passes in it.

    `old` describes the views that the step fills and that had rows before: how to read these rows (`dbsp.plan.stored_views`).
    """

    step: int
    command: str
    old: str = ""


def due(fill: Fill | None, next_step: int) -> bool:
    """Return True if the next step is the backfill step."""
    return fill is not None and fill.step == next_step


def unfilled(fill: Fill | None, next_step: int, plan: Plan) -> frozenset[str]:
    """Return the views that have no rows yet, because the next step is the backfill step that makes them."""
    if fill is None or fill.step != next_step:
        return frozenset()
    backfill = backfill_of([fill.command])
    return frozenset() if backfill is None else unfilled_views(plan, backfill.kept, backfill.views)


def old_views(fill: Fill | None, next_step: int) -> Mapping[str, ViewSpec]:
    """Return the edited views that are read from their old rows, because the next step is the backfill step.

    If another version of dbsp stored how views are read, the result is empty, and reads wait for the backfill step.
    """
    if fill is None or fill.step != next_step:
        return {}
    try:
        return views_of(fill.old)
    except DataError:
        return {}


def kept_for(fill: Fill | None, positions: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], int]:
    """Return the positions below which the input log may be trimmed while a version before the backfill can be opened.

    **Example** the rows of `t` may have to be read once more

    >>> from dbsp.logs import Range
    >>> from dbsp.plan.backfill import Backfill
    >>> past = (Range(table="t", partition=0, first=0, last=9),)
    >>> backfill = Backfill(kept=frozenset(), views=frozenset(["v"]), known=frozenset(), past=past)
    >>> kept_for(Fill(step=3, command=backfill.to_text()), {("t", 0): 9, ("u", 0): 4})
    {('t', 0): 0, ('u', 0): 4}
    """
    backfill = None if fill is None else backfill_of([fill.command])
    past = () if backfill is None else backfill.past
    return {**positions, **{(each.table, each.partition): each.first for each in past}}


def is_filling(commands: Iterable[str]) -> bool:
    """Return True if a step with these commands is a backfill step."""
    return backfill_of(commands) is not None

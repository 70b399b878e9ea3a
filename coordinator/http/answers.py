"""What a service answers: rows of a view, what changed in it, how far a row has come, what was decided about rows that fail."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewRows:
    """A view as of one step: `table` has a last column `weight`; `step` is the next step, so all before it are in."""

    view: str
    step: int
    table: pa.Table


@dataclass(frozen=True, slots=True, kw_only=True)
class StepChanges:
    """What one step changed in a view: rows, with their weights as the last column."""

    step: int
    table: pa.Table


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewChanges:
    """What the steps `first <= s < next` changed in a view; steps that changed nothing are left out.

    `schema` is that of the steps' tables.
    """

    view: str
    first: int
    next: int
    schema: pa.Schema
    steps: tuple[StepChanges, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """How far a row has come: on disk, processed by step `step` (None: not yet, or too long ago), delivered to outputs."""

    durable: bool
    processed: bool
    step: int | None
    delivered: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A decision that is logged: for which step, about how many rows; `before`: it was logged before already."""

    step: int
    rows: int
    before: bool

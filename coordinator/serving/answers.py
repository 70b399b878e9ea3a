"""Results that a service returns: rows of a view, its changes, the progress of a row, decisions about failing rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from dbsp.coordinator.running.letters import Letter
from dbsp.io.pushed import Position
from dbsp.logs.step_commands import DroppedRow


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewRows:
    """The rows of a view as of one step: `table` has a last column `weight`, and contains all steps below `step`."""

    view: str
    step: int
    table: pa.Table


@dataclass(frozen=True, slots=True, kw_only=True)
class StepChanges:
    """The changes of one step in a view: rows, with their weights as the last column."""

    step: int
    table: pa.Table


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewChanges:
    """The changes of a view in the steps `first <= s < next`; steps without changes are left out.

    `schema` is the schema of the steps' tables. If `anew` is a step, the view began anew there. Its earlier rows no
    longer count, and the changes begin with its whole content.
    """

    view: str
    first: int
    next: int
    schema: pa.Schema
    steps: tuple[StepChanges, ...]
    anew: int | None = None

    def with_steps(self) -> pa.Table:
        """Return all changes in one table, with the step as the last column."""
        schema = step_schema(self.schema)
        tables = [
            pa.table([*each.table.columns, pa.repeat(pa.scalar(each.step, pa.int64()), len(each.table))], schema=schema)
            for each in self.steps
        ]
        return pa.concat_tables(tables or [schema.empty_table()])


def step_schema(schema: pa.Schema) -> pa.Schema:
    """Return the columns of changes, with `step` added, or `__step` where the view has a `step` of its own."""
    return schema.append(pa.field("__step" if "step" in schema.names else "step", pa.int64(), nullable=False))


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """The progress of a row: on disk, processed by step `step` (None: not yet, or too long ago), delivered to outputs."""

    durable: bool
    processed: bool
    step: int | None
    delivered: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A logged decision: its step and the number of rows; `before` is True if an earlier call logged the decision.

    `dropped` are the rows of a step that ended its process, found by trying.
    """

    step: int
    rows: int
    before: bool
    dropped: tuple[DroppedRow, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedIn:
    """The step that has taken the rows of a dead letter of a topic or a file."""

    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterPage:
    """A page of dead letters of the steps below `step`, each with the position to which it was replayed, or the step.

    `total` letters pass the filter, and `hidden` ones pass all of it but `replayed`. `next` is the cursor of the next page; None
    at the end. Letters of steps below `kept_from` were dropped, and `left_out` letters of later steps were too many to keep.
    """

    step: int
    total: int
    hidden: int
    next: str | None
    kept_from: int
    left_out: int
    letters: tuple[tuple[Letter, Position | ReplayedIn | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterRefused:
    """A dead letter, by its position, and why it failed again or cannot be replayed."""

    position: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterReplay:
    """The results of a replay: of `matched` letters, the rows of `replayed` were used, and `failed_again` still cannot be read.

    Those are not used, and their letters stay. `replayed_before` letters were replayed earlier. `not_replayable` counts the
    others by the reason. `again` and `refused` show the first of them. `positions` are the places of all pushed rows,
    `steps` the logged steps that take the rows of topics and files. A dry run does nothing.
    """

    dry_run: bool
    matched: int
    replayed: int
    failed_again: int
    replayed_before: int
    not_replayable: Mapping[str, int]
    again: tuple[LetterRefused, ...]
    refused: tuple[LetterRefused, ...]
    positions: tuple[Position, ...]
    steps: tuple[int, ...] = ()

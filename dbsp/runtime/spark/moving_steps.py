"""Run the steps of a hot rescale on Spark: a small job asks the workers what moves, then the step's job moves it.

The driver decides what moves between the two jobs (`dbsp.runtime.migrating`). So the step's job is built after the decision,
not ahead of the step. Its tasks receive a broadcast that lives as long as the job: a task that Spark runs again finds the same
values. The moving keys are broadcast once, when they are found or first read; a step carries only the progress of each source.
Nothing is written into a database before the step. The last task of a worker writes what the worker keeps afterwards.

Source: design record 0015. Invariants 3 and 9.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dbsp.distribute.keys import Keys
from dbsp.distribute.places import KeyPlaces
from dbsp.layout import Layout
from dbsp.logs import StepRecord
from dbsp.plan.plan import Plan
from dbsp.runtime import migrating
from dbsp.runtime.migrating import Answer, Decision
from dbsp.runtime.migration_state import MigrationState
from dbsp.runtime.moved import Migration, Rows
from dbsp.runtime.work import Work
from dbsp.zset.encoding import decode, encode

if TYPE_CHECKING:
    from pyspark import Broadcast, SparkContext

PackedRows = Mapping[int, bytes]
"""Encoded rows by the trace's number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedAnswer:
    """A worker's answer with its rows encoded as bytes."""

    answer: Answer
    rows: PackedRows

    def unpacked(self, plan: Plan) -> Answer:
        """Return the answer with its rows decoded."""
        return replace(self.answer, rows=_unpacked(self.rows, plan))


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedMigration:
    """The migration that all tasks of one step receive, without the keys; a task decodes only the rows of its own worker."""

    places: KeyPlaces
    moved: Mapping[int, PackedRows]
    kept: Mapping[int, MigrationState]
    finds: bool
    begins: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Moving:
    """The broadcasts from which a step's tasks read their migration: the keys of all steps, and one step's part."""

    keys: Broadcast[Keys]
    step: Broadcast[PackedMigration]

    def of(self, worker: int, plan: Plan) -> Migration:
        """Return the migration for one worker, with that worker's rows decoded."""
        sent = self.step.value
        return Migration(
            places=replace(sent.places, keys=self.keys.value),
            moved={worker: _unpacked(sent.moved[worker], plan)} if worker in sent.moved else {},
            kept={worker: sent.kept[worker]}, finds=sent.finds, begins=sent.begins,
        )  # fmt: skip


def ask(work: Work, worker: int, record: StepRecord, epoch: int, old: Layout, new: Layout) -> PackedAnswer:
    """Return the answer of `migrating.ask` with its rows encoded."""
    answer = migrating.ask(work, worker, record, epoch, old, new)
    return PackedAnswer(answer=replace(answer, rows={}), rows=_packed(answer.rows))


def _packed(rows: Rows) -> PackedRows:
    return {trace: bytes(encode(batch)) for trace, batch in rows.items()}


def _unpacked(rows: PackedRows, plan: Plan) -> Rows:
    forms = {trace.id: trace.arrangement for trace in plan.all_traces()}
    return {trace: decode(data, forms[trace].schema, forms[trace]) for trace, data in rows.items()}


class MovingSteps:
    """The state that the steps of one migration share on Spark.

    **State** the broadcasts of the steps' layout and of the moving keys; the driver's migration state.
    """

    def __init__(self, context: SparkContext) -> None:
        """Begin without broadcasts."""
        self._context = context
        self.driver = migrating.Driver()
        self._layout: tuple[Layout, Broadcast[Layout]] | None = None
        self._keys: tuple[Keys, Broadcast[Keys]] | None = None

    def layout(self, layout: Layout) -> Broadcast[Layout]:
        """Return the broadcast of the steps' layout; make it when the layout changes."""
        if self._layout is None or self._layout[0] != layout:
            self._layout = layout, self._renewed(self._layout, layout)
        return self._layout[1]

    def moving(self, decision: Decision) -> Moving:
        """Return the broadcasts for a step's tasks; the caller must destroy `step` after the step."""
        migration = decision.migration
        keys = migration.places.keys
        if self._keys is None or self._keys[0] is not keys:
            self._keys = keys, self._renewed(self._keys, keys)
        packed = PackedMigration(
            places=replace(migration.places, keys=keys[:0]), kept=migration.kept, finds=migration.finds,
            begins=migration.begins, moved={worker: _packed(rows) for worker, rows in migration.moved.items()},
        )  # fmt: skip
        return Moving(keys=self._keys[1], step=self._context.broadcast(packed))

    def _renewed(self, held: tuple[Any, Broadcast[Any]] | None, value: Any) -> Broadcast[Any]:
        """Broadcast a value and destroy the broadcast that it replaces."""
        made = self._context.broadcast(value)
        if held is not None:
            let_go(held[1])
        return made

    def close(self) -> None:
        """Destroy the broadcasts and forget the driver's state: the migration is over, or another runtime continues it."""
        for held in (self._layout, self._keys):
            if held is not None:
                let_go(held[1])
        self._layout = self._keys = None
        self.driver = migrating.Driver()


def let_go(broadcast: Broadcast[Any]) -> None:
    """Destroy a broadcast that no job needs; ignore errors, since a lost JVM has nothing to free."""
    with suppress(Exception):
        broadcast.destroy()

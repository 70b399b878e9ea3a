"""The steps of a hot rescale on Spark: the workers are asked in a small job before each, and told what moved with the step's own.

What moves is decided in the driver (`dbsp.runtime.migrating`) between the two jobs. The step's job is described when it is known,
not ahead: its tasks are given a broadcast of their own, which lives as long as the job, so a task that Spark runs again finds the
same in it. The keys that are moving are broadcast once, where they are found out or first read; a step says only how far each
giver has come. Nothing is put into a database before the step; what a worker keeps after it is written by its last task.

Source: design record 0015. Invariants 3 and 9.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dbsp.distribute.keys import Keys
from dbsp.distribute.places import Places
from dbsp.layout import Layout
from dbsp.logs import StepRecord
from dbsp.plan.plan import Plan
from dbsp.runtime import migrating
from dbsp.runtime.kept import Kept
from dbsp.runtime.migrating import Answer, Decision
from dbsp.runtime.moved import Migration, Rows
from dbsp.runtime.tasks import Work
from dbsp.zset.encoding import decode, encode

if TYPE_CHECKING:
    from pyspark import Broadcast, SparkContext

PackedRows = Mapping[int, bytes]
"""Encoded rows by the number of their trace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedAnswer:
    """A worker's answer, its rows as bytes."""

    answer: Answer
    rows: PackedRows

    def unpacked(self, plan: Plan) -> Answer:
        """The answer again."""
        return replace(self.answer, rows=_unpacked(self.rows, plan))


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedMigration:
    """What all tasks of one step are given, without the keys; a task decodes the rows of its own worker."""

    places: Places
    moved: Mapping[int, PackedRows]
    kept: Mapping[int, Kept]
    finds: bool
    begins: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Moving:
    """Where a step's tasks find what they are given."""

    keys: Broadcast[Keys]
    step: Broadcast[PackedMigration]

    def of(self, worker: int, plan: Plan) -> Migration:
        """The part of one worker."""
        told = self.step.value
        return Migration(
            places=replace(told.places, keys=self.keys.value),
            moved={worker: _unpacked(told.moved[worker], plan)} if worker in told.moved else {},
            kept={worker: told.kept[worker]}, finds=told.finds, begins=told.begins,
        )  # fmt: skip


def ask(work: Work, worker: int, record: StepRecord, epoch: int, old: Layout, new: Layout) -> PackedAnswer:
    """What `migrating.ask` says, as bytes."""
    answer = migrating.ask(work, worker, record, epoch, old, new)
    return PackedAnswer(answer=replace(answer, rows={}), rows=_packed(answer.rows))


def _packed(rows: Rows) -> PackedRows:
    return {trace: bytes(encode(batch)) for trace, batch in rows.items()}


def _unpacked(rows: PackedRows, plan: Plan) -> Rows:
    forms = {trace.id: trace.arrangement for trace in plan.all_traces()}
    return {trace: decode(data, forms[trace].schema, forms[trace]) for trace, data in rows.items()}


class MovingSteps:
    """What the steps of one migration share with each other on Spark.

    **State** the broadcasts of their layout and of the keys that are moving.
    """

    def __init__(self, context: SparkContext) -> None:
        """Nothing is broadcast yet."""
        self._context = context
        self.driver = migrating.Driver()
        self._layout: tuple[Layout, Broadcast[Layout]] | None = None
        self._keys: tuple[Keys, Broadcast[Keys]] | None = None

    def layout(self, layout: Layout) -> Broadcast[Layout]:
        """The layout of the steps, broadcast once."""
        if self._layout is None or self._layout[0] != layout:
            self._layout = layout, self._renewed(self._layout, layout)
        return self._layout[1]

    def moving(self, decision: Decision) -> Moving:
        """What a step's tasks are given; whoever runs the step lets go of `step`."""
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
        """A broadcast in the place of another."""
        made = self._context.broadcast(value)
        if held is not None:
            let_go(held[1])
        return made

    def close(self) -> None:
        """Let go of what was broadcast; the migration is over, or another runtime goes on with it."""
        for held in (self._layout, self._keys):
            if held is not None:
                let_go(held[1])
        self._layout = self._keys = None
        self.driver = migrating.Driver()


def let_go(broadcast: Broadcast[Any]) -> None:
    """No job needs it any more; a JVM that is gone needs nothing."""
    with suppress(Exception):
        broadcast.destroy()

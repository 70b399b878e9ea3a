"""Rules taken out that only workers with a circuit can show: what tasks, exchanges and databases owe each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from dbsp.errors import UnavailableError
from dbsp.layout import Layout
from dbsp.logs import DeadLetter, Range, StepRecord
from dbsp.runtime import tasks
from dbsp.runtime.memory_logs import MemoryOutputLog
from dbsp.store import CheckpointId
from dbsp.trace import memory
from dbsp.trace.memory import MemoryDatabase, States
from dbsp.zset.batch import Batch
from tests.sim import circuit_faults
from tests.sim.circuits import FAULTS, PointedResources

Patch = pytest.MonkeyPatch


def take_any_parcel(patch: Patch) -> None:
    patch.setattr(tasks, "check_arrival", lambda parcels, expected, layout: None)


def read_what_was_just_written(patch: Patch) -> None:
    original = MemoryDatabase.states_before

    def states_before(self: MemoryDatabase, step: int, segment: int, traces: Any) -> States:
        return {**original(self, step, segment, traces), **self._held.get(segment, {}).get(step, {})}

    patch.setattr(MemoryDatabase, "states_before", states_before)


def write_a_task_twice(patch: Patch) -> None:
    read_what_was_just_written(patch)
    patch.setattr(MemoryDatabase, "_is_done", lambda self, step, segment: False)


def lost_steps_count_as_empty(patch: Patch) -> None:
    original = MemoryDatabase.check

    def check(self: MemoryDatabase, epoch: int) -> int:
        if self._opened is None and epoch == self._epoch and self._versions:
            newest = max(self._versions)
            self._opened, self._base_step = (newest, epoch), -1
        return original(self, epoch)

    def states_before(self: MemoryDatabase, step: int, segment: int, traces: Any) -> States:
        opened = self._versions[self._opened[0]].traces if self._opened else {}
        held = self._held.get(segment, {})
        return {number: state for number, state in opened.items() if number in traces} | dict(held.get(step - 1, {}))

    patch.setattr(MemoryDatabase, "check", check)
    patch.setattr(MemoryDatabase, "states_before", states_before)
    patch.setattr(PointedResources, "database", _silently(PointedResources.database))


def _silently(original: Callable[..., MemoryDatabase]) -> Callable[..., MemoryDatabase]:
    """Whoever looks for a database whose host has lost its power gets what came back."""

    def database(self: PointedResources, worker: int, create: CheckpointId | None = None) -> MemoryDatabase:
        before = self.kept.databases.get(worker)
        try:
            return original(self, worker, create)
        except Exception:
            after = self.kept.databases.get(worker)
            if after is None or after is before:
                raise
            return after

    return database


def acknowledge_before_the_sync(patch: Patch) -> None:
    def synced(found: MemoryDatabase) -> Mapping[int, object]:
        oldest = min(found._versions, default=None)
        return {} if oldest is None else {oldest: found._versions[oldest]}

    patch.setattr(circuit_faults, "synced", synced)


def tell_dead_letters_again(patch: Patch) -> None:
    original = MemoryOutputLog.write

    def write(
        self: MemoryOutputLog, epoch: int, step: int, parts: Mapping[str, Batch], dead: Sequence[DeadLetter]
    ) -> None:
        again = step < self._last
        original(self, epoch, step, parts, dead)
        if again:
            self.dead[step] = (*self.dead[step], *dead)

    patch.setattr(MemoryOutputLog, "write", write)


def let_stragglers_write(patch: Patch) -> None:
    """A task of an older epoch finds the database as it is, and whatever step it is of: nobody else asks for any of that."""

    def check(self: MemoryDatabase, epoch: int) -> int:
        if self._opened is None:
            raise UnavailableError(f"the database is not open: epoch={epoch}")
        return self._opened[0]

    patch.setattr(MemoryDatabase, "check", check)
    patch.setattr(memory, "step_is_open", lambda step, held, base_step: True)


def forget_the_table_of_partitions(patch: Patch) -> None:
    """The last worker reads as if no layout said which partitions each worker reads."""
    original = tasks._ranges_read

    def ranges_read(record: StepRecord, ranges: Sequence[Range], layout: Layout, worker: int) -> tuple[Range, ...]:
        forgets = worker == max(layout.workers)
        return original(record, ranges, replace(layout, readers=()) if forgets else layout, worker)

    patch.setattr(tasks, "_ranges_read", ranges_read)


STRAGGLERS = replace(
    FAULTS, error=0.01, straggler=1.0, crash=0.0, crash_again=0.0, pause=0.0, zombie=0.0, power=0.0, outage=0.0
)
"""Of all that goes on behind everybody's back, stragglers alone."""

POWER = replace(FAULTS, power=0.01, rare=1.0)
"""Hosts that lose their power more often than usual."""

RULES = (
    ("one parcel from every worker, of this step", take_any_parcel, "5", 12, FAULTS),
    ("a task reads the state before its step", read_what_was_just_written, "6", 12, FAULTS),
    ("a task that runs again writes nothing again", write_a_task_twice, "6", 12, FAULTS),
    ("a database that lost its steps is opened anew", lost_steps_count_as_empty, "6", 20, POWER),
    ("a version is synced before it is acknowledged", acknowledge_before_the_sync, "6", 30, FAULTS),
    ("dead letters of a step are written once", tell_dead_letters_again, "7", 12, FAULTS),
    ("one worker reads each input partition", forget_the_table_of_partitions, "9", 12, FAULTS),
)
"""The rule, how it is broken, the number of its concept page (`test_traps`), within how many seeds, which faults."""

"""A message that no setting explains: its input waits by name, all others go on, and `skip` drops it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from dbsp.coordinator.decisions import events, states
from dbsp.coordinator.decisions.limits import StepLimits
from dbsp.coordinator.running.command_runner import Parts
from dbsp.coordinator.running.event_loop import EventLoop
from dbsp.coordinator.running.failing import Failing
from dbsp.coordinator.running.loop_settings import LoopSettings
from dbsp.coordinator.serving.skipping import Skips
from dbsp.errors import ConfigError, UnavailableError
from dbsp.io.waits import Waits
from dbsp.layout import Layout
from dbsp.logs import StepRecord, Waiting
from dbsp.logs.step_commands import DroppedRow, dropped_rows, unreadable
from dbsp.runtime.runtime import StepReport
from tests.coordinator import fake_runtime, fakes

Place = tuple[str, int]


@dataclass(slots=True)
class Inputs(fakes.FakeInputs):
    """An input log whose tables may wait for a decision."""

    waiting: Waits = field(default_factory=lambda: Waits(0.0))

    def waits(self) -> Sequence[Waiting]:
        return self.waiting.all()

    def hold(self, table: str, reason: str) -> None:
        self.waiting.note(table, f"topic={table}", reason)

    def refuse(self, table: str, reason: str) -> None:
        self.waiting.refuse(table, f"topic={table}", reason)

    def release(self, table: str) -> None:
        self.waiting.release(table)


class Runtime(fake_runtime.FakeRuntime):
    """Ends a step on the first of these rows that it would read."""

    unexplained: tuple[tuple[str, int, int], ...] = ()

    def run_step(self, record: StepRecord, layout: Layout, coming: Layout | None = None) -> StepReport:
        dropped = {(row.table, row.partition, row.offset) for row in dropped_rows(record.commands)}
        for table, partition, offset in sorted({*self.unexplained} & fakes.rows_of(record) - dropped):
            row = DroppedRow(table=table, partition=partition, offset=offset, payload="{?}")
            raise unreadable(f"nothing says what this is: {table} {partition} {offset}", None, row)
        return super().run_step(record, layout, coming)


@contextmanager
def running(
    world: fakes.World, unexplained: Sequence[tuple[str, int, int]], rows_max: int = 1_000
) -> Iterator[tuple[EventLoop, Parts]]:
    clock = fakes.FakeClock()
    runtime = type("Runtime", (Runtime,), {"unexplained": tuple(unexplained)})
    parts = replace(
        fake_runtime.parts(world, clock), inputs=Inputs(world), runtime=lambda: runtime(world)
    )  # fmt: skip
    settings = LoopSettings(
        limits=StepLimits(max_rows_per_step=rows_max, max_step_delay_ms=0), checkpoint_interval_s=None
    )
    loop = EventLoop(parts, settings, fakes.facts(world), fakes.Silent())
    thread = threading.Thread(target=loop.run, daemon=True)
    thread.start()
    try:
        yield loop, parts
    finally:
        loop.submit(events.StopAsked(now=True), lambda _: True)
        thread.join(60)
        assert not thread.is_alive()


def skips(loop: EventLoop, parts: Parts) -> Skips:
    return Skips(loop, parts, lambda handed, timeout_s: handed().result(timeout_s))


def processed(loop: EventLoop, wanted: dict[Place, int]) -> None:
    def met(now: Any) -> bool:
        return now.settled and all(now.processed.get(place, 0) == end for place, end in wanted.items())

    assert loop.live_status.wait_for(met, 60), loop.live_status.now


def world_of(ends: dict[Place, int]) -> fakes.World:
    world = fakes.World()
    fakes.begin(world, 2)
    world.ends |= ends
    return world


def taken(world: fakes.World) -> dict[Place, int]:
    """Where the steps end, whose ranges must follow each other."""
    at: dict[Place, int] = {}
    for record in world.steps:
        for each in record.ranges:
            assert each.first == at.get((each.table, each.partition), 0)
            at[each.table, each.partition] = each.last
    return at


@pytest.mark.parametrize("rows_max", [3, 1_000])
def test_its_input_waits_and_the_others_go_on(rows_max: int) -> None:
    """Also where it stands in several partitions of one step, and where steps behind it were logged already."""
    world = world_of({("a", 0): 7, ("a", 1): 6, ("b", 0): 8})
    with running(world, [("a", 0, 4), ("a", 1, 1)], rows_max) as (loop, parts):
        processed(loop, {("b", 0): 8})
        assert isinstance(parts.inputs, Inputs)
        (wait,) = parts.inputs.waits()
        assert wait.table == "a"
        assert "nothing says what this is: a" in wait.reason
        assert "`coordinator skip`" in wait.reason
        assert "its payload: {?}" in wait.reason
        assert loop.live_status.now.halt is None
        world.ends["b", 0] = 20
        loop.wake()
        processed(loop, {("b", 0): 20})
        for _ in range(2):  # the other partition's row may have lain behind what steps had taken
            if loop.runner.failing.refused:
                found = skips(loop, parts).skip(None, 60)
                assert {(row.table, row.partition, row.offset) for row in found.dropped} <= {("a", 0, 4), ("a", 1, 1)}
                assert not found.before
        processed(loop, {("a", 0): 7, ("a", 1): 6, ("b", 0): 20})
        assert parts.inputs.waits() == ()
        with pytest.raises(ConfigError, match="nothing to skip"):
            skips(loop, parts).skip(None, 60)
    assert taken(world) == {("a", 0): 7, ("a", 1): 6, ("b", 0): 20}
    dropped = [
        (row.table, row.partition, row.offset) for record in world.steps for row in dropped_rows(record.commands)
    ]
    assert sorted(dropped) == [("a", 0, 4), ("a", 1, 1)]


def test_a_pipeline_that_is_paused_does_not_skip() -> None:
    world = world_of({("a", 0): 2, ("b", 0): 2})
    with running(world, [("a", 0, 1)]) as (loop, parts):
        processed(loop, {("b", 0): 2, ("a", 0): 1})
        loop.submit(events.PauseAsked(), lambda state: isinstance(state, states.Paused) or None).result(60)
        with pytest.raises(UnavailableError, match="paused"):
            skips(loop, parts).skip(None, 60)
        assert loop.runner.failing.refused, "nothing is forgotten"


def test_a_step_that_may_have_been_put_out_keeps_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that an earlier process has logged: it may have run to its end with the settings of then, so the pipeline halts."""
    world = world_of({("a", 0): 3, ("b", 0): 2})
    with monkeypatch.context() as patch:
        patch.setattr(Failing, "logged", lambda *_: None)
        with running(world, [("a", 0, 1)]) as (loop, _):
            assert loop.live_status.wait_for(lambda now: now.halt is not None, 60)
    assert taken(world) == {("a", 0): 3, ("b", 0): 2}
    world.crash()
    with running(world, [("a", 0, 1)]) as (loop, parts):
        assert loop.live_status.wait_for(lambda now: now.halt is not None, 60)
        halt = loop.live_status.now.halt
        assert halt is not None
        assert (halt.step, halt.rows[0].offset) == (0, 1)
        skips(loop, parts).skip(None, 60)
        processed(loop, {("a", 0): 3, ("b", 0): 2})
    assert taken(world) == {("a", 0): 3, ("b", 0): 2}, "as it was logged"


def test_a_start_tries_the_message_again() -> None:
    """With the settings of then: nothing is decided for ever."""
    world = world_of({("a", 0): 3, ("b", 0): 2})
    with running(world, [("a", 0, 1)]) as (loop, _):
        processed(loop, {("a", 0): 1, ("b", 0): 2})
    world.crash()
    with running(world, []) as (loop, parts):
        processed(loop, {("a", 0): 3, ("b", 0): 2})
        assert isinstance(parts.inputs, Inputs)
        assert parts.inputs.waits() == ()


def test_a_system_that_answers_ends_no_wait_for_a_decision() -> None:
    waits = Waits(0.0)
    waits.note("a", "topic=a", "away")
    waits.refuse("a", "topic=a", "nothing says what this is")
    waits.note("a", "topic=a", "away")
    waits.clear("a")
    assert [each.reason for each in waits.all()] == ["nothing says what this is"]
    assert waits.rests("a")
    waits.release("a")
    assert not waits.all()
    assert not waits.rests("a")

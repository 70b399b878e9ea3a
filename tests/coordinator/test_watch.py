"""What a service tells of itself while something hangs, waits or was wrong: alarms, inputs, clock, errors that are past."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbsp.coordinator.decisions import alarms as module
from dbsp.coordinator.decisions import events
from dbsp.coordinator.decisions.alarms import Doing, Looked, alarms, slow_after_s
from dbsp.coordinator.decisions.cutting import advance
from dbsp.coordinator.running.event_loop import EventLoop
from dbsp.coordinator.running.intake import readable
from dbsp.coordinator.running.status import LiveStatus, NewSteps
from dbsp.coordinator.running.status_json import health_as_json
from dbsp.coordinator.running.watch import LOOK_EVERY_S, Watch, is_ready
from dbsp.logs import Range, Waiting
from tests.coordinator import fake_runtime, fakes
from tests.coordinator.test_machine import record

Place = tuple[str, int]


class Outside(fakes.Closed):
    """Input logs of which some wait."""

    def __init__(self, ends: Mapping[Place, int], floors: Mapping[Place, int] | None = None) -> None:
        self.told_ends, self.told_floors = dict(ends), dict(floors or {})
        self.waiting: dict[str, Waiting] = {}

    def ends(self) -> Mapping[Place, int]:
        return {place: end for place, end in self.told_ends.items() if place[0] not in self.waiting}

    def floors(self) -> Mapping[Place, int]:
        return {place: self.told_floors.get(place, 0) for place in self.ends()}

    def waits(self) -> Sequence[Waiting]:
        return tuple(self.waiting.values())

    def hold(self, table: str, reason: str) -> None:
        self.waiting[table] = Waiting(table=table, place=f"topic={table}", reason=reason, since_s=1.0)


# --- which rows may be taken ----------------------------------------------------------------------------------------


def test_an_input_that_waits_is_left_out_and_keeps_no_other_one_waiting() -> None:
    inputs = Outside({("a", 0): 7, ("b", 0): 9})
    inputs.hold("a", "away")
    assert readable(inputs, {("a", 0): 3, ("b", 0): 2}) == ({("b", 0): 9}, {})  # type: ignore[arg-type]


def test_a_log_that_ends_below_what_was_processed_waits_by_name() -> None:
    inputs = Outside({("a", 0): 3, ("a", 1): 9, ("b", 0): 9})
    assert readable(inputs, {("a", 0): 5, ("a", 1): 1, ("b", 0): 1})[0] == {("b", 0): 9}  # type: ignore[arg-type]
    (wait,) = inputs.waits()
    assert "was it deleted and made again? partition=0 end=3 processed=5" in wait.reason


places = st.tuples(st.sampled_from("ab"), st.integers(0, 2))
LOGS = {
    "logs": st.dictionaries(places, st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1),
    "away": st.lists(st.sets(st.sampled_from("ab")), min_size=1, max_size=6),
}


@given(**LOGS)
def test_steps_cover_every_log_from_its_floor_whoever_waits_when(
    logs: Mapping[Place, tuple[int, int]], away: Sequence[set[str]]
) -> None:
    """Invariant 7, with inputs that come and go: no gap, no row below the floor, nothing of who waits."""
    inputs = Outside(
        {place: floor + rows for place, (floor, rows) in logs.items()}, {p: f for p, (f, _) in logs.items()}
    )
    taken: dict[Place, int] = {}
    first: dict[Place, int] = {}
    for number, tables in enumerate([*away, set[str]()]):
        inputs.waiting = {}
        for table in tables:
            inputs.hold(table, "away")
        ends, begins = readable(inputs, taken)  # type: ignore[arg-type]
        assert not {place for place in ends if place[0] in tables}
        taken = {**begins, **taken}
        for (table, partition), end in ends.items():
            at = taken.get((table, partition), 0)
            first.setdefault((table, partition), at)
            taken_now = replace(record(number), ranges=(Range(table=table, partition=partition, first=at, last=end),))
            taken = advance(taken, [taken_now])
    assert {place: at for place, at in taken.items() if at} == {p: e for p, e in inputs.told_ends.items() if e}
    assert all(first[place] == floor for place, (floor, rows) in logs.items() if rows)


# --- alarms ---------------------------------------------------------------------------------------------------------

DOING = Doing(command="RunStep", step=7, since_s=100.0, since_unix_s=1_000.0)


def seen(now_s: float, **changes: Any) -> Looked:
    return replace(Looked(now_s=now_s, now_unix_s=900.0 + now_s, state="Running"), **changes)


def test_a_step_that_hangs_is_an_alarm_that_names_workers_and_hosts() -> None:
    assert alarms(seen(107.0, doing=DOING)) == []
    (alarm,) = alarms(seen(109.0, doing=DOING, awaited=(1, 3), hosts_away=("10.0.0.2",)))
    assert (alarm.kind, alarm.since_s) == ("step-slow", 1_000.0)
    assert "step 7 has run for 9 s" in alarm.text
    assert "workers that have not answered: 1, 3" in alarm.text
    assert "hosts that do not answer: 10.0.0.2" in alarm.text


def test_what_is_usual_is_no_alarm() -> None:
    assert slow_after_s(DOING, 60.0) == 240.0
    assert alarms(seen(300.0, doing=DOING, slowest_s=60.0)) == []
    rescale = replace(DOING, command="RedistributeShards", step=None)
    assert alarms(seen(10_000.0, doing=rescale)) == [], "it takes as long as the state is large"


def test_an_alarm_comes_within_fifteen_seconds() -> None:
    """The longest silence: a step, or a recovery, that hangs just after a look."""
    for limit in (module.STEP_SLOW_S, module.RECOVERING_S):
        assert limit + 2 * LOOK_EVERY_S < 15


def test_a_recovery_that_does_not_end_is_an_alarm_also_where_it_replays_again_and_again() -> None:
    recovering = seen(109.0, state="Recovering", unsettled_s=100.0, last_error="the broker does not answer")
    (alarm,) = alarms(recovering)
    assert (alarm.kind, alarm.since_s) == ("recovering", 1_000.0)
    assert alarm.text == "no step can be taken: state=Recovering last_error=the broker does not answer"
    assert [each.kind for each in alarms(replace(recovering, state="Replaying"))] == ["recovering"]
    assert alarms(replace(recovering, now_s=107.0)) == []
    assert alarms(seen(500.0, state="Replaying", unsettled_s=100.0)) == [], "a start that has much to do, and does it"


def test_a_clock_that_was_ahead_is_said_to_be() -> None:
    (alarm,) = alarms(seen(0.0, clock_ahead_s=10_800.0))
    assert alarm.kind == "clock-ahead"
    assert "now() is 10,800 s ahead of the wall clock" in alarm.text


# --- the watch, over the fake world ----------------------------------------------------------------------------------


def watched(world: fakes.World, **more: Any) -> tuple[Watch, EventLoop, fakes.FakeClock, fakes.Silent]:
    fakes.begin(world, 2)
    clock, told = fakes.FakeClock(), fakes.Silent()
    parts = fake_runtime.parts(world, clock)
    loop = EventLoop(parts, fake_runtime.LoopSettings(), fakes.facts(world), told)
    watch = Watch(loop.live_status, loop.runner, clock, parts.inputs, told.noted, **more)
    return watch, loop, clock, told


def test_a_hanging_step_shows_while_it_hangs() -> None:
    """From another thread, the event loop's being stuck; what waits is told by the input, and it all passes with the step."""
    world = fakes.World()
    watch, loop, clock, told = watched(world)
    hangs, go_on = threading.Event(), threading.Event()

    def point(name: str) -> None:
        if name == "step at 1" and not go_on.is_set():
            hangs.set()
            assert go_on.wait(60)

    world.point = point
    world.ends["a", 0] = 5
    thread = threading.Thread(target=loop.run, daemon=True)
    thread.start()
    assert hangs.wait(60)
    watch.look()
    assert watch.health.doing is not None
    assert watch.health.doing.step == 0
    assert is_ready(loop.live_status.now, watch.health) is loop.live_status.now.settled
    world.ends["a", 0] = 7_713
    clock.now_s += 12.0
    health = watch.look()
    assert [alarm.kind for alarm in health.alarms] == ["step-slow"]
    assert not is_ready(loop.live_status.now, health)
    health_json = health_as_json(health, ["a", "b"], loop.live_status.now.processed)
    assert {each["table"]: each["waiting_rows"] for each in health_json["inputs"]}["a"] == 7_713
    assert ("alarm", "step-slow") in {(kind, fields.get("kind")) for kind, fields in told.heard}
    go_on.set()
    assert loop.live_status.wait_for(lambda now: now.step >= 1 and now.settled, 60)
    health = watch.look()
    assert "step-slow" not in [alarm.kind for alarm in health.alarms]
    assert ("alarm-over", "step-slow") in {(kind, fields.get("kind")) for kind, fields in told.heard}
    loop.submit(events.StopAsked(now=True), lambda _: True)
    thread.join(60)
    assert not thread.is_alive()


def test_a_clock_that_is_ahead_is_told_of_views_over_now_alone() -> None:
    for shows, kinds in ((True, ["clock-ahead"]), (False, [])):
        world = fakes.World()
        watch, loop, clock, _ = watched(world, shows_clock=shows)
        runner = loop.runner
        runner._timing = replace(runner._timing, clock_us=clock.wall_us() + 3_600_000_000)
        loop.live_status.post(replace(loop.live_status.now, state="Running"))
        health = watch.look()
        assert [alarm.kind for alarm in health.alarms] == kinds
        assert health.clock_ahead_s == pytest.approx(3600.0)
        clock.wall_offset_us += 3_600_000_000
        assert watch.look().alarms == ()


# --- what counts, and what is past ------------------------------------------------------------------------------------


def test_a_step_that_is_run_again_counts_once() -> None:
    counted = NewSteps()
    assert not counted.takes(4), "what an earlier process has processed"
    counted.begin(5)
    counted.begin(9)  # a later recovery
    assert [step for step in (5, 6, 5, 6, 7) if counted.takes(step)] == [5, 6, 7]


def test_an_error_is_past_when_steps_are_taken_again() -> None:
    live_status = LiveStatus()
    live_status.post(replace(live_status.now, last_error="gone"))
    live_status.post(live_status.now.recovered(12.0))
    now = live_status.now
    assert now.last_error is None
    assert now.past_error is not None
    assert (now.past_error.message, now.past_error.over_s) == ("gone", 12.0)
    assert now.recovered(13.0).past_error == now.past_error

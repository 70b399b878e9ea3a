"""The machine's decisions about state that moves key by key, as command lists."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dbsp.coordinator.decisions import orders as do
from dbsp.coordinator.decisions import protocol as p
from dbsp.coordinator.decisions.migrating import CANCELLED
from dbsp.distribute.course import Course
from dbsp.layout import Layout, rescaled
from dbsp.logs import StepRecord
from tests.coordinator.test_machine import (
    LAYOUT,
    check_every_pair,
    claimed,
    every_event,
    every_state,
    held,
    identity,
    names,
    play,
    record,
    running,
)

NEW = replace(rescaled(LAYOUT, 3, step=5, host=LAYOUT.hosts[0]), version=1)
COURSE = Course.towards(NEW, LAYOUT, strategy="icadd", first=5, budget=7)
ASKED = p.RescaleAsked(workers=3, strategy="icadd")
PREFIX = "migrate strategy=icadd phase="
MADE = (p.LayoutLogged(layout=COURSE.layout), p.Discarded(), p.Created(), p.Fenced(), p.MergesHeld())
LANDED = (p.Pinned(version=3), p.Recorded(record=None), p.CopyEnded(version=3), p.Published(version=3))
WARMED = p.Warming(new=COURSE.layout, workers=3, strategy="icadd", round=1, version=2, step=5, ended=True)
SLICED = (p.LayoutLogged(layout=COURSE.layout), p.Redistributed(version=4), p.Published(version=4))


def waiting(**changes: object) -> p.State:
    """A machine that waits for input at step 5."""
    facts = replace(running(keys_per_step=7).facts, **changes)  # type: ignore[arg-type]
    return p.Running(facts=facts, awaits="input")


def moving(number: int, command: str, version: int = 1) -> StepRecord:
    """The record of a step that says so of a migration."""
    return replace(record(number, epoch=5), layout_version=version, commands=(PREFIX + command,))


def begun(*records: StepRecord) -> tuple[p.State, list[do.Command]]:
    """The layout of the steps between is published and opened under a new epoch, as version 4."""
    state, _ = play(waiting(), ASKED, *MADE, *LANDED, *SLICED)
    cut = identity(5, epoch=4, layout=1)
    return play(
        state, claimed(5), p.Fenced(others=(2,)), held(*((worker, 4, cut) for worker in (0, 1, 2))),
        p.Opened(version=4, checkpoint=cut, layout=COURSE.layout), p.Discarded(), p.StepsRead(records=records),
    )  # fmt: skip


def in_keys(*events: p.Event) -> tuple[p.State, list[do.Command]]:
    """Two steps have found out the keys, the third begins to move them."""
    state, _ = begun()
    state, _ = play(
        state, p.Recorded(record=moving(5, "begin from=0 to=2")), p.StepDone(step=5),
        p.Recorded(record=moving(6, "enter")), p.StepDone(step=6),
    )  # fmt: skip
    return play(state, *events)


def test_it_begins_as_a_warm_up_that_has_nothing_to_copy() -> None:
    """Workers are made, merges held, a checkpoint lands beside the steps; the switch is into a layout where no shard moves."""
    _, commands = play(waiting(), ASKED, *MADE, *LANDED, *SLICED)
    made, cut = identity(5, epoch=4, layout=1), identity(5, epoch=4)
    logged = do.LogLayout(layout=COURSE.layout, members=(0, 1, 2), forming=(2,))
    assert commands == [
        logged,
        do.DiscardWorkers(workers=(2,), members=(0, 1, 2), forming=(2,), must=True),
        do.CreateWorkers(workers=(2,), checkpoint=identity(0, epoch=0)),
        do.FenceWorkers(epoch=4, workers=(2,)),
        do.HoldMerges(old=LAYOUT, new=COURSE.layout),
        do.PinVersion(version=3, checkpoint=cut, layout=LAYOUT),
        do.CutStep(epoch=4, step=5, layout_version=0),
        do.Wait(for_input=True),
        do.Publish(version=3, checkpoint=cut, ends_rescale=False),
        replace(logged, course=COURSE),
        do.Redistribute(version=4, checkpoint=made, old=LAYOUT, new=COURSE.layout, cut=None, course=COURSE),
        do.Publish(version=4, checkpoint=made, ends_rescale=True),
        do.ClaimEpoch(),
    ]
    assert COURSE.layout.owners == LAYOUT.owners, "no shard moves"


def test_what_changed_while_the_first_checkpoint_landed_is_in_a_second_one() -> None:
    """The first may take long, so much may have changed; the second takes less, and what changes then is sliced as it is."""
    state, commands = play(
        waiting(), ASKED, *MADE, p.Pinned(version=3), p.Recorded(record=record(5)), p.CopyEnded(version=3),
        p.StepDone(step=5), p.Published(version=3),
    )  # fmt: skip
    assert commands[-1] == do.PinVersion(version=4, checkpoint=identity(6, epoch=4), layout=LAYOUT)
    state, commands = play(
        state, p.Pinned(version=4), p.Recorded(record=record(6)), p.CopyEnded(version=4), p.StepDone(step=6),
        p.Published(version=4),
    )  # fmt: skip
    assert names(commands) == ["CutStep", "RunStep", "Publish", "LogLayout"]
    new = replace(rescaled(LAYOUT, 3, step=7, host=LAYOUT.hosts[0]), version=1)
    course = Course.towards(new, LAYOUT, strategy="icadd", first=7, budget=7)
    assert commands[-1] == do.LogLayout(layout=course.layout, members=(0, 1, 2), forming=(2,), course=course)
    _, commands = play(state, p.LayoutLogged(layout=course.layout))
    assert isinstance(commands[0], do.Redistribute)
    assert commands[0].cut == identity(7, epoch=4), "the state of now, without a third checkpoint"


def test_a_cancel_while_it_is_prepared_takes_away_what_was_made() -> None:
    state, commands = play(waiting(), ASKED, *MADE, p.Pinned(version=3), p.Recorded(record=record(5)), p.CancelAsked())
    state, commands = play(state, p.StepDone(step=5), p.Cooled(), p.Discarded(), p.Forgotten())
    assert names(commands) == ["EndWarmUp", "DiscardWorkers", "ForgetRescale", "CutStep"]
    assert (state.facts.rescale_error, state.facts.wants, state.facts.members) == (CANCELLED, p.Wants(), {0, 1})


def test_the_same_strategy_and_count_asked_for_again_is_what_is_being_prepared() -> None:
    """Another strategy is another wish: what was made is taken away first, and a failure finds the wish again."""
    state, _ = play(waiting(), ASKED, *MADE, p.Pinned(version=3), p.Recorded(record=record(5)))
    assert play(state, ASKED)[0].facts.wants.rescale is None
    other = replace(ASKED, strategy="redistribute")
    _, commands = play(state, other, p.StepDone(step=5), p.Cooled(), p.Discarded())
    assert names(commands) == ["EndWarmUp", "DiscardWorkers", "CutStep"], "once the copy in flight has landed"
    lost, _ = play(state, p.Failed(code="unavailable", message="gone"))
    assert (lost.facts.wants.rescale, lost.facts.wants.strategy) == (3, "icadd")


def test_a_record_that_is_logged_already_comes_before_its_first_step() -> None:
    facts = replace(waiting().facts, checkpoint_step=6, warming=replace(WARMED, step=6))
    state = p.Running(facts=facts, record=record(5))
    state, commands = play(state, p.StepDone(step=5, ahead=record(6)))
    assert isinstance(commands[0], do.LogLayout)
    assert commands[0].course is not None
    assert commands[0].course.first == 7


def test_every_step_has_its_command_and_none_is_logged_ahead() -> None:
    state, commands = begun()
    assert commands[-1] == do.CutStep(epoch=5, step=5, layout_version=1, commands=(PREFIX + "begin from=0 to=2",))
    state, commands = play(
        state, p.Recorded(record=moving(5, "begin from=0 to=2")), p.StepDone(step=5),
        p.Recorded(record=moving(6, "enter")), p.StepDone(step=6),
    )  # fmt: skip
    assert [command.commands for command in commands if isinstance(command, do.CutStep)] == [
        (PREFIX + "enter",), (PREFIX + "move budget=7",),
    ]  # fmt: skip
    first = commands[0]
    assert isinstance(first, do.RunStep)
    assert (first.layout, first.coming, first.may_cut_ahead) == (LAYOUT, COURSE.new, False)


def test_a_replay_runs_each_step_in_the_layouts_of_its_record() -> None:
    """Of a migration that turned round: those of the way there, then those of the way back, then the next one's."""
    state, _ = in_keys(p.Recorded(record=moving(7, "move budget=7")), p.CancelAsked(), p.StepDone(step=7))
    back = COURSE.turned_round(8)
    state, _ = play(state, p.LayoutLogged(layout=back.layout), p.Failed(code="unavailable", message="gone"))
    cut = identity(5, epoch=4, layout=1)
    there, turned = moving(7, "move budget=7"), moving(8, "cancel version=4", version=3)
    state, commands = play(
        state, p.Woken(), claimed(6), p.Fenced(), held(*((worker, 4, cut) for worker in (0, 1, 2))),
        p.Opened(version=4, checkpoint=cut, layout=COURSE.layout), p.Discarded(),
        p.StepsRead(records=(moving(5, "begin from=0 to=2"), moving(6, "enter"), there, turned)),
        p.StepDone(step=5), p.StepDone(step=6), p.StepDone(step=7), p.StepDone(step=8),
    )  # fmt: skip
    ran = [command for command in commands if isinstance(command, do.RunStep)]
    assert [(run.layout.version, run.coming and run.coming.version) for run in ran] == [(0, 2)] * 3 + [(2, 4)]
    assert all(run.following is None for run in ran), "what is read ahead is read by another layout's workers"
    assert commands[-1] == do.CutStep(epoch=6, step=9, layout_version=3, commands=(PREFIX + "move budget=7",))
    assert state.facts.course == back


def test_the_last_key_puts_the_new_layout_in_use() -> None:
    """Then a checkpoint beside the steps, and when it is published those who have left are taken away."""
    down = replace(rescaled(LAYOUT, 1, step=5), version=1)
    course = Course.towards(down, LAYOUT, strategy="icadd", first=5, budget=7)
    facts = replace(
        waiting().facts, course=course, layout=course.layout, version_layout=1, courses={1: course},
        layouts={0: LAYOUT, 1: course.layout, 2: course.new},
    )  # fmt: skip
    state, commands = play(
        p.Running(facts=facts, record=moving(5, "move budget=7")), p.StepDone(step=5, over=True), p.Pinned(version=3),
        p.RescaleAsked(workers=2), p.Recorded(record=record(6)), p.CopyEnded(version=3), p.StepDone(step=6),
        p.Published(version=3),
    )  # fmt: skip
    assert names(commands) == ["PinVersion", "CutStep", "RunStep", "Publish", "DiscardWorkers"], (
        "the next rescale waits"
    )
    assert commands[0] == do.PinVersion(version=3, checkpoint=identity(6, epoch=4, layout=2), layout=course.new)
    assert commands[1] == do.CutStep(epoch=4, step=6, layout_version=2)
    assert isinstance(commands[2], do.RunStep)
    assert (commands[2].layout, commands[2].coming) == (course.new, None)
    assert commands[-1] == do.DiscardWorkers(workers=(1,), members=(0,))
    state, commands = play(state, p.Discarded())
    assert state.facts.members == {0}
    assert names(commands) == ["PinVersion"], "the next rescale, cold, takes its checkpoint"


def test_another_rescale_waits_until_it_is_over() -> None:
    state, commands = in_keys(
        p.Recorded(record=moving(7, "move budget=7")), p.RescaleAsked(workers=1), p.StepDone(step=7)
    )
    assert names(commands) == ["RunStep", "CutStep"]
    assert state.facts.wants.rescale == 1
    state, commands = play(
        state, p.Recorded(record=moving(8, "move budget=7")), p.StepDone(step=8, over=True), p.Pinned(version=5),
        p.Recorded(record=None), p.CopyEnded(version=5), p.Published(version=5),
    )  # fmt: skip
    assert names(commands) == ["RunStep", "PinVersion", "CutStep", "Wait", "Publish", "LogLayout"]


def test_a_cancel_turns_it_round_between_two_steps() -> None:
    state, commands = in_keys(p.Recorded(record=moving(7, "move budget=7")), p.CancelAsked(), p.StepDone(step=7))
    back = COURSE.turned_round(8)
    assert commands[-1] == do.LogLayout(layout=back.layout, members=(0, 1, 2), forming=(), course=back)
    state, commands = play(state, p.LayoutLogged(layout=back.layout))
    assert commands == [
        do.CutStep(epoch=5, step=8, layout_version=3, commands=(PREFIX + "cancel version=4",)),
    ]
    assert (state.facts.rescale_error, state.facts.wants) == (CANCELLED, p.Wants())
    state, commands = play(state, p.CancelAsked(), p.Recorded(record=moving(8, "cancel version=4", version=3)))
    assert isinstance(commands[0], do.RunStep)
    assert (commands[0].layout, commands[0].coming) == (COURSE.new, back.new)
    assert back.new.owners == LAYOUT.owners


def test_a_cancel_before_its_first_step_waits_for_that_step() -> None:
    state, commands = begun()
    state, commands = play(state, p.CancelAsked(), p.Recorded(record=moving(5, "begin from=0 to=2")))
    assert names(commands) == ["RunStep"]
    state, commands = play(state, p.StepDone(step=5))
    assert isinstance(commands[0], do.LogLayout)
    assert commands[0].course == COURSE.turned_round(6)


def test_a_cancel_takes_back_the_rescale_that_waits_behind() -> None:
    state, commands = in_keys(
        p.Recorded(record=moving(7, "move budget=7")), p.RescaleAsked(workers=1), p.CancelAsked(), p.StepDone(step=7),
        p.Forgotten(),
    )  # fmt: skip
    assert names(commands) == ["RunStep", "ForgetRescale", "CutStep"]
    assert (state.facts.wants, state.facts.course) == (p.Wants(), COURSE)


def test_a_stop_in_its_midst_is_a_checkpoint_in_its_layout() -> None:
    state, commands = in_keys(
        p.Recorded(record=moving(7, "move budget=7")), p.StopAsked(), p.StepDone(step=7), p.Pinned(version=5),
        p.Copied(version=5), p.Published(version=5),
    )  # fmt: skip
    assert names(commands) == ["RunStep", "PinVersion", "AwaitCopy", "Publish", "Finish"]
    assert commands[1] == do.PinVersion(version=5, checkpoint=identity(8, epoch=5, layout=1), layout=COURSE.layout)
    assert isinstance(state, p.Stopped)


def test_a_start_in_its_midst_goes_on_with_the_command_of_the_next_step() -> None:
    state, _ = in_keys()
    begin = p.Starting(facts=replace(state.facts, course=None, epoch=0))
    cut = identity(7, epoch=5, layout=1)
    state, commands = play(
        begin, p.Begin(), claimed(6), p.Fenced(), held(*((worker, 4, cut) for worker in (0, 1, 2))),
        p.Opened(version=4, checkpoint=cut, layout=COURSE.layout), p.Discarded(), p.StepsRead(records=()),
    )  # fmt: skip
    assert commands[-1] == do.CutStep(epoch=6, step=7, layout_version=1, commands=(PREFIX + "move budget=7",))
    assert state.facts.course == COURSE


def test_where_hosts_differ_it_begins_at_a_published_checkpoint() -> None:
    apart = replace(LAYOUT, hosts=("here", "there"))
    facts = replace(waiting().facts, layout=apart, layouts={0: apart}, warming=replace(WARMED, round=2, step=4))
    state, commands = play(
        p.Running(facts=facts, record=record(5)), p.StepDone(step=5), p.Pinned(version=3), p.Copied(version=3),
        p.Published(version=3),
    )  # fmt: skip
    assert names(commands) == ["PinVersion", "AwaitCopy", "Publish", "LogLayout"]
    assert isinstance(state, p.Rescaling)
    _, commands = play(state, p.LayoutLogged(layout=state.new))
    assert isinstance(commands[0], do.Redistribute)
    assert commands[0].cut is None


def test_a_count_that_cannot_be_is_told_and_steps_go_on() -> None:
    state, commands = play(waiting(), p.RescaleAsked(workers=9999, strategy="redistribute"), p.Forgotten())
    assert names(commands) == ["ForgetRescale", "CutStep"]
    assert state.facts.rescale_error


def states() -> list[p.State]:
    """Every state with a migration that begins, goes on, turns round, is over."""
    base = replace(
        waiting().facts, members=frozenset({0, 1, 2}), layouts={0: LAYOUT, 1: COURSE.layout, 2: COURSE.new},
        courses={1: COURSE}, version_layout=1,
    )  # fmt: skip
    back = COURSE.turned_round(9)
    layouts: list[tuple[Course | None, Layout, int]] = [
        (COURSE, COURSE.layout, 5), (COURSE, COURSE.layout, 6), (back, back.layout, 9), (back, back.layout, 10),
        (None, COURSE.new, 12), (None, LAYOUT, 12),
    ]  # fmt: skip
    found: list[p.State] = []
    for course, layout, number in layouts:
        facts = replace(base, course=course, layout=layout, next_step=number)
        found += [p.Cancelling(facts=facts, awaits=a) for a in ("logged", "forgotten")]
        found += [p.Checkpointing(facts=facts, version=3, checkpoint=identity(number), awaits="discarded")]
        found += [replace(state, facts=replace(facts, halt=state.facts.halt)) for state in every_state()]
    for warming in (replace(WARMED, round=0), WARMED, replace(WARMED, round=2, ready=True)):
        facts = replace(base, layouts={0: LAYOUT, 1: COURSE.layout}, courses={}, version_layout=0, warming=warming)
        found += [p.WarmingUp(facts=facts, awaits=a) for a in ("logged", "discarded", "created", "fenced", "held")]
        found += [replace(state, facts=replace(facts, halt=state.facts.halt)) for state in every_state()]
    return found


def test_every_pair_has_an_answer_or_a_story() -> None:
    own = [
        p.CancelAsked(), ASKED, p.LayoutLogged(layout=COURSE.layout), p.StepDone(step=5, over=True),
        p.StepDone(step=6, over=True), p.Recorded(record=moving(5, "begin from=0 to=2")),
        p.StepsRead(records=(moving(6, "enter"),)),
    ]  # fmt: skip
    check_every_pair(states(), [*every_event(), *own], least=1500)


@pytest.mark.parametrize("strategy", ["icadd", "redistribute"])
def test_a_course_is_known_by_its_steps(strategy: str) -> None:
    """Its commands follow from their numbers, so a coordinator that goes on needs nothing else."""
    course = Course.towards(NEW, LAYOUT, strategy=strategy, first=5, budget=7)
    kinds = [type(course.command(number)).__name__ for number in range(5, 9)]
    second = "EnterCommand" if strategy == "icadd" else "MoveCommand"
    assert kinds == ["BeginCommand", second, "MoveCommand", "MoveCommand"]
    back = course.turned_round(6)
    assert [type(back.command(number)).__name__ for number in range(6, 9)] == [
        "CancelCommand", "MoveCommand", "MoveCommand",
    ]  # fmt: skip
    assert back.turned_round(7).new.owners == course.new.owners

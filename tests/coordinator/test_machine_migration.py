"""The machine's decisions about state that moves key by key, as command lists."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dbsp.coordinator.decisions import commands, events, states
from dbsp.coordinator.decisions.migrating import CANCELLED
from dbsp.distribute.migration_plan import MigrationPlan
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
COURSE = MigrationPlan.towards(NEW, LAYOUT, strategy="icadd", first=5, budget=7)
ASKED = events.RescaleAsked(workers=3, strategy="icadd")
PREFIX = "migrate strategy=icadd phase="
MADE = (
    events.LayoutLogged(layout=COURSE.layout),
    events.Discarded(),
    events.Created(),
    events.Fenced(),
    events.MergesHeld(),
)
LANDED = (
    events.VersionPinned(version=3),
    events.Recorded(record=None),
    events.CopyEnded(version=3),
    events.Published(version=3),
)
WARMED = states.Warming(new=COURSE.layout, workers=3, strategy="icadd", round=1, version=2, step=5, ended=True)
SLICED = (events.LayoutLogged(layout=COURSE.layout), events.Redistributed(version=4), events.Published(version=4))


def waiting(**changes: object) -> states.State:
    """A machine that waits for input at step 5."""
    facts = replace(running(keys_per_step=7).facts, **changes)  # type: ignore[arg-type]
    return states.Running(facts=facts, awaits="input")


def moving(number: int, command: str, version: int = 1) -> StepRecord:
    """The record of a step that says so of a migration."""
    return replace(record(number, epoch=5), layout_version=version, commands=(PREFIX + command,))


def begun(*records: StepRecord) -> tuple[states.State, list[commands.Command]]:
    """The layout of the steps between is published and opened under a new epoch, as version 4."""
    state, _ = play(waiting(), ASKED, *MADE, *LANDED, *SLICED)
    cut = identity(5, epoch=4, layout=1)
    return play(
        state, claimed(5), events.Fenced(others=(2,)), held(*((worker, 4, cut) for worker in (0, 1, 2))),
        events.VersionOpened(version=4, checkpoint=cut, layout=COURSE.layout), events.Discarded(),
        events.StepsRead(records=records),
    )  # fmt: skip


def in_keys(*arrived: events.Event) -> tuple[states.State, list[commands.Command]]:
    """Two steps have found out the keys, the third begins to move them."""
    state, _ = begun()
    state, _ = play(
        state, events.Recorded(record=moving(5, "begin from=0 to=2")), events.StepDone(step=5),
        events.Recorded(record=moving(6, "enter")), events.StepDone(step=6),
    )  # fmt: skip
    return play(state, *arrived)


def test_it_begins_as_a_warm_up_that_has_nothing_to_copy() -> None:
    """Workers are made, merges held, a checkpoint lands beside the steps; the switch is into a layout where no shard moves."""
    _, issued = play(waiting(), ASKED, *MADE, *LANDED, *SLICED)
    made, cut = identity(5, epoch=4, layout=1), identity(5, epoch=4)
    logged = commands.LogLayout(layout=COURSE.layout, members=(0, 1, 2), forming=(2,))
    assert issued == [
        logged,
        commands.DiscardWorkers(workers=(2,), members=(0, 1, 2), forming=(2,), must=True),
        commands.CreateWorkers(workers=(2,), checkpoint=identity(0, epoch=0)),
        commands.FenceWorkers(epoch=4, workers=(2,)),
        commands.HoldMerges(old=LAYOUT, new=COURSE.layout),
        commands.PinVersion(version=3, checkpoint=cut, layout=LAYOUT),
        commands.CutStep(epoch=4, step=5, layout_version=0),
        commands.Wait(for_input=True),
        commands.Publish(version=3, checkpoint=cut, ends_rescale=False),
        replace(logged, migration_plan=COURSE),
        commands.RedistributeShards(
            version=4, checkpoint=made, old=LAYOUT, new=COURSE.layout, cut=None, migration_plan=COURSE
        ),
        commands.Publish(version=4, checkpoint=made, ends_rescale=True),
        commands.ClaimEpoch(),
    ]
    assert COURSE.layout.owners == LAYOUT.owners, "no shard moves"


def test_what_changed_while_the_first_checkpoint_landed_is_in_a_second_one() -> None:
    """The first may take long, so much may have changed; the second takes less, and what changes then is sliced as it is."""
    state, issued = play(
        waiting(), ASKED, *MADE, events.VersionPinned(version=3), events.Recorded(record=record(5)), events.CopyEnded(version=3),
        events.StepDone(step=5), events.Published(version=3),
    )  # fmt: skip
    assert issued[-1] == commands.PinVersion(version=4, checkpoint=identity(6, epoch=4), layout=LAYOUT)
    state, issued = play(
        state, events.VersionPinned(version=4), events.Recorded(record=record(6)), events.CopyEnded(version=4),
        events.StepDone(step=6),
        events.Published(version=4),
    )  # fmt: skip
    assert names(issued) == ["CutStep", "RunStep", "Publish", "LogLayout"]
    new = replace(rescaled(LAYOUT, 3, step=7, host=LAYOUT.hosts[0]), version=1)
    migration_plan = MigrationPlan.towards(new, LAYOUT, strategy="icadd", first=7, budget=7)
    assert issued[-1] == commands.LogLayout(
        layout=migration_plan.layout, members=(0, 1, 2), forming=(2,), migration_plan=migration_plan
    )
    _, issued = play(state, events.LayoutLogged(layout=migration_plan.layout))
    assert isinstance(issued[0], commands.RedistributeShards)
    assert issued[0].cut == identity(7, epoch=4), "the state of now, without a third checkpoint"


def test_a_cancel_while_it_is_prepared_takes_away_what_was_made() -> None:
    state, issued = play(
        waiting(),
        ASKED,
        *MADE,
        events.VersionPinned(version=3),
        events.Recorded(record=record(5)),
        events.CancelAsked(),
    )
    state, issued = play(state, events.StepDone(step=5), events.Cooled(), events.Discarded(), events.Forgotten())
    assert names(issued) == ["EndWarmUp", "DiscardWorkers", "ForgetRescale", "CutStep"]
    assert (state.facts.rescale_error, state.facts.requested, state.facts.members) == (
        CANCELLED,
        states.Requested(),
        {0, 1},
    )


def test_the_same_strategy_and_count_asked_for_again_is_what_is_being_prepared() -> None:
    """Another strategy is another request: what was made is taken away first, and a failure finds the request again."""
    state, _ = play(waiting(), ASKED, *MADE, events.VersionPinned(version=3), events.Recorded(record=record(5)))
    assert play(state, ASKED)[0].facts.requested.rescale is None
    other = replace(ASKED, strategy="redistribute")
    _, issued = play(state, other, events.StepDone(step=5), events.Cooled(), events.Discarded())
    assert names(issued) == ["EndWarmUp", "DiscardWorkers", "CutStep"], "once the copy in flight has landed"
    lost, _ = play(state, events.Failed(code="unavailable", message="gone"))
    assert (lost.facts.requested.rescale, lost.facts.requested.strategy) == (3, "icadd")


def test_a_record_that_is_logged_already_comes_before_its_first_step() -> None:
    facts = replace(waiting().facts, checkpoint_step=6, warming=replace(WARMED, step=6))
    state = states.Running(facts=facts, record=record(5))
    state, issued = play(state, events.StepDone(step=5, ahead=record(6)))
    assert isinstance(issued[0], commands.LogLayout)
    assert issued[0].migration_plan is not None
    assert issued[0].migration_plan.first == 7


def test_every_step_has_its_command_and_none_is_logged_ahead() -> None:
    state, issued = begun()
    assert issued[-1] == commands.CutStep(epoch=5, step=5, layout_version=1, commands=(PREFIX + "begin from=0 to=2",))
    state, issued = play(
        state, events.Recorded(record=moving(5, "begin from=0 to=2")), events.StepDone(step=5),
        events.Recorded(record=moving(6, "enter")), events.StepDone(step=6),
    )  # fmt: skip
    assert [command.commands for command in issued if isinstance(command, commands.CutStep)] == [
        (PREFIX + "enter",), (PREFIX + "move budget=7",),
    ]  # fmt: skip
    first = issued[0]
    assert isinstance(first, commands.RunStep)
    assert (first.layout, first.coming, first.may_cut_ahead) == (LAYOUT, COURSE.new, False)


def test_a_replay_runs_each_step_in_the_layouts_of_its_record() -> None:
    """Of a migration that turned round: those of the way there, then those of the way back, then the next one's."""
    state, _ = in_keys(
        events.Recorded(record=moving(7, "move budget=7")), events.CancelAsked(), events.StepDone(step=7)
    )
    back = COURSE.turned_round(8)
    state, _ = play(state, events.LayoutLogged(layout=back.layout), events.Failed(code="unavailable", message="gone"))
    cut = identity(5, epoch=4, layout=1)
    there, turned = moving(7, "move budget=7"), moving(8, "cancel version=4", version=3)
    state, issued = play(
        state, events.Woken(), claimed(6), events.Fenced(), held(*((worker, 4, cut) for worker in (0, 1, 2))),
        events.VersionOpened(version=4, checkpoint=cut, layout=COURSE.layout), events.Discarded(),
        events.StepsRead(records=(moving(5, "begin from=0 to=2"), moving(6, "enter"), there, turned)),
        events.StepDone(step=5), events.StepDone(step=6), events.StepDone(step=7), events.StepDone(step=8),
    )  # fmt: skip
    ran = [command for command in issued if isinstance(command, commands.RunStep)]
    assert [(run.layout.version, run.coming and run.coming.version) for run in ran] == [(0, 2)] * 3 + [(2, 4)]
    assert all(run.following is None for run in ran), "what is read ahead is read by another layout's workers"
    assert issued[-1] == commands.CutStep(epoch=6, step=9, layout_version=3, commands=(PREFIX + "move budget=7",))
    assert state.facts.migration_plan == back


def test_the_last_key_puts_the_new_layout_in_use() -> None:
    """Then a checkpoint beside the steps, and when it is published those who have left are taken away."""
    down = replace(rescaled(LAYOUT, 1, step=5), version=1)
    migration_plan = MigrationPlan.towards(down, LAYOUT, strategy="icadd", first=5, budget=7)
    facts = replace(
        waiting().facts, migration_plan=migration_plan, layout=migration_plan.layout, version_layout=1,
        migration_plans={1: migration_plan},
        layouts={0: LAYOUT, 1: migration_plan.layout, 2: migration_plan.new},
    )  # fmt: skip
    state, issued = play(
        states.Running(facts=facts, record=moving(5, "move budget=7")), events.StepDone(step=5, over=True),
        events.VersionPinned(version=3),
        events.RescaleAsked(workers=2), events.Recorded(record=record(6)), events.CopyEnded(version=3), events.StepDone(step=6),
        events.Published(version=3),
    )  # fmt: skip
    assert names(issued) == ["PinVersion", "CutStep", "RunStep", "Publish", "DiscardWorkers"], "the next rescale waits"
    assert issued[0] == commands.PinVersion(
        version=3, checkpoint=identity(6, epoch=4, layout=2), layout=migration_plan.new
    )
    assert issued[1] == commands.CutStep(epoch=4, step=6, layout_version=2)
    assert isinstance(issued[2], commands.RunStep)
    assert (issued[2].layout, issued[2].coming) == (migration_plan.new, None)
    assert issued[-1] == commands.DiscardWorkers(workers=(1,), members=(0,))
    state, issued = play(state, events.Discarded())
    assert state.facts.members == {0}
    assert names(issued) == ["PinVersion"], "the next rescale, cold, takes its checkpoint"


def test_another_rescale_waits_until_it_is_over() -> None:
    state, issued = in_keys(
        events.Recorded(record=moving(7, "move budget=7")), events.RescaleAsked(workers=1), events.StepDone(step=7)
    )
    assert names(issued) == ["RunStep", "CutStep"]
    assert state.facts.requested.rescale == 1
    state, issued = play(
        state, events.Recorded(record=moving(8, "move budget=7")), events.StepDone(step=8, over=True),
        events.VersionPinned(version=5),
        events.Recorded(record=None), events.CopyEnded(version=5), events.Published(version=5),
    )  # fmt: skip
    assert names(issued) == ["RunStep", "PinVersion", "CutStep", "Wait", "Publish", "LogLayout"]


def test_a_cancel_turns_it_round_between_two_steps() -> None:
    state, issued = in_keys(
        events.Recorded(record=moving(7, "move budget=7")), events.CancelAsked(), events.StepDone(step=7)
    )
    back = COURSE.turned_round(8)
    assert issued[-1] == commands.LogLayout(layout=back.layout, members=(0, 1, 2), forming=(), migration_plan=back)
    state, issued = play(state, events.LayoutLogged(layout=back.layout))
    assert issued == [
        commands.CutStep(epoch=5, step=8, layout_version=3, commands=(PREFIX + "cancel version=4",)),
    ]
    assert (state.facts.rescale_error, state.facts.requested) == (CANCELLED, states.Requested())
    state, issued = play(state, events.CancelAsked(), events.Recorded(record=moving(8, "cancel version=4", version=3)))
    assert isinstance(issued[0], commands.RunStep)
    assert (issued[0].layout, issued[0].coming) == (COURSE.new, back.new)
    assert back.new.owners == LAYOUT.owners


def test_a_cancel_before_its_first_step_waits_for_that_step() -> None:
    state, issued = begun()
    state, issued = play(state, events.CancelAsked(), events.Recorded(record=moving(5, "begin from=0 to=2")))
    assert names(issued) == ["RunStep"]
    state, issued = play(state, events.StepDone(step=5))
    assert isinstance(issued[0], commands.LogLayout)
    assert issued[0].migration_plan == COURSE.turned_round(6)


def test_a_cancel_takes_back_the_rescale_that_waits_behind() -> None:
    state, issued = in_keys(
        events.Recorded(record=moving(7, "move budget=7")), events.RescaleAsked(workers=1), events.CancelAsked(),
        events.StepDone(step=7),
        events.Forgotten(),
    )  # fmt: skip
    assert names(issued) == ["RunStep", "ForgetRescale", "CutStep"]
    assert (state.facts.requested, state.facts.migration_plan) == (states.Requested(), COURSE)


def test_a_stop_in_its_midst_is_a_checkpoint_in_its_layout() -> None:
    state, issued = in_keys(
        events.Recorded(record=moving(7, "move budget=7")), events.StopAsked(), events.StepDone(step=7),
        events.VersionPinned(version=5),
        events.Copied(version=5), events.Published(version=5),
    )  # fmt: skip
    assert names(issued) == ["RunStep", "PinVersion", "AwaitCopy", "Publish", "Shutdown"]
    assert issued[1] == commands.PinVersion(version=5, checkpoint=identity(8, epoch=5, layout=1), layout=COURSE.layout)
    assert isinstance(state, states.Stopped)


def test_a_start_in_its_midst_goes_on_with_the_command_of_the_next_step() -> None:
    state, _ = in_keys()
    begin = states.Starting(facts=replace(state.facts, migration_plan=None, epoch=0))
    cut = identity(7, epoch=5, layout=1)
    state, issued = play(
        begin, events.LoopReady(), claimed(6), events.Fenced(), held(*((worker, 4, cut) for worker in (0, 1, 2))),
        events.VersionOpened(version=4, checkpoint=cut, layout=COURSE.layout), events.Discarded(), events.StepsRead(records=()),
    )  # fmt: skip
    assert issued[-1] == commands.CutStep(epoch=6, step=7, layout_version=1, commands=(PREFIX + "move budget=7",))
    assert state.facts.migration_plan == COURSE


def test_where_hosts_differ_it_begins_at_a_published_checkpoint() -> None:
    apart = replace(LAYOUT, hosts=("here", "there"))
    facts = replace(waiting().facts, layout=apart, layouts={0: apart}, warming=replace(WARMED, round=2, step=4))
    state, issued = play(
        states.Running(facts=facts, record=record(5)), events.StepDone(step=5), events.VersionPinned(version=3),
        events.Copied(version=3),
        events.Published(version=3),
    )  # fmt: skip
    assert names(issued) == ["PinVersion", "AwaitCopy", "Publish", "LogLayout"]
    assert isinstance(state, states.Rescaling)
    _, issued = play(state, events.LayoutLogged(layout=state.new))
    assert isinstance(issued[0], commands.RedistributeShards)
    assert issued[0].cut is None


def test_a_count_that_cannot_be_is_told_and_steps_go_on() -> None:
    state, issued = play(waiting(), events.RescaleAsked(workers=9999, strategy="redistribute"), events.Forgotten())
    assert names(issued) == ["ForgetRescale", "CutStep"]
    assert state.facts.rescale_error


def migration_states() -> list[states.State]:
    """Every state with a migration that begins, goes on, turns round, is over."""
    base = replace(
        waiting().facts, members=frozenset({0, 1, 2}), layouts={0: LAYOUT, 1: COURSE.layout, 2: COURSE.new},
        migration_plans={1: COURSE}, version_layout=1,
    )  # fmt: skip
    back = COURSE.turned_round(9)
    layouts: list[tuple[MigrationPlan | None, Layout, int]] = [
        (COURSE, COURSE.layout, 5), (COURSE, COURSE.layout, 6), (back, back.layout, 9), (back, back.layout, 10),
        (None, COURSE.new, 12), (None, LAYOUT, 12),
    ]  # fmt: skip
    found: list[states.State] = []
    for migration_plan, layout, number in layouts:
        facts = replace(base, migration_plan=migration_plan, layout=layout, next_step=number)
        found += [states.Cancelling(facts=facts, awaits=a) for a in ("logged", "forgotten")]
        found += [states.Checkpointing(facts=facts, version=3, checkpoint=identity(number), awaits="discarded")]
        found += [replace(state, facts=replace(facts, halt=state.facts.halt)) for state in every_state()]
    for warming in (replace(WARMED, round=0), WARMED, replace(WARMED, round=2, ready=True)):
        facts = replace(
            base, layouts={0: LAYOUT, 1: COURSE.layout}, migration_plans={}, version_layout=0, warming=warming
        )
        found += [states.WarmingUp(facts=facts, awaits=a) for a in ("logged", "discarded", "created", "fenced", "held")]
        found += [replace(state, facts=replace(facts, halt=state.facts.halt)) for state in every_state()]
    return found


def test_every_pair_has_an_answer_or_a_story() -> None:
    own = [
        events.CancelAsked(), ASKED, events.LayoutLogged(layout=COURSE.layout), events.StepDone(step=5, over=True),
        events.StepDone(step=6, over=True), events.Recorded(record=moving(5, "begin from=0 to=2")),
        events.StepsRead(records=(moving(6, "enter"),)),
    ]  # fmt: skip
    check_every_pair(migration_states(), [*every_event(), *own], least=1500)


@pytest.mark.parametrize("strategy", ["icadd", "redistribute"])
def test_a_course_is_known_by_its_steps(strategy: str) -> None:
    """Its commands follow from their numbers, so a coordinator that goes on needs nothing else."""
    migration_plan = MigrationPlan.towards(NEW, LAYOUT, strategy=strategy, first=5, budget=7)
    kinds = [type(migration_plan.command(number)).__name__ for number in range(5, 9)]
    second = "EnterCommand" if strategy == "icadd" else "MoveCommand"
    assert kinds == ["BeginCommand", second, "MoveCommand", "MoveCommand"]
    back = migration_plan.turned_round(6)
    assert [type(back.command(number)).__name__ for number in range(6, 9)] == [
        "CancelCommand", "MoveCommand", "MoveCommand",
    ]  # fmt: skip
    assert back.turned_round(7).new.owners == migration_plan.new.owners

"""The machine's decisions about a warm-up, as command lists."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dbsp.coordinator.decisions import orders as do
from dbsp.coordinator.decisions import protocol as p
from dbsp.coordinator.decisions.machine import step
from dbsp.coordinator.decisions.migrating import CANCELLED
from dbsp.coordinator.strategies import WARMUP
from dbsp.layout import Layout, initial, rescaled
from tests.coordinator.test_machine import (
    LAYOUT,
    check_every_pair,
    every_event,
    every_state,
    identity,
    names,
    play,
    record,
    running,
)

LAG = 1000
NEW = rescaled(LAYOUT, 3, step=5)
BEGAN = replace(NEW, first_steps=(0, 0, 8))
ASKED = p.RescaleAsked(workers=3, strategy=WARMUP)
MADE = (p.LayoutLogged(layout=NEW), p.Discarded(), p.Created(), p.Fenced(), p.MergesHeld())


def beginning(**changes: object) -> p.State:
    """A machine that waits for input at step 5, where checkpoint 2 was taken."""
    facts = replace(running(acceptable_recovery_lag=LAG).facts, checkpoint_step=5)
    return p.Running(facts=replace(facts, **changes), awaits="input")  # type: ignore[arg-type]


def warming(*events: p.Event, new: Layout = NEW, **changes: object) -> tuple[p.State, list[do.Command]]:
    """In the first round, and what came then."""
    state, _ = play(beginning(**changes), ASKED, p.LayoutLogged(layout=new), *MADE[1:], p.WarmBegun(round=1))
    return play(state, *events)


def nothing(state: p.State) -> p.State:
    """No row waits."""
    return step(state, p.Recorded(record=None))[0]


def round_two(lag: int = 0, new: Layout = NEW, **changes: object) -> tuple[p.State, list[do.Command]]:
    """The first round has ended, a checkpoint was taken, the second has begun, a step ran, and now it ends."""
    state, commands = warming(
        p.Recorded(record=record(5)), p.WarmEnded(round=1, lag_bytes=10**9), p.StepDone(step=5),
        p.Pinned(version=3), p.Recorded(record=record(6)), p.CopyEnded(version=3), p.StepDone(step=6), p.Published(version=3),
        p.WarmBegun(round=2), p.Recorded(record=record(7)), p.WarmEnded(round=2, lag_bytes=lag), new=new, **changes,
    )  # fmt: skip
    state, more = step(state, p.StepDone(step=7))
    return state, [*commands, *more]


def test_a_round_copies_the_last_published_version_while_steps_go_on() -> None:
    state, commands = play(beginning(), ASKED, *MADE, p.WarmBegun(round=1), p.Recorded(record=record(5)))
    assert names(commands) == [
        "LogLayout", "DiscardWorkers", "CreateWorkers", "FenceWorkers", "HoldMerges", "WarmUp", "CutStep", "RunStep",
    ]  # fmt: skip
    assert commands[0] == do.LogLayout(layout=NEW, members=(0, 1, 2), forming=(2,))
    assert commands[1] == do.DiscardWorkers(workers=(2,), members=(0, 1, 2), forming=(2,), must=True)
    assert commands[3] == do.FenceWorkers(epoch=4, workers=(2,))
    assert commands[4] == do.HoldMerges(old=LAYOUT, new=NEW)
    assert commands[5] == do.WarmUp(round=1, version=2, old=LAYOUT, new=NEW)
    assert isinstance(commands[-1], do.RunStep)
    assert commands[-1].layout == LAYOUT
    assert commands[-1].may_cut_ahead, "a warm-up does not slow the cutting of steps"
    assert isinstance(state, p.Running)


def test_the_first_round_copies_a_checkpoint_taken_after_large_merges_were_held() -> None:
    """Of an older one they might have replaced everything when the second round looks."""
    _, commands = play(
        beginning(checkpoint_step=3), ASKED, *MADE, p.Pinned(version=3), p.Recorded(record=record(5)),
        p.CopyEnded(version=3), p.StepDone(step=5), p.Published(version=3),
    )  # fmt: skip
    assert names(commands)[4:] == ["HoldMerges", "PinVersion", "CutStep", "RunStep", "Publish", "WarmUp"]
    assert commands[-1] == do.WarmUp(round=1, version=3, old=LAYOUT, new=NEW)


def test_rounds_follow_checkpoints_until_little_is_missing() -> None:
    state, commands = round_two(lag=LAG)
    assert names(commands) == [
        "RunStep", "PinVersion", "CutStep", "RunStep", "Publish", "WarmUp", "CutStep", "RunStep", "LogLayout",
    ]  # fmt: skip
    assert commands[5] == do.WarmUp(round=2, version=3, old=LAYOUT, new=NEW)
    assert commands[-1] == do.LogLayout(layout=BEGAN, members=(0, 1, 2), forming=(2,)), "outputs begin at the switch"
    state, commands = play(state, p.LayoutLogged(layout=BEGAN), p.Redistributed(version=4), p.Published(version=4))
    made, cut = identity(8, epoch=4, layout=NEW.version), identity(8, epoch=4)
    assert commands == [
        do.Redistribute(version=4, checkpoint=made, old=LAYOUT, new=BEGAN, cut=cut),
        do.Publish(version=4, checkpoint=made, ends_rescale=True), do.ClaimEpoch(),
    ]  # fmt: skip
    assert state.facts.warming is None


def test_where_hosts_differ_the_switch_slices_a_published_checkpoint() -> None:
    """What steps have made and nobody has made durable is seen on its own host alone."""
    apart = replace(LAYOUT, hosts=("here", "there"))
    new = rescaled(apart, 3, step=5, host="here")
    began = replace(new, first_steps=(0, 0, 8))
    state, commands = round_two(lag=LAG, layout=apart, layouts={0: apart}, new=new)
    assert names(commands)[-2:] == ["RunStep", "PinVersion"]
    state, commands = play(state, p.Pinned(version=4), p.Copied(version=4), p.Published(version=4))
    assert names(commands) == ["AwaitCopy", "Publish", "LogLayout"]
    assert commands[-1] == do.LogLayout(layout=began, members=(0, 1, 2), forming=(2,))
    state, commands = play(state, p.LayoutLogged(layout=began), p.Redistributed(version=5), p.Published(version=5))
    made = identity(8, epoch=4, layout=new.version)
    assert commands[0] == do.Redistribute(version=5, checkpoint=made, old=apart, new=began, cut=None)


def test_the_switch_waits_for_the_checkpoint_in_flight_while_steps_go_on() -> None:
    state, commands = play(
        round_two(lag=LAG + 1)[0], p.Pinned(version=4), p.Recorded(record=record(8)), p.CopyEnded(version=4),
        p.StepDone(step=8), p.Published(version=4), p.WarmBegun(round=3),
        p.Recorded(record=record(9)), p.CheckpointAsked(), p.StepDone(step=9), p.Pinned(version=5),
        p.Recorded(record=record(10)), p.WarmEnded(round=3, lag_bytes=LAG), p.CheckpointAsked(), p.StepDone(step=10),
        p.Recorded(record=record(11)), p.CopyEnded(version=5), p.StepDone(step=11), p.Published(version=5),
    )  # fmt: skip
    assert names(commands)[-6:] == ["CutStep", "RunStep", "CutStep", "RunStep", "Publish", "LogLayout"]
    began = replace(NEW, first_steps=(0, 0, 12))
    state, commands = play(state, p.LayoutLogged(layout=began))
    made, cut = identity(12, epoch=4, layout=NEW.version), identity(12, epoch=4)
    assert commands == [do.Redistribute(version=6, checkpoint=made, old=LAYOUT, new=began, cut=cut)]


def test_a_lag_that_is_not_accepted_means_another_round() -> None:
    state, commands = round_two(lag=LAG + 1)
    assert names(commands)[-1] == "PinVersion"
    state, commands = play(
        state, p.Pinned(version=4), p.Recorded(record=record(8)), p.CopyEnded(version=4), p.StepDone(step=8)
    )
    assert names(commands) == ["CutStep", "RunStep", "Publish"]
    state, commands = play(state, p.Published(version=4))
    assert commands == [do.WarmUp(round=3, version=4, old=LAYOUT, new=NEW)]


def test_the_first_round_says_nothing_of_the_lag() -> None:
    """What it copied may be old: however little that was, a checkpoint of now is looked at first."""
    state, commands = warming(
        p.Recorded(record=record(5)), p.WarmEnded(round=1, lag_bytes=0), p.StepDone(step=5),
    )  # fmt: skip
    assert names(commands) == ["RunStep", "PinVersion"]
    assert isinstance(state, p.Checkpointing)


def test_without_steps_since_the_version_the_switch_comes_at_once() -> None:
    still = replace(beginning().facts, next_step=3, checkpoint_step=3)
    state, commands = play(p.Running(facts=still, awaits="input"), ASKED)
    new = rescaled(LAYOUT, 3, step=3)
    state, commands = play(
        state, p.LayoutLogged(layout=new), *MADE[1:], p.WarmBegun(round=1), p.Recorded(record=None),
        p.WarmEnded(round=1, lag_bytes=5),
    )  # fmt: skip
    assert names(commands)[-1] == "LogLayout"
    assert isinstance(state, p.Rescaling)
    assert state.warm


def test_while_a_round_reads_a_version_only_one_newer_is_taken() -> None:
    state, commands = warming(
        p.CheckpointAsked(), p.Recorded(record=record(5)), p.StepDone(step=5), p.Pinned(version=3),
        p.Recorded(record=record(6)), p.CopyEnded(version=3), p.StepDone(step=6), p.Published(version=3),
    )  # fmt: skip
    assert names(commands) == ["RunStep", "PinVersion", "CutStep", "RunStep", "Publish", "CutStep"]
    state, commands = play(state, p.CheckpointAsked(), p.Recorded(record=record(7)), p.StepDone(step=7))
    assert names(commands) == ["RunStep", "CutStep"], "the round reads version 2: version 4 would delete it (12)"
    assert isinstance(commands[0], do.RunStep)
    assert commands[0].may_cut_ahead
    state, commands = play(state, p.Recorded(record=record(8)), p.WarmEnded(round=1, lag_bytes=9), p.StepDone(step=8))
    assert names(commands) == ["RunStep", "PinVersion"]


def test_joining_workers_are_not_fenced_while_a_checkpoint_is_copied() -> None:
    """Fencing ends what is copied beside the steps."""
    checkpoint = identity(5, epoch=4)
    copying = p.Copy(version=3, checkpoint=checkpoint)
    state, commands = play(beginning(copying=copying), ASKED, p.Recorded(record=record(5)))
    assert names(commands) == ["CutStep", "RunStep"]
    state, commands = play(state, p.CopyEnded(version=3), p.StepDone(step=5), p.Published(version=3))
    assert names(commands) == ["Publish", "LogLayout"]


def test_a_cancel_takes_away_what_was_made() -> None:
    state, commands = warming(
        p.Recorded(record=record(5)), p.CancelAsked(), p.StepDone(step=5), p.Cooled(), p.Discarded(), p.Forgotten()
    )
    assert commands[1:4] == [
        do.EndWarmUp(layout_version=1, workers=(0, 1)), do.DiscardWorkers(workers=(2,), members=(0, 1)), do.ForgetRescale(),
    ]  # fmt: skip
    assert names(commands)[-1] == "CutStep"
    assert (state.facts.warming, state.facts.wants, state.facts.members) == (None, p.Wants(), {0, 1})
    assert state.facts.rescale_error == CANCELLED
    assert state.facts.layout == LAYOUT


@pytest.mark.parametrize("after", [(), (p.Cooled(),), (p.Cooled(), p.Discarded())])
def test_the_same_rescale_asked_for_while_it_is_cancelled_is_begun_anew(after: tuple[p.Event, ...]) -> None:
    """What is being taken away meets no wish: the new one would be lost with it."""
    state, _ = warming(p.Recorded(record=record(5)), p.CancelAsked(), p.StepDone(step=5))
    state, _ = play(state, *after, ASKED)
    assert (state.facts.wants.rescale, state.facts.wants.cancel) == (3, False)
    rest = (p.Cooled(), p.Discarded())[len(after) :] if len(after) < 2 else (p.Forgotten(),)
    state, commands = play(state, *rest)
    assert isinstance(state, p.WarmingUp)
    assert names(commands)[-1] == "LogLayout"
    assert state.facts.rescale_error is None


def test_a_cancel_during_the_switch_comes_too_late() -> None:
    state, _ = round_two()
    state, _ = play(state, p.CancelAsked())
    assert isinstance(state, p.Rescaling)
    assert not state.facts.wants.cancel


def test_a_cancel_without_a_rescale_is_nothing() -> None:
    state, commands = play(beginning(), p.CancelAsked())
    assert names(commands) == ["CutStep"]
    assert state.facts.wants == p.Wants()


@pytest.mark.parametrize("other", [p.RescaleAsked(workers=4, strategy=WARMUP), p.RescaleAsked(workers=4)])
def test_another_wish_takes_its_place(other: p.RescaleAsked) -> None:
    state, commands = warming(p.Recorded(record=record(5)), other, p.StepDone(step=5), p.Cooled(), p.Discarded())
    assert "ForgetRescale" not in names(commands), "the ledger holds the newer wish"
    assert names(commands)[-1] == ("LogLayout" if other.strategy == WARMUP else "PinVersion")
    assert state.facts.rescale_error is None


def test_the_same_wish_again_changes_nothing() -> None:
    state, commands = warming(p.Recorded(record=record(5)), ASKED, p.StepDone(step=5))
    assert names(commands) == ["RunStep", "CutStep"]
    assert state.facts.warming is not None


def test_a_round_that_fails_gives_the_warm_up_up_and_steps_go_on() -> None:
    state, commands = warming(
        p.Recorded(record=record(5)), p.WarmEnded(round=1, code="unavailable", message="gone"), p.StepDone(step=5),
        p.Cooled(), p.Discarded(), p.Forgotten(),
    )  # fmt: skip
    assert names(commands) == ["RunStep", "EndWarmUp", "DiscardWorkers", "ForgetRescale", "CutStep"]
    assert state.facts.rescale_error == "gone"
    state, commands = warming(p.Recorded(record=record(5)), p.WarmEnded(round=1, code="fenced"), p.StepDone(step=5))
    assert isinstance(state, p.Broken)


def test_a_rollback_begins_the_warm_up_anew() -> None:
    state, _ = warming(p.Recorded(record=record(5)), p.Failed(code="unavailable", message="gone"))
    assert isinstance(state, p.Recovering)
    assert state.facts.warming is None
    assert (state.facts.wants.rescale, state.facts.wants.strategy) == (3, WARMUP)
    assert state.facts.members == {0, 1, 2}, "the one that joined is known, so it can be taken away"


def test_news_of_a_round_that_is_past_are_none() -> None:
    state, _ = warming(p.Recorded(record=record(5)))
    same, commands = step(state, p.WarmEnded(round=0, lag_bytes=1))
    assert (same, commands) == (state, ())


@pytest.mark.parametrize("asked", [p.StopAsked(), p.UpgradeAsked()], ids=["stop", "upgrade"])
def test_a_stop_and_an_upgrade_end_the_round_and_keep_the_wish(asked: p.Event) -> None:
    state, commands = warming(
        p.Recorded(record=record(5)), asked, p.StepDone(step=5), asked, p.Cooled(), p.Pinned(version=3),
        p.Copied(version=3), p.Published(version=3),
    )  # fmt: skip
    assert names(commands) == ["RunStep", "EndWarmUp", "PinVersion", "AwaitCopy", "Publish", "Finish"]
    assert commands[-1] == do.Finish(code=None, message="stopped", again=isinstance(asked, p.UpgradeAsked))
    assert isinstance(state, p.Stopped)


def test_a_wish_that_comes_during_the_switch_is_met_after_it() -> None:
    state, _ = round_two()
    state, _ = play(
        state, p.LayoutLogged(layout=BEGAN), p.RescaleAsked(workers=4), p.Redistributed(version=4),
        p.Published(version=4),
    )  # fmt: skip
    assert isinstance(state, p.Recovering)
    assert state.facts.wants.rescale == 4


def test_a_count_that_cannot_be_is_told_and_steps_go_on() -> None:
    fixed = initial(2, shards=4)
    state, commands = play(
        beginning(layout=fixed, layouts={0: fixed}), p.RescaleAsked(workers=9, strategy=WARMUP), p.Forgotten()
    )
    assert names(commands) == ["ForgetRescale", "CutStep"]
    assert "more workers than shards" in (state.facts.rescale_error or "")
    assert isinstance(nothing(state), p.Running)


def states() -> list[p.State]:
    """The states of a warm-up, in all they may wait for, and the others with one going on."""
    facts = replace(beginning().facts, forming=frozenset({2}), members=frozenset({0, 1, 2}))
    rounds = [
        p.Warming(new=NEW, workers=3, ended=True),
        p.Warming(new=NEW, workers=3, round=1, version=2, step=3),
        p.Warming(new=NEW, workers=3, round=2, version=2, step=3, ended=True),
        p.Warming(new=NEW, workers=3, round=2, version=2, step=3, ended=True, lag_bytes=10**9),
        p.Warming(new=NEW, workers=3, round=2, version=2, step=3, ended=True, code="data"),
    ]  # fmt: skip
    found: list[p.State] = []
    for now in (replace(facts, warming=warm) for warm in rounds):
        found += [
            p.WarmingUp(facts=now, awaits=a) for a in ("logged", "discarded", "created", "fenced", "held", "begun")
        ]
        found += [p.Cancelling(facts=now, awaits=a) for a in ("cooled", "discarded", "forgotten")]
        found += [replace(state, facts=replace(now, halt=state.facts.halt)) for state in every_state()]
    return found


def test_every_pair_has_an_answer_or_a_story() -> None:
    own = [
        p.MergesHeld(),
        p.WarmBegun(round=1), p.WarmEnded(round=1, lag_bytes=1), p.WarmEnded(round=2, code="data", message="m"), p.Cooled(),
        p.CancelAsked(), ASKED, p.LayoutLogged(layout=NEW),
    ]  # fmt: skip
    check_every_pair([*every_state(), *states()], [*every_event(), *own], least=1500)


APART = replace(LAYOUT, hosts=("here", "there"), offered=(("here", 1.0), ("there", 1.0)))


def test_workers_are_made_fenced_and_deleted_where_they_live() -> None:
    new = rescaled(APART, 4, step=5)
    state, commands = play(
        beginning(layout=APART, layouts={0: APART}), p.RescaleAsked(workers=4, strategy=WARMUP),
        p.LayoutLogged(layout=new), *MADE[1:], p.WarmBegun(round=1), p.Recorded(record=record(5)), p.CancelAsked(),
        p.StepDone(step=5), p.Cooled(),
    )  # fmt: skip
    told = {type(command).__name__: command for command in commands}
    for name in ("CreateWorkers", "FenceWorkers", "DiscardWorkers"):
        assert (told[name].workers, told[name].hosts) == ((2, 3), ("here", "there")), name  # type: ignore[attr-defined]
    assert told["EndWarmUp"] == do.EndWarmUp(layout_version=1, workers=(0, 1), hosts=("here", "there"))
    assert isinstance(state, p.Cancelling)

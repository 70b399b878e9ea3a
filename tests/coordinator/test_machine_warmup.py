"""The machine's decisions about a warm-up, as command lists."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dbsp.coordinator.decisions import commands, events, states
from dbsp.coordinator.decisions.machine import step
from dbsp.coordinator.decisions.migrating import CANCELLED
from dbsp.coordinator.decisions.strategies import WARMUP
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
ASKED = events.RescaleAsked(workers=3, strategy=WARMUP)
MADE = (events.LayoutLogged(layout=NEW), events.Discarded(), events.Created(), events.Fenced(), events.MergesHeld())


def beginning(**changes: object) -> states.State:
    """A machine that waits for input at step 5, where checkpoint 2 was taken."""
    facts = replace(running(acceptable_recovery_lag=LAG).facts, checkpoint_step=5)
    return states.Running(facts=replace(facts, **changes), awaits="input")  # type: ignore[arg-type]


def warming(
    *arrived: events.Event, new: Layout = NEW, **changes: object
) -> tuple[states.State, list[commands.Command]]:
    """In the first round, and what came then."""
    state, _ = play(beginning(**changes), ASKED, events.LayoutLogged(layout=new), *MADE[1:], events.WarmBegun(round=1))
    return play(state, *arrived)


def nothing(state: states.State) -> states.State:
    """No row waits."""
    return step(state, events.Recorded(record=None))[0]


def round_two(lag: int = 0, new: Layout = NEW, **changes: object) -> tuple[states.State, list[commands.Command]]:
    """The first round has ended, a checkpoint was taken, the second has begun, a step ran, and now it ends."""
    state, issued = warming(
        events.Recorded(record=record(5)), events.WarmEnded(round=1, lag_bytes=10**9), events.StepDone(step=5),
        events.VersionPinned(version=3), events.Recorded(record=record(6)), events.CopyEnded(version=3), events.StepDone(step=6),
        events.Published(version=3),
        events.WarmBegun(round=2), events.Recorded(record=record(7)), events.WarmEnded(round=2, lag_bytes=lag), new=new,
        **changes,
    )  # fmt: skip
    state, more = step(state, events.StepDone(step=7))
    return state, [*issued, *more]


def test_a_round_copies_the_last_published_version_while_steps_go_on() -> None:
    state, issued = play(beginning(), ASKED, *MADE, events.WarmBegun(round=1), events.Recorded(record=record(5)))
    assert names(issued) == [
        "LogLayout", "DiscardWorkers", "CreateWorkers", "FenceWorkers", "HoldMerges", "WarmUp", "CutStep", "RunStep",
    ]  # fmt: skip
    assert issued[0] == commands.LogLayout(layout=NEW, members=(0, 1, 2), forming=(2,))
    assert issued[1] == commands.DiscardWorkers(workers=(2,), members=(0, 1, 2), forming=(2,), must=True)
    assert issued[3] == commands.FenceWorkers(epoch=4, workers=(2,))
    assert issued[4] == commands.HoldMerges(old=LAYOUT, new=NEW)
    assert issued[5] == commands.WarmUp(round=1, version=2, old=LAYOUT, new=NEW)
    assert isinstance(issued[-1], commands.RunStep)
    assert issued[-1].layout == LAYOUT
    assert issued[-1].may_cut_ahead, "a warm-up does not slow the cutting of steps"
    assert isinstance(state, states.Running)


def test_the_first_round_copies_a_checkpoint_taken_after_large_merges_were_held() -> None:
    """Of an older one they might have replaced everything when the second round looks."""
    _, issued = play(
        beginning(checkpoint_step=3), ASKED, *MADE, events.VersionPinned(version=3), events.Recorded(record=record(5)),
        events.CopyEnded(version=3), events.StepDone(step=5), events.Published(version=3),
    )  # fmt: skip
    assert names(issued)[4:] == ["HoldMerges", "PinVersion", "CutStep", "RunStep", "Publish", "WarmUp"]
    assert issued[-1] == commands.WarmUp(round=1, version=3, old=LAYOUT, new=NEW)


def test_rounds_follow_checkpoints_until_little_is_missing() -> None:
    state, issued = round_two(lag=LAG)
    assert names(issued) == [
        "RunStep", "PinVersion", "CutStep", "RunStep", "Publish", "WarmUp", "CutStep", "RunStep", "LogLayout",
    ]  # fmt: skip
    assert issued[5] == commands.WarmUp(round=2, version=3, old=LAYOUT, new=NEW)
    assert issued[-1] == commands.LogLayout(layout=BEGAN, members=(0, 1, 2), forming=(2,)), (
        "outputs begin at the switch"
    )
    state, issued = play(
        state, events.LayoutLogged(layout=BEGAN), events.Redistributed(version=4), events.Published(version=4)
    )
    made, cut = identity(8, epoch=4, layout=NEW.version), identity(8, epoch=4)
    assert issued == [
        commands.RedistributeShards(version=4, checkpoint=made, old=LAYOUT, new=BEGAN, cut=cut),
        commands.Publish(version=4, checkpoint=made, ends_rescale=True), commands.ClaimEpoch(),
    ]  # fmt: skip
    assert state.facts.warming is None


def test_where_hosts_differ_the_switch_slices_a_published_checkpoint() -> None:
    """What steps have made and nobody has made durable is seen on its own host alone."""
    apart = replace(LAYOUT, hosts=("here", "there"))
    new = rescaled(apart, 3, step=5, host="here")
    began = replace(new, first_steps=(0, 0, 8))
    state, issued = round_two(lag=LAG, layout=apart, layouts={0: apart}, new=new)
    assert names(issued)[-2:] == ["RunStep", "PinVersion"]
    state, issued = play(state, events.VersionPinned(version=4), events.Copied(version=4), events.Published(version=4))
    assert names(issued) == ["AwaitCopy", "Publish", "LogLayout"]
    assert issued[-1] == commands.LogLayout(layout=began, members=(0, 1, 2), forming=(2,))
    state, issued = play(
        state, events.LayoutLogged(layout=began), events.Redistributed(version=5), events.Published(version=5)
    )
    made = identity(8, epoch=4, layout=new.version)
    assert issued[0] == commands.RedistributeShards(version=5, checkpoint=made, old=apart, new=began, cut=None)


def test_the_switch_waits_for_the_checkpoint_in_flight_while_steps_go_on() -> None:
    state, issued = play(
        round_two(lag=LAG + 1)[0], events.VersionPinned(version=4), events.Recorded(record=record(8)),
        events.CopyEnded(version=4),
        events.StepDone(step=8), events.Published(version=4), events.WarmBegun(round=3),
        events.Recorded(record=record(9)), events.CheckpointAsked(), events.StepDone(step=9), events.VersionPinned(version=5),
        events.Recorded(record=record(10)), events.WarmEnded(round=3, lag_bytes=LAG), events.CheckpointAsked(),
        events.StepDone(step=10),
        events.Recorded(record=record(11)), events.CopyEnded(version=5), events.StepDone(step=11), events.Published(version=5),
    )  # fmt: skip
    assert names(issued)[-6:] == ["CutStep", "RunStep", "CutStep", "RunStep", "Publish", "LogLayout"]
    began = replace(NEW, first_steps=(0, 0, 12))
    state, issued = play(state, events.LayoutLogged(layout=began))
    made, cut = identity(12, epoch=4, layout=NEW.version), identity(12, epoch=4)
    assert issued == [commands.RedistributeShards(version=6, checkpoint=made, old=LAYOUT, new=began, cut=cut)]


def test_a_lag_that_is_not_accepted_means_another_round() -> None:
    state, issued = round_two(lag=LAG + 1)
    assert names(issued)[-1] == "PinVersion"
    state, issued = play(
        state,
        events.VersionPinned(version=4),
        events.Recorded(record=record(8)),
        events.CopyEnded(version=4),
        events.StepDone(step=8),
    )
    assert names(issued) == ["CutStep", "RunStep", "Publish"]
    state, issued = play(state, events.Published(version=4))
    assert issued == [commands.WarmUp(round=3, version=4, old=LAYOUT, new=NEW)]


def test_the_first_round_says_nothing_of_the_lag() -> None:
    """What it copied may be old: however little that was, a checkpoint of now is looked at first."""
    state, issued = warming(
        events.Recorded(record=record(5)), events.WarmEnded(round=1, lag_bytes=0), events.StepDone(step=5),
    )  # fmt: skip
    assert names(issued) == ["RunStep", "PinVersion"]
    assert isinstance(state, states.Checkpointing)


def test_without_steps_since_the_version_the_switch_comes_at_once() -> None:
    still = replace(beginning().facts, next_step=3, checkpoint_step=3)
    state, issued = play(states.Running(facts=still, awaits="input"), ASKED)
    new = rescaled(LAYOUT, 3, step=3)
    state, issued = play(
        state, events.LayoutLogged(layout=new), *MADE[1:], events.WarmBegun(round=1), events.Recorded(record=None),
        events.WarmEnded(round=1, lag_bytes=5),
    )  # fmt: skip
    assert names(issued)[-1] == "LogLayout"
    assert isinstance(state, states.Rescaling)
    assert state.warm


def test_while_a_round_reads_a_version_only_one_newer_is_taken() -> None:
    state, issued = warming(
        events.CheckpointAsked(), events.Recorded(record=record(5)), events.StepDone(step=5), events.VersionPinned(version=3),
        events.Recorded(record=record(6)), events.CopyEnded(version=3), events.StepDone(step=6), events.Published(version=3),
    )  # fmt: skip
    assert names(issued) == ["RunStep", "PinVersion", "CutStep", "RunStep", "Publish", "CutStep"]
    state, issued = play(state, events.CheckpointAsked(), events.Recorded(record=record(7)), events.StepDone(step=7))
    assert names(issued) == ["RunStep", "CutStep"], "the round reads version 2: version 4 would delete it (12)"
    assert isinstance(issued[0], commands.RunStep)
    assert issued[0].may_cut_ahead
    state, issued = play(
        state, events.Recorded(record=record(8)), events.WarmEnded(round=1, lag_bytes=9), events.StepDone(step=8)
    )
    assert names(issued) == ["RunStep", "PinVersion"]


def test_joining_workers_are_not_fenced_while_a_checkpoint_is_copied() -> None:
    """Fencing ends what is copied beside the steps."""
    checkpoint = identity(5, epoch=4)
    copying = states.Copy(version=3, checkpoint=checkpoint)
    state, issued = play(beginning(copying=copying), ASKED, events.Recorded(record=record(5)))
    assert names(issued) == ["CutStep", "RunStep"]
    state, issued = play(state, events.CopyEnded(version=3), events.StepDone(step=5), events.Published(version=3))
    assert names(issued) == ["Publish", "LogLayout"]


def test_a_cancel_takes_away_what_was_made() -> None:
    state, issued = warming(
        events.Recorded(record=record(5)),
        events.CancelAsked(),
        events.StepDone(step=5),
        events.Cooled(),
        events.Discarded(),
        events.Forgotten(),
    )
    assert issued[1:4] == [
        commands.EndWarmUp(layout_version=1, workers=(0, 1)), commands.DiscardWorkers(workers=(2,), members=(0, 1)),
        commands.ForgetRescale(),
    ]  # fmt: skip
    assert names(issued)[-1] == "CutStep"
    assert (state.facts.warming, state.facts.requested, state.facts.members) == (None, states.Requested(), {0, 1})
    assert state.facts.rescale_error == CANCELLED
    assert state.facts.layout == LAYOUT


@pytest.mark.parametrize("after", [(), (events.Cooled(),), (events.Cooled(), events.Discarded())])
def test_the_same_rescale_asked_for_while_it_is_cancelled_is_begun_anew(after: tuple[events.Event, ...]) -> None:
    """What is being taken away meets no request: the new one would be lost with it."""
    state, _ = warming(events.Recorded(record=record(5)), events.CancelAsked(), events.StepDone(step=5))
    state, _ = play(state, *after, ASKED)
    assert (state.facts.requested.rescale, state.facts.requested.cancel) == (3, False)
    rest = (events.Cooled(), events.Discarded())[len(after) :] if len(after) < 2 else (events.Forgotten(),)
    state, issued = play(state, *rest)
    assert isinstance(state, states.WarmingUp)
    assert names(issued)[-1] == "LogLayout"
    assert state.facts.rescale_error is None


def test_a_cancel_during_the_switch_comes_too_late() -> None:
    state, _ = round_two()
    state, _ = play(state, events.CancelAsked())
    assert isinstance(state, states.Rescaling)
    assert not state.facts.requested.cancel


def test_a_cancel_without_a_rescale_is_nothing() -> None:
    state, issued = play(beginning(), events.CancelAsked())
    assert names(issued) == ["CutStep"]
    assert state.facts.requested == states.Requested()


@pytest.mark.parametrize("other", [events.RescaleAsked(workers=4, strategy=WARMUP), events.RescaleAsked(workers=4)])
def test_another_request_takes_its_place(other: events.RescaleAsked) -> None:
    state, issued = warming(
        events.Recorded(record=record(5)), other, events.StepDone(step=5), events.Cooled(), events.Discarded()
    )
    assert "ForgetRescale" not in names(issued), "the ledger holds the newer request"
    assert names(issued)[-1] == ("LogLayout" if other.strategy == WARMUP else "PinVersion")
    assert state.facts.rescale_error is None


def test_the_same_request_again_changes_nothing() -> None:
    state, issued = warming(events.Recorded(record=record(5)), ASKED, events.StepDone(step=5))
    assert names(issued) == ["RunStep", "CutStep"]
    assert state.facts.warming is not None


def test_a_round_that_fails_gives_the_warm_up_up_and_steps_go_on() -> None:
    state, issued = warming(
        events.Recorded(record=record(5)), events.WarmEnded(round=1, code="unavailable", message="gone"), events.StepDone(step=5),
        events.Cooled(), events.Discarded(), events.Forgotten(),
    )  # fmt: skip
    assert names(issued) == ["RunStep", "EndWarmUp", "DiscardWorkers", "ForgetRescale", "CutStep"]
    assert state.facts.rescale_error == "gone"
    state, issued = warming(
        events.Recorded(record=record(5)), events.WarmEnded(round=1, code="fenced"), events.StepDone(step=5)
    )
    assert isinstance(state, states.Broken)


def test_a_rollback_begins_the_warm_up_anew() -> None:
    state, _ = warming(events.Recorded(record=record(5)), events.Failed(code="unavailable", message="gone"))
    assert isinstance(state, states.Recovering)
    assert state.facts.warming is None
    assert (state.facts.requested.rescale, state.facts.requested.strategy) == (3, WARMUP)
    assert state.facts.members == {0, 1, 2}, "the one that joined is known, so it can be taken away"


def test_news_of_a_round_that_is_past_are_none() -> None:
    state, _ = warming(events.Recorded(record=record(5)))
    same, issued = step(state, events.WarmEnded(round=0, lag_bytes=1))
    assert (same, issued) == (state, ())


@pytest.mark.parametrize("asked", [events.StopAsked(), events.UpgradeAsked()], ids=["stop", "upgrade"])
def test_a_stop_and_an_upgrade_end_the_round_and_keep_the_request(asked: events.Event) -> None:
    state, issued = warming(
        events.Recorded(record=record(5)), asked, events.StepDone(step=5), asked, events.Cooled(),
        events.VersionPinned(version=3),
        events.Copied(version=3), events.Published(version=3),
    )  # fmt: skip
    assert names(issued) == ["RunStep", "EndWarmUp", "PinVersion", "AwaitCopy", "Publish", "Shutdown"]
    assert issued[-1] == commands.Shutdown(code=None, message="stopped", again=isinstance(asked, events.UpgradeAsked))
    assert isinstance(state, states.Stopped)


def test_a_request_that_comes_during_the_switch_is_met_after_it() -> None:
    state, _ = round_two()
    state, _ = play(
        state, events.LayoutLogged(layout=BEGAN), events.RescaleAsked(workers=4), events.Redistributed(version=4),
        events.Published(version=4),
    )  # fmt: skip
    assert isinstance(state, states.Recovering)
    assert state.facts.requested.rescale == 4


def test_a_count_that_cannot_be_is_told_and_steps_go_on() -> None:
    fixed = initial(2, shards=4)
    state, issued = play(
        beginning(layout=fixed, layouts={0: fixed}), events.RescaleAsked(workers=9, strategy=WARMUP), events.Forgotten()
    )
    assert names(issued) == ["ForgetRescale", "CutStep"]
    assert "more workers than shards" in (state.facts.rescale_error or "")
    assert isinstance(nothing(state), states.Running)


def warming_states() -> list[states.State]:
    """The states of a warm-up, in all they may wait for, and the others with one going on."""
    facts = replace(beginning().facts, forming=frozenset({2}), members=frozenset({0, 1, 2}))
    rounds = [
        states.Warming(new=NEW, workers=3, ended=True),
        states.Warming(new=NEW, workers=3, round=1, version=2, step=3),
        states.Warming(new=NEW, workers=3, round=2, version=2, step=3, ended=True),
        states.Warming(new=NEW, workers=3, round=2, version=2, step=3, ended=True, lag_bytes=10**9),
        states.Warming(new=NEW, workers=3, round=2, version=2, step=3, ended=True, code="data"),
    ]  # fmt: skip
    found: list[states.State] = []
    for now in (replace(facts, warming=warm) for warm in rounds):
        found += [
            states.WarmingUp(facts=now, awaits=a) for a in ("logged", "discarded", "created", "fenced", "held", "begun")
        ]
        found += [states.Cancelling(facts=now, awaits=a) for a in ("cooled", "discarded", "forgotten")]
        found += [replace(state, facts=replace(now, halt=state.facts.halt)) for state in every_state()]
    return found


def test_every_pair_has_an_answer_or_a_story() -> None:
    own = [
        events.MergesHeld(),
        events.WarmBegun(round=1), events.WarmEnded(round=1, lag_bytes=1), events.WarmEnded(round=2, code="data", message="m"),
        events.Cooled(),
        events.CancelAsked(), ASKED, events.LayoutLogged(layout=NEW),
    ]  # fmt: skip
    check_every_pair([*every_state(), *warming_states()], [*every_event(), *own], least=1500)


APART = replace(LAYOUT, hosts=("here", "there"), offered=(("here", 1.0), ("there", 1.0)))


def test_workers_are_made_fenced_and_deleted_where_they_live() -> None:
    new = rescaled(APART, 4, step=5)
    state, issued = play(
        beginning(layout=APART, layouts={0: APART}), events.RescaleAsked(workers=4, strategy=WARMUP),
        events.LayoutLogged(layout=new), *MADE[1:], events.WarmBegun(round=1), events.Recorded(record=record(5)),
        events.CancelAsked(),
        events.StepDone(step=5), events.Cooled(),
    )  # fmt: skip
    told = {type(command).__name__: command for command in issued}
    for name in ("CreateWorkers", "FenceWorkers", "DiscardWorkers"):
        assert (told[name].workers, told[name].hosts) == ((2, 3), ("here", "there")), name  # type: ignore[attr-defined]
    assert told["EndWarmUp"] == commands.EndWarmUp(layout_version=1, workers=(0, 1), hosts=("here", "there"))
    assert isinstance(state, states.Cancelling)

"""The machine's decisions as command lists, and its totality."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from dbsp.coordinator.decisions import orders as do
from dbsp.coordinator.decisions import protocol as p
from dbsp.coordinator.decisions.fills import Fill
from dbsp.coordinator.decisions.machine import step
from dbsp.coordinator.decisions.recovery import choose
from dbsp.coordinator.strategies import WARMUP
from dbsp.errors import InternalError
from dbsp.layout import initial, rescaled
from dbsp.logs import Range, StepRecord
from dbsp.store import CheckpointId, VersionInfo
from dbsp.version import VERSION

LAYOUT = initial(2)
RUN, FINGERPRINT = "run", "print"


def facts(**changes: object) -> p.Facts:
    base = p.Facts(
        run=RUN, fingerprint=FINGERPRINT, layouts={0: LAYOUT}, layout=LAYOUT, members=frozenset({0, 1}),
        forming=frozenset({0, 1}),
    )  # fmt: skip
    return replace(base, **changes)  # type: ignore[arg-type]


def identity(number: int, *, epoch: int = 1, layout: int = 0, **changes: object) -> CheckpointId:
    base = CheckpointId(run=RUN, epoch=epoch, step=number, layout_version=layout, fingerprint=FINGERPRINT)
    return replace(base, **changes)  # type: ignore[arg-type]


def record(number: int, epoch: int = 1) -> StepRecord:
    ranges = (Range(table="t", partition=0, first=number, last=number + 1),)
    return StepRecord(epoch=epoch, step=number, layout_version=0, ranges=ranges, clock_us=number, engine=VERSION)


def held(*entries: tuple[int, int, CheckpointId]) -> p.Held:
    found: dict[int, tuple[VersionInfo, ...]] = {}
    for worker, version, checkpoint in entries:
        found[worker] = (*found.get(worker, ()), VersionInfo(version=version, checkpoint=checkpoint))
    return p.Held(held=found)


def standing(facts: p.Facts) -> p.Standing:
    """What the ledger says, if all that is known is in it."""
    return p.Standing(
        layouts=facts.layouts, courses=facts.courses, used=facts.layout.version, members=facts.members, forming=facts.forming,
        published=facts.published, rescale=facts.wants.rescale, strategy=facts.wants.strategy,
    )  # fmt: skip


def claimed(epoch: int) -> Callable[[p.State], p.Event]:
    """A claim whose ledger says what is known."""
    return lambda state: p.Claimed(epoch=epoch, standing=standing(state.facts))


def fill_due(wants: p.Wants) -> p.Recovering:
    """A machine that has opened its checkpoint, above which a changed circuit is to be filled."""
    fill = Fill(step=5, command="fill {}")
    return p.Recovering(
        facts=facts(forming=frozenset(), checkpoint_step=5, next_step=5, fill=fill, wants=wants), awaits="steps"
    )


def play(state: p.State, *events: p.Event | Callable[[p.State], p.Event]) -> tuple[p.State, list[do.Command]]:
    commands: list[do.Command] = []
    for event in events:
        state, new = step(state, event(state) if callable(event) else event)
        commands.extend(new)
    return state, commands


def running(**changes: object) -> p.Running:
    """A machine that waits for input at step 5, checkpoint 2 at step 3."""
    now = facts(
        forming=frozenset(), epoch=4, version=2, published=2, checkpoint_step=3, next_step=5, **changes
    )  # fmt: skip
    return p.Running(facts=now, awaits="input")


def names(commands: list[do.Command]) -> list[str]:
    return [type(command).__name__ for command in commands]


def test_a_new_pipeline_starts() -> None:
    empty = identity(0, epoch=0)
    state, commands = play(
        p.Starting(facts=facts()), p.Begin(), claimed(1), p.Created(), p.Fenced(),
        held((0, 0, empty), (1, 0, empty)), p.Opened(version=0, checkpoint=empty, layout=LAYOUT), p.Discarded(),
        p.StepsRead(records=()), p.Recorded(record=None),
    )  # fmt: skip
    assert commands == [
        do.ClaimEpoch(),
        do.CreateWorkers(workers=(0, 1), checkpoint=empty),
        do.FenceWorkers(epoch=1, workers=(0, 1)),
        do.ReadVersions(epoch=1, workers=(0, 1)),
        do.OpenVersion(version=0, epoch=1, layout=LAYOUT, checkpoint=empty),
        do.DiscardWorkers(workers=(), members=(0, 1)),
        do.ReadSteps(first=0),
        do.CutStep(epoch=1, step=0, layout_version=0),
        do.Wait(for_input=True),
    ]
    assert state == p.Running(facts=state.facts, awaits="input")


def test_a_step_runs_only_after_its_record() -> None:
    state, commands = play(running(), p.Woken(), p.Recorded(record=record(5)), p.StepDone(step=5, ahead=record(6)))
    assert commands == [
        do.CutStep(epoch=4, step=5, layout_version=0),
        do.RunStep(record=record(5), layout=LAYOUT, epoch=4, replay=False, may_cut_ahead=True),
        do.RunStep(record=record(6), layout=LAYOUT, epoch=4, replay=False, may_cut_ahead=True),
    ]
    assert state.facts.next_step == 6


def test_a_checkpoint_is_pinned_copied_beside_steps_and_published_when_all_have_acknowledged() -> None:
    checkpoint = identity(5, epoch=4)
    state, commands = play(running(), p.CheckpointAsked(), p.Pinned(version=3), p.Recorded(record=record(5)))
    assert commands == [
        do.PinVersion(version=3, checkpoint=checkpoint, layout=LAYOUT),
        do.CutStep(epoch=4, step=5, layout_version=0),
        do.RunStep(record=record(5), layout=LAYOUT, epoch=4, replay=False, may_cut_ahead=True),
    ]
    assert state.facts.copying == p.Copy(version=3, checkpoint=checkpoint)
    assert (state.facts.version, state.facts.published, state.facts.checkpoint_step) == (2, 2, 3), "not published yet"
    state, commands = play(state, p.CopyEnded(version=3))
    assert commands == [], "the step under way is not disturbed"
    state, commands = play(state, p.StepDone(step=5, ahead=record(6)), p.Published(version=3))
    assert commands == [
        do.Publish(version=3, checkpoint=checkpoint, ends_rescale=False),
        do.RunStep(record=record(6), layout=LAYOUT, epoch=4, replay=False, may_cut_ahead=True),
    ]
    assert (state.facts.version, state.facts.checkpoint_step, state.facts.wants) == (3, 5, p.Wants())
    assert state.facts.copying is None


def copying(**changes: object) -> p.Running:
    """As `running`, with a checkpoint of step 4 in flight."""
    return running(copying=p.Copy(version=3, checkpoint=identity(4, epoch=4)), **changes)


def test_news_wakes_who_waits() -> None:
    for state in (copying(), p.Paused(facts=copying(wants=p.Wants(pause=True)).facts)):
        after, commands = play(state, p.CopyEnded(version=3), p.Published(version=3))
        assert names(commands) == ["Publish", "CutStep" if isinstance(state, p.Running) else "Wait"]
        assert type(after) is type(state)


def test_a_copy_that_ends_while_nothing_is_found_is_published_at_once() -> None:
    _, commands = play(copying(), p.Woken(), p.CopyEnded(version=3), p.Recorded(record=None))
    assert names(commands) == ["CutStep", "Publish"]


def test_only_one_checkpoint_is_in_flight() -> None:
    state, commands = play(copying(), p.CheckpointAsked())
    assert names(commands) == ["CutStep"]
    state, commands = play(state, p.Recorded(record=None))
    assert names(commands) == ["Wait"], "the wish waits"
    state, commands = play(state, p.Woken(), p.Recorded(record=record(5)), p.CopyEnded(version=3), p.StepDone(step=5))
    assert names(commands) == ["CutStep", "RunStep", "Publish"]
    state, commands = play(state, p.Published(version=3))
    assert commands == [do.PinVersion(version=4, checkpoint=identity(6, epoch=4), layout=LAYOUT)]


def test_stop_and_rescale_wait_for_the_copy_in_flight() -> None:
    for request, last in ((p.StopAsked(), "Finish"), (p.RescaleAsked(workers=3), "LogLayout")):
        state, commands = play(
            copying(), request, p.Copied(version=3), p.Published(version=3), p.Pinned(version=4), p.Copied(version=4),
            p.Published(version=4),
        )  # fmt: skip
        assert names(commands) == ["AwaitCopy", "Publish", "PinVersion", "AwaitCopy", "Publish", last]
        assert state.facts.checkpoint_step == 5


def test_a_rollback_forgets_the_copy_in_flight_and_its_news() -> None:
    state, commands = play(copying(), p.Woken(), p.Recorded(record=record(5)), p.Failed(code="data", message="x"))
    assert (state.facts.copying, state.facts.wants.checkpoint) == (None, True), "the wish stands again"
    state, commands = play(state, p.CopyEnded(version=3), p.Woken())
    assert commands == [do.ClaimEpoch()]
    good = (identity(3), identity(4, epoch=4))
    every = held(*((worker, version, good[version - 2]) for worker in (0, 1) for version in (2, 3)))
    some = held((0, 2, good[0]), (0, 3, good[1]), (1, 2, good[0]))
    for found, version in ((every, 3), (some, 2)):
        _, commands = play(state, claimed(5), p.Fenced(), found)
        assert isinstance(commands[-1], do.OpenVersion)
        assert commands[-1].version == version, "v, or v and v+1"


def test_who_claims_late_begins_with_what_the_ledger_says() -> None:
    """Another owner has rescaled since this one read the ledger; what was asked of this one stands, but a rescale."""
    asked = p.Starting(facts=facts(forming=frozenset(), wants=p.Wants(pause=True)))
    new = replace(rescaled(LAYOUT, 3, step=4), version=1)
    found = p.Standing(
        layouts={0: LAYOUT, 1: new}, courses={}, used=1, members=frozenset({0, 1, 2, 3}), forming=frozenset({3}), published=4,
        rescale=4, strategy=WARMUP,
    )  # fmt: skip
    state, commands = play(asked, p.Begin(), p.Claimed(epoch=9, standing=found))
    assert state.facts == replace(
        asked.facts, layouts=found.layouts, layout=new, members=found.members, forming=found.forming,
        published=4, epoch=9, wants=p.Wants(pause=True, rescale=4, strategy=WARMUP),
    )  # fmt: skip
    assert commands[1:] == [do.FenceWorkers(epoch=9, workers=(0, 1, 2), others=(3,))]


def test_a_copy_that_failed_rolls_back_between_two_steps() -> None:
    state, _ = play(copying(), p.Woken(), p.Recorded(record=record(5)))
    state, commands = play(state, p.CopyEnded(version=3, code="unavailable", message="disk"))
    assert commands == []
    state, commands = play(state, p.StepDone(step=5))
    assert commands == [do.BackOff(failures=1)]
    _, commands = play(copying(), p.CopyEnded(version=3, code="fenced", message="m"))
    assert commands == [do.Finish(code="fenced", message="m")]


def test_news_of_another_version_is_none() -> None:
    state = copying()
    assert play(state, p.CopyEnded(version=2))[0].facts.copying == state.facts.copying


def test_a_checkpoint_waits_for_the_step_under_way() -> None:
    state, _ = play(running(), p.Woken(), p.Recorded(record=record(5)))
    state, commands = play(state, p.CheckpointAsked())
    assert commands == []
    _, commands = play(state, p.StepDone(step=5))
    assert names(commands) == ["PinVersion"]


def test_nothing_new_needs_no_checkpoint() -> None:
    state, commands = play(replace(running(), facts=replace(running().facts, next_step=3)), p.CheckpointAsked())
    assert names(commands) == ["CutStep"]
    assert not state.facts.wants.checkpoint


def test_a_rescale_checkpoints_logs_slices_publishes_and_opens_anew() -> None:
    new = rescaled(LAYOUT, 3, step=5)
    state, commands = play(
        running(), p.RescaleAsked(workers=3), p.Pinned(version=3), p.Copied(version=3), p.Published(version=3),
        p.LayoutLogged(layout=new), p.Discarded(), p.Created(), p.Fenced(), p.Redistributed(version=4),
        p.Published(version=4), claimed(5), p.Fenced(others=(2,)),
    )  # fmt: skip
    after = identity(5, epoch=4, layout=1)
    assert names(commands) == [
        "PinVersion", "AwaitCopy", "Publish", "LogLayout", "DiscardWorkers", "CreateWorkers", "FenceWorkers", "Redistribute",
        "Publish", "ClaimEpoch", "FenceWorkers", "ReadVersions",
    ]  # fmt: skip
    assert commands[3] == do.LogLayout(layout=new, members=(0, 1, 2), forming=(2,))
    assert commands[7] == do.Redistribute(version=4, checkpoint=after, old=LAYOUT, new=new)
    assert commands[8] == do.Publish(version=4, checkpoint=after, ends_rescale=True)
    state, commands = play(
        state,
        held(*((worker, 4, after) for worker in (0, 1, 2)), *((worker, 3, identity(5, epoch=4)) for worker in (0, 1))),
    )
    assert commands == [do.OpenVersion(version=4, epoch=5, layout=new, checkpoint=after)]


def test_a_half_done_rescale_goes_back_to_the_old_layout_and_tries_again() -> None:
    new = rescaled(LAYOUT, 3, step=5)
    old_id, new_id = identity(5, epoch=4), identity(5, epoch=4, layout=1)
    start = p.Starting(
        facts=facts(
            layouts={0: LAYOUT, 1: new}, layout=new, members=frozenset({0, 1, 2}), forming=frozenset({2}), published=3,
            wants=p.Wants(rescale=3),
        )
    )  # fmt: skip
    state, commands = play(
        start, p.Begin(), claimed(5), p.Created(), p.Fenced(),
        held((0, 3, old_id), (0, 4, new_id), (1, 3, old_id), (2, 0, identity(0, epoch=0))),
        p.Opened(version=3, checkpoint=old_id, layout=LAYOUT), p.Discarded(), p.StepsRead(records=()),
    )  # fmt: skip
    assert do.DiscardWorkers(workers=(2,), members=(0, 1)) in commands
    assert isinstance(commands[-1], do.LogLayout)
    assert commands[-1].layout.version == 2, "a number that was logged once is not used for another layout"
    assert isinstance(state, p.Rescaling)


def test_a_failure_rolls_back_under_a_new_epoch_a_bounded_number_of_times() -> None:
    state: p.State = running()
    for failures in range(1, 5):
        state, commands = play(state, p.Failed(code="unavailable", message="gone"))
        assert commands == [do.BackOff(failures=failures)]
        state, commands = play(state, p.Woken())
        assert commands == [do.ClaimEpoch()]
    state, commands = play(state, p.Failed(code="unavailable", message="gone"))
    assert commands == [do.Finish(code="unavailable", message="gone (failures_in_a_row=5)")]
    assert isinstance(state, p.Broken)


def test_failures_are_forgotten_when_the_failed_step_succeeds() -> None:
    state, _ = play(running(), p.Woken(), p.Recorded(record=record(5)), p.Failed(code="data", message="x"), p.Woken())
    assert state.facts.failures == 1
    state, _ = play(
        state, claimed(5), p.Fenced(), held((0, 2, identity(3)), (1, 2, identity(3))),
        p.Opened(version=2, checkpoint=identity(3), layout=LAYOUT), p.Discarded(),
        p.StepsRead(records=(record(3), record(4), record(5))), p.StepDone(step=3), p.StepDone(step=4),
    )  # fmt: skip
    assert state.facts.failures == 1
    state, _ = play(state, p.StepDone(step=5))
    assert state.facts.failures == 0
    assert isinstance(state, p.Running)


@pytest.mark.parametrize(
    "state",
    [
        p.Recovering(facts=running().facts, awaits="fenced"),
        p.Recovering(facts=running().facts, awaits="steps"),
        p.Replaying(facts=running().facts, records=(record(3),)),
    ],
)
def test_a_stop_does_not_wait_for_a_recovery_that_keeps_failing(state: p.State) -> None:
    state, commands = play(state, p.StopAsked(), p.Failed(code="unavailable", message="gone"))
    assert commands == [do.Finish(code=None, message="stopped while recovering")]
    assert isinstance(state, p.Stopped)


def test_a_stop_whose_last_checkpoint_fails_is_tried_again() -> None:
    state, commands = play(running(), p.StopAsked(), p.Failed(code="unavailable", message="gone"))
    assert names(commands) == ["PinVersion", "BackOff"]
    _, commands = play(state, p.Woken())
    assert names(commands) == ["ClaimEpoch"]


def copy_fails(state: p.State, number: int) -> tuple[p.State, list[do.Command]]:
    """Beside step `number` the copy of what was pinned before it fails; then all that was logged is run again."""
    again = [record(n) for n in range(3, number + 1)]
    state, commands = play(
        state, p.Pinned(version=3), p.Recorded(record=record(number)), p.CopyEnded(version=3, code="unavailable", message="gone"),
        p.StepDone(step=number),
    )  # fmt: skip
    if isinstance(state, p.Broken):
        return state, commands
    state, replayed = play(
        state, p.Woken(), claimed(5), p.Fenced(), held((0, 2, identity(3)), (1, 2, identity(3))),
        p.Opened(version=2, checkpoint=identity(3), layout=LAYOUT), p.Discarded(), p.StepsRead(records=tuple(again)),
        *(p.StepDone(step=n) for n in range(3, number + 1)),
    )  # fmt: skip
    assert isinstance(replayed[-1], do.PinVersion), "the wish for it stands again"
    return state, commands


def test_a_copy_that_keeps_failing_ends_the_service_though_steps_succeed() -> None:
    state, _ = play(running(failures_max=3), p.CheckpointAsked())
    for failures in (1, 2):
        state, commands = copy_fails(state, 4 + failures)
        assert commands[-1] == do.BackOff(failures=failures)
    state, commands = copy_fails(state, 7)
    assert commands[-1] == do.Finish(code="unavailable", message="gone (failures_in_a_row=3)")
    assert isinstance(state, p.Broken)


def test_copies_that_failed_are_forgotten_when_one_is_published() -> None:
    state, _ = play(running(), p.CheckpointAsked())
    for number in (5, 6):
        state, _ = copy_fails(state, number)
    state, _ = play(state, p.Pinned(version=3), p.Recorded(record=record(7)), p.StepDone(step=7))
    assert state.facts.copy_failures == 2
    state, _ = play(
        state, p.CopyEnded(version=3), p.Recorded(record=record(8)), p.StepDone(step=8), p.Published(version=3)
    )
    assert (state.facts.copy_failures, state.facts.failures) == (0, 0)


@pytest.mark.parametrize("code", ["fenced", "config", "circuit"])
def test_some_errors_end_at_once(code: str) -> None:
    _, commands = play(running(), p.Failed(code=code, message="m"))
    assert commands == [do.Finish(code=code, message="m")]


def test_a_published_version_that_is_gone_is_fatal() -> None:
    old = identity(3)
    state = p.Recovering(facts=facts(published=3, epoch=5), awaits="held")
    state, commands = play(state, held((0, 2, old), (0, 3, identity(5)), (1, 2, old)))
    assert isinstance(state, p.Broken)
    assert "published=3 found=2" in state.message
    assert names(commands) == ["Finish"]


def test_pause_and_resume() -> None:
    state, commands = play(running(), p.PauseAsked())
    assert commands == [do.Wait(for_input=False)]
    assert isinstance(state, p.Paused)
    state, commands = play(
        state, p.CheckpointAsked(), p.Pinned(version=3), p.CopyEnded(version=3), p.Published(version=3)
    )
    assert isinstance(state, p.Paused)
    _, commands = play(state, p.ResumeAsked())
    assert names(commands) == ["CutStep"]


def halted() -> tuple[p.State, p.Halt]:
    """A machine whose step 5 failed at node 3, behind the replay that ends before it; step 6 is logged too."""
    halt = p.Halt(step=5, node=3, name="n", command="skip node=3", count=1, rows=(), message="m")
    state, commands = play(
        running(), p.Woken(), p.Recorded(record=record(5)), p.Failed(code="rows", message="m", halt=halt), p.Woken(),
        claimed(5), p.Fenced(), held((0, 2, identity(3)), (1, 2, identity(3))),
        p.Opened(version=2, checkpoint=identity(3), layout=LAYOUT), p.Discarded(),
        p.StepsRead(records=(record(3), record(4), record(5), record(6))), p.StepDone(step=3), p.StepDone(step=4),
    )  # fmt: skip
    assert commands[-1] == do.Wait(for_input=False)
    assert [c.record.step for c in commands if isinstance(c, do.RunStep)] == [5, 3, 4], (
        "the failing step is not run again"
    )
    return state, halt


def test_rows_that_fail_halt_before_their_step_and_are_no_failure_in_a_row() -> None:
    state, halt = halted()
    assert isinstance(state, p.Halted)
    assert (state.facts.halt, state.facts.failures, state.facts.next_step) == (halt, 0, 5)


def test_a_skip_is_logged_before_the_step_runs_again() -> None:
    state, _ = halted()
    decided = replace(record(5), commands=("skip node=3",))
    state, commands = play(
        state, p.SkipAsked(step=5), p.SkipAsked(step=5), p.Decided(record=decided), p.StepDone(step=5)
    )
    assert commands == [
        do.LogDecision(epoch=5, step=5, command="skip node=3"),
        do.RunStep(record=decided, layout=LAYOUT, epoch=5, replay=True, may_cut_ahead=False, following=record(6)),
        do.RunStep(record=record(6), layout=LAYOUT, epoch=5, replay=True, may_cut_ahead=False),
    ]
    assert state.facts.halt is None


def test_a_decision_whose_answer_was_lost_is_found_in_the_log() -> None:
    state, _ = halted()
    decided = replace(record(5), commands=("skip node=3",))
    state, commands = play(
        state, p.SkipAsked(step=5), p.Failed(code="unavailable", message="x"), p.Woken(), claimed(6), p.Fenced(),
        held((0, 2, identity(3)), (1, 2, identity(3))), p.Opened(version=2, checkpoint=identity(3), layout=LAYOUT),
        p.Discarded(), p.StepsRead(records=(record(3), record(4), decided)), p.StepDone(step=3), p.StepDone(step=4),
    )  # fmt: skip
    assert commands[-1] == do.RunStep(record=decided, layout=LAYOUT, epoch=6, replay=True, may_cut_ahead=False)
    assert state.facts.halt is None


def test_a_skip_of_another_step_or_without_a_halt_does_nothing() -> None:
    state, _ = halted()
    assert step(state, p.SkipAsked(step=4)) == (state, (do.Wait(for_input=False),))
    waiting = running()
    assert step(waiting, p.SkipAsked(step=4)) == (waiting, (do.Wait(for_input=True),))


def test_a_halted_pipeline_takes_no_wish_to_pause_and_stops_at_once() -> None:
    """Whoever asks is refused (`service`): a wish that was kept would end the steps after the decision."""
    state, _ = halted()
    state, commands = play(state, p.PauseAsked())
    assert (state.facts.wants.pause, names(commands)) == (False, ["Wait"])
    state, commands = play(state, p.StopAsked())
    assert (type(state), names(commands)) == (p.Stopped, ["Finish"])


def test_stop_checkpoints_first() -> None:
    state, commands = play(running(), p.StopAsked(), p.Pinned(version=3), p.Copied(version=3), p.Published(version=3))
    assert names(commands) == ["PinVersion", "AwaitCopy", "Publish", "Finish"]
    assert isinstance(state, p.Stopped)


def test_stop_now_does_not() -> None:
    state, commands = play(running(), p.StopAsked(now=True))
    assert names(commands) == ["Finish"]
    assert isinstance(state, p.Stopped)


def test_recovery_ignores_workers_outside_the_layout_and_other_runs() -> None:
    good, foreign = identity(3), identity(9, run="other")
    found = held((0, 2, good), (1, 2, good), (0, 3, foreign), (1, 3, foreign), (7, 9, identity(20)))
    choice = choose(found.held, {0: LAYOUT}, run=RUN, fingerprint=FINGERPRINT)
    assert choice is not None
    assert (choice.version, choice.checkpoint) == (2, good)
    assert choose(found.held, {0: LAYOUT}, run=RUN, fingerprint="another") is None


def every_state() -> list[p.State]:
    """One state of every kind and of everything it may wait for."""
    good = identity(5, epoch=4)
    base = running().facts
    return [
        p.Starting(facts=base),
        *(p.Recovering(facts=base, awaits=a) for a in ("forgotten", "backoff", "claimed", "created", "fenced", "held")),
        *(p.Recovering(facts=base, awaits=a) for a in ("opened", "discarded", "steps")),
        p.Recovering(facts=base, awaits="accepted", records=(record(5),)),
        p.Replaying(facts=base, records=(record(5),)),
        *(
            p.Running(facts=base, record=r, awaits=a)
            for r, a in ((None, "input"), (None, "record"), (record(5), "step"))
        ),
        *(
            kind(facts=base, version=3, checkpoint=good, awaits=a)
            for kind, a in itertools.product((p.Checkpointing, p.Stopping), ("pinned", "copied", "published"))
        ),
        *(
            p.Rescaling(facts=base, version=3, checkpoint=good, new=rescaled(LAYOUT, 3, step=5), awaits=a)
            for a in ("logged", "discarded", "created", "fenced", "redistributed", "published")
        ),
        p.Paused(facts=base),
        *(
            p.Halted(facts=replace(base, halt=halted()[1]), records=(record(5),), awaits=a)
            for a in ("decision", "logged")
        ),
        p.Stopped(facts=base),
        p.Broken(facts=base, code="data", message="m"),
    ]


def every_event() -> list[p.Event]:
    """One event of every kind, more where what it says decides."""
    return [
        p.Begin(), p.Claimed(epoch=9, standing=standing(facts())),
        p.Created(), p.Fenced(), held((0, 2, identity(3)), (1, 2, identity(3))),
        p.Opened(version=2, checkpoint=identity(3), layout=LAYOUT), p.Discarded(), p.StepsRead(records=(record(5),)),
        p.StepsRead(records=()), p.Recorded(record=None), p.Recorded(record=record(5)), p.StepDone(step=5),
        p.Pinned(version=3), p.Copied(version=3), p.CopyEnded(version=3), p.CopyEnded(version=3, code="data", message="m"),
        p.Published(version=3), p.LayoutLogged(layout=rescaled(LAYOUT, 3, step=5)),
        p.Redistributed(version=3), p.Forgotten(), p.Decided(record=record(5)), p.SkipAsked(step=5), p.SkipAsked(step=4),
        p.Failed(code="rows", message="m", halt=halted()[1]), p.Woken(), p.Failed(code="data", message="m"),
        p.Failed(code="fenced", message="m"), p.CheckpointAsked(), p.PauseAsked(), p.ResumeAsked(),
        p.RescaleAsked(workers=3), p.RescaleAsked(workers=9999), p.StopAsked(), p.StopAsked(now=True),
        p.UpgradeAsked(), p.EnginesAccepted(accepted=()),
    ]  # fmt: skip


def test_every_pair_of_state_and_event_has_an_answer_or_a_story() -> None:
    check_every_pair(every_state(), every_event(), least=150)


def check_every_pair(states: Sequence[p.State], events: Sequence[p.Event], *, least: int) -> None:
    """More than `least` pairs are answered, purely and with one command at most; the others raise with their story."""
    answered, stories = 0, list[str]()
    for state, event in itertools.product(states, events):
        try:
            after, commands = step(state, event)
        except InternalError as error:
            stories.append(str(error))
            continue
        answered += 1
        assert len(commands) <= 1, "one command at a time"
        assert (after, commands) == step(state, event), "a pure function"
    assert answered > least
    assert all("state=" in story and "event=" in story for story in stories)


@pytest.mark.parametrize("workers", [1, 2, 3, 4])
def test_every_subset_of_committed_workers_recovers_to_one_version(workers: int) -> None:
    """Fault row 3: all hold v; some hold v+1 too. Only if all do is v+1 taken."""
    layout = initial(workers)
    old, new = identity(3), identity(5)
    for committed in itertools.product((False, True), repeat=workers):
        found = held(
            *((worker, 2, old) for worker in layout.workers),
            *((worker, 3, new) for worker in layout.workers if committed[worker]),
        )
        choice = choose(found.held, {0: layout}, run=RUN, fingerprint=FINGERPRINT)
        assert choice is not None
        assert choice.version == (3 if all(committed) else 2)


@pytest.mark.parametrize("wants", [p.Wants(), p.Wants(pause=True), p.Wants(rescale=3), p.Wants(checkpoint=True)])
def test_a_changed_circuit_is_filled_before_anything_else(wants: p.Wants) -> None:
    state, commands = play(fill_due(wants), p.StepsRead(records=()))
    cut = do.CutStep(epoch=state.facts.epoch, step=5, layout_version=0, commands=("fill {}",))
    assert commands == [cut]
    filling = replace(record(5), ranges=(), commands=("fill {}",))
    state, commands = play(state, p.Recorded(record=filling), p.StepDone(step=5, ahead=None))
    assert not any(isinstance(command, do.CutStep) and command.commands for command in commands), "once"


def test_a_changed_circuit_that_is_stopped_is_filled_at_the_next_start() -> None:
    state, commands = play(fill_due(p.Wants(stop=True)), p.StepsRead(records=()))
    assert isinstance(state, p.Stopped)
    assert [type(command) for command in commands] == [do.Finish]

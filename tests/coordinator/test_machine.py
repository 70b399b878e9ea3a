"""The machine's decisions as command lists, and its totality."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from dbsp.coordinator.decisions import commands, events, states
from dbsp.coordinator.decisions.machine import step
from dbsp.coordinator.decisions.recovery import choose
from dbsp.coordinator.decisions.strategies import WARMUP
from dbsp.errors import InternalError
from dbsp.layout import initial, rescaled
from dbsp.logs import Range, StepRecord
from dbsp.store import CheckpointId, VersionInfo
from dbsp.version import VERSION

LAYOUT = initial(2)
RUN, FINGERPRINT = "run", "print"


def facts(**changes: object) -> states.Facts:
    base = states.Facts(
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


def held(*entries: tuple[int, int, CheckpointId]) -> events.VersionsRead:
    found: dict[int, tuple[VersionInfo, ...]] = {}
    for worker, version, checkpoint in entries:
        found[worker] = (*found.get(worker, ()), VersionInfo(version=version, checkpoint=checkpoint))
    return events.VersionsRead(held=found)


def standing(facts: states.Facts) -> events.LedgerState:
    """What the ledger says, if all that is known is in it."""
    return events.LedgerState(
        layouts=facts.layouts, migration_plans=facts.migration_plans, used=facts.layout.version, members=facts.members,
        forming=facts.forming, published=facts.published, rescale=facts.requested.rescale, strategy=facts.requested.strategy,
    )  # fmt: skip


def claimed(epoch: int) -> Callable[[states.State], events.Event]:
    """A claim whose ledger says what is known."""
    return lambda state: events.Claimed(epoch=epoch, standing=standing(state.facts))


def play(
    state: states.State, *arrived: events.Event | Callable[[states.State], events.Event]
) -> tuple[states.State, list[commands.Command]]:
    issued: list[commands.Command] = []
    for event in arrived:
        state, new = step(state, event(state) if callable(event) else event)
        issued.extend(new)
    return state, issued


def running(**changes: object) -> states.Running:
    """A machine that waits for input at step 5, checkpoint 2 at step 3."""
    now = facts(
        forming=frozenset(), epoch=4, version=2, published=2, checkpoint_step=3, next_step=5, **changes
    )  # fmt: skip
    return states.Running(facts=now, awaits="input")


def names(issued: list[commands.Command]) -> list[str]:
    return [type(command).__name__ for command in issued]


def test_a_new_pipeline_starts() -> None:
    empty = identity(0, epoch=0)
    state, issued = play(
        states.Starting(facts=facts()), events.LoopReady(), claimed(1), events.Created(), events.Fenced(),
        held((0, 0, empty), (1, 0, empty)), events.VersionOpened(version=0, checkpoint=empty, layout=LAYOUT), events.Discarded(),
        events.StepsRead(records=()), events.Recorded(record=None),
    )  # fmt: skip
    assert issued == [
        commands.ClaimEpoch(),
        commands.CreateWorkers(workers=(0, 1), checkpoint=empty),
        commands.FenceWorkers(epoch=1, workers=(0, 1)),
        commands.ReadVersions(epoch=1, workers=(0, 1)),
        commands.OpenVersion(version=0, epoch=1, layout=LAYOUT, checkpoint=empty),
        commands.DiscardWorkers(workers=(), members=(0, 1)),
        commands.ReadSteps(first=0),
        commands.CutStep(epoch=1, step=0, layout_version=0),
        commands.Wait(for_input=True),
    ]
    assert state == states.Running(facts=state.facts, awaits="input")


def test_a_step_runs_only_after_its_record() -> None:
    state, issued = play(
        running(), events.Woken(), events.Recorded(record=record(5)), events.StepDone(step=5, ahead=record(6))
    )
    assert issued == [
        commands.CutStep(epoch=4, step=5, layout_version=0),
        commands.RunStep(record=record(5), layout=LAYOUT, epoch=4, replay=False, may_cut_ahead=True),
        commands.RunStep(record=record(6), layout=LAYOUT, epoch=4, replay=False, may_cut_ahead=True),
    ]
    assert state.facts.next_step == 6


def test_a_checkpoint_is_pinned_copied_beside_steps_and_published_when_all_have_acknowledged() -> None:
    checkpoint = identity(5, epoch=4)
    state, issued = play(
        running(), events.CheckpointAsked(), events.VersionPinned(version=3), events.Recorded(record=record(5))
    )
    assert issued == [
        commands.PinVersion(version=3, checkpoint=checkpoint, layout=LAYOUT),
        commands.CutStep(epoch=4, step=5, layout_version=0),
        commands.RunStep(record=record(5), layout=LAYOUT, epoch=4, replay=False, may_cut_ahead=True),
    ]
    assert state.facts.copying == states.Copy(version=3, checkpoint=checkpoint)
    assert (state.facts.version, state.facts.published, state.facts.checkpoint_step) == (2, 2, 3), "not published yet"
    state, issued = play(state, events.CopyEnded(version=3))
    assert issued == [], "the step under way is not disturbed"
    state, issued = play(state, events.StepDone(step=5, ahead=record(6)), events.Published(version=3))
    assert issued == [
        commands.Publish(version=3, checkpoint=checkpoint, ends_rescale=False),
        commands.RunStep(record=record(6), layout=LAYOUT, epoch=4, replay=False, may_cut_ahead=True),
    ]
    assert (state.facts.version, state.facts.checkpoint_step, state.facts.requested) == (3, 5, states.Requested())
    assert state.facts.copying is None


def copying(**changes: object) -> states.Running:
    """As `running`, with a checkpoint of step 4 in flight."""
    return running(copying=states.Copy(version=3, checkpoint=identity(4, epoch=4)), **changes)


def test_news_wakes_who_waits() -> None:
    for state in (copying(), states.Paused(facts=copying(requested=states.Requested(pause=True)).facts)):
        after, issued = play(state, events.CopyEnded(version=3), events.Published(version=3))
        assert names(issued) == ["Publish", "CutStep" if isinstance(state, states.Running) else "Wait"]
        assert type(after) is type(state)


def test_a_copy_that_ends_while_nothing_is_found_is_published_at_once() -> None:
    _, issued = play(copying(), events.Woken(), events.CopyEnded(version=3), events.Recorded(record=None))
    assert names(issued) == ["CutStep", "Publish"]


def test_only_one_checkpoint_is_in_flight() -> None:
    state, issued = play(copying(), events.CheckpointAsked())
    assert names(issued) == ["CutStep"]
    state, issued = play(state, events.Recorded(record=None))
    assert names(issued) == ["Wait"], "the request waits"
    state, issued = play(
        state, events.Woken(), events.Recorded(record=record(5)), events.CopyEnded(version=3), events.StepDone(step=5)
    )
    assert names(issued) == ["CutStep", "RunStep", "Publish"]
    state, issued = play(state, events.Published(version=3))
    assert issued == [commands.PinVersion(version=4, checkpoint=identity(6, epoch=4), layout=LAYOUT)]


def test_stop_and_rescale_wait_for_the_copy_in_flight() -> None:
    for request, last in ((events.StopAsked(), "Shutdown"), (events.RescaleAsked(workers=3), "LogLayout")):
        state, issued = play(
            copying(), request, events.Copied(version=3), events.Published(version=3), events.VersionPinned(version=4),
            events.Copied(version=4),
            events.Published(version=4),
        )  # fmt: skip
        assert names(issued) == ["AwaitCopy", "Publish", "PinVersion", "AwaitCopy", "Publish", last]
        assert state.facts.checkpoint_step == 5


def test_a_rollback_forgets_the_copy_in_flight_and_its_news() -> None:
    state, issued = play(
        copying(), events.Woken(), events.Recorded(record=record(5)), events.Failed(code="data", message="x")
    )
    assert (state.facts.copying, state.facts.requested.checkpoint) == (None, True), "the request stands again"
    state, issued = play(state, events.CopyEnded(version=3), events.Woken())
    assert issued == [commands.ClaimEpoch()]
    good = (identity(3), identity(4, epoch=4))
    every = held(*((worker, version, good[version - 2]) for worker in (0, 1) for version in (2, 3)))
    some = held((0, 2, good[0]), (0, 3, good[1]), (1, 2, good[0]))
    for found, version in ((every, 3), (some, 2)):
        _, issued = play(state, claimed(5), events.Fenced(), found)
        assert isinstance(issued[-1], commands.OpenVersion)
        assert issued[-1].version == version, "v, or v and v+1"


def test_who_claims_late_begins_with_what_the_ledger_says() -> None:
    """Another owner has rescaled since this one read the ledger; what was asked of this one stands, but a rescale."""
    asked = states.Starting(facts=facts(forming=frozenset(), requested=states.Requested(pause=True)))
    new = replace(rescaled(LAYOUT, 3, step=4), version=1)
    found = events.LedgerState(
        layouts={0: LAYOUT, 1: new}, migration_plans={}, used=1, members=frozenset({0, 1, 2, 3}),
        forming=frozenset({3}), published=4, rescale=4, strategy=WARMUP,
    )  # fmt: skip
    state, issued = play(asked, events.LoopReady(), events.Claimed(epoch=9, standing=found))
    assert state.facts == replace(
        asked.facts, layouts=found.layouts, layout=new, members=found.members, forming=found.forming,
        published=4, epoch=9, requested=states.Requested(pause=True, rescale=4, strategy=WARMUP),
    )  # fmt: skip
    assert issued[1:] == [commands.FenceWorkers(epoch=9, workers=(0, 1, 2), others=(3,))]


def test_a_copy_that_failed_rolls_back_between_two_steps() -> None:
    state, _ = play(copying(), events.Woken(), events.Recorded(record=record(5)))
    state, issued = play(state, events.CopyEnded(version=3, code="unavailable", message="disk"))
    assert issued == []
    state, issued = play(state, events.StepDone(step=5))
    assert issued == [commands.BackOff(failures=1)]
    _, issued = play(copying(), events.CopyEnded(version=3, code="fenced", message="m"))
    assert issued == [commands.Shutdown(code="fenced", message="m")]


def test_news_of_another_version_is_none() -> None:
    state = copying()
    assert play(state, events.CopyEnded(version=2))[0].facts.copying == state.facts.copying


def test_a_checkpoint_waits_for_the_step_under_way() -> None:
    state, _ = play(running(), events.Woken(), events.Recorded(record=record(5)))
    state, issued = play(state, events.CheckpointAsked())
    assert issued == []
    _, issued = play(state, events.StepDone(step=5))
    assert names(issued) == ["PinVersion"]


def test_nothing_new_needs_no_checkpoint() -> None:
    state, issued = play(replace(running(), facts=replace(running().facts, next_step=3)), events.CheckpointAsked())
    assert names(issued) == ["CutStep"]
    assert not state.facts.requested.checkpoint


def test_a_rescale_checkpoints_logs_slices_publishes_and_opens_anew() -> None:
    new = rescaled(LAYOUT, 3, step=5)
    state, issued = play(
        running(), events.RescaleAsked(workers=3), events.VersionPinned(version=3), events.Copied(version=3),
        events.Published(version=3),
        events.LayoutLogged(layout=new), events.Discarded(), events.Created(), events.Fenced(), events.Redistributed(version=4),
        events.Published(version=4), claimed(5), events.Fenced(others=(2,)),
    )  # fmt: skip
    after = identity(5, epoch=4, layout=1)
    assert names(issued) == [
        "PinVersion", "AwaitCopy", "Publish", "LogLayout", "DiscardWorkers", "CreateWorkers", "FenceWorkers",
        "RedistributeShards",
        "Publish", "ClaimEpoch", "FenceWorkers", "ReadVersions",
    ]  # fmt: skip
    assert issued[3] == commands.LogLayout(layout=new, members=(0, 1, 2), forming=(2,))
    assert issued[7] == commands.RedistributeShards(version=4, checkpoint=after, old=LAYOUT, new=new)
    assert issued[8] == commands.Publish(version=4, checkpoint=after, ends_rescale=True)
    state, issued = play(
        state,
        held(*((worker, 4, after) for worker in (0, 1, 2)), *((worker, 3, identity(5, epoch=4)) for worker in (0, 1))),
    )
    assert issued == [commands.OpenVersion(version=4, epoch=5, layout=new, checkpoint=after)]


def test_a_half_done_rescale_goes_back_to_the_old_layout_and_tries_again() -> None:
    new = rescaled(LAYOUT, 3, step=5)
    old_id, new_id = identity(5, epoch=4), identity(5, epoch=4, layout=1)
    start = states.Starting(
        facts=facts(
            layouts={0: LAYOUT, 1: new}, layout=new, members=frozenset({0, 1, 2}), forming=frozenset({2}), published=3,
            requested=states.Requested(rescale=3),
        )
    )  # fmt: skip
    state, issued = play(
        start, events.LoopReady(), claimed(5), events.Created(), events.Fenced(),
        held((0, 3, old_id), (0, 4, new_id), (1, 3, old_id), (2, 0, identity(0, epoch=0))),
        events.VersionOpened(version=3, checkpoint=old_id, layout=LAYOUT), events.Discarded(), events.StepsRead(records=()),
    )  # fmt: skip
    assert commands.DiscardWorkers(workers=(2,), members=(0, 1)) in issued
    assert isinstance(issued[-1], commands.LogLayout)
    assert issued[-1].layout.version == 2, "a number that was logged once is not used for another layout"
    assert isinstance(state, states.Rescaling)


def test_a_failure_rolls_back_under_a_new_epoch_a_bounded_number_of_times() -> None:
    state: states.State = running()
    for failures in range(1, 5):
        state, issued = play(state, events.Failed(code="unavailable", message="gone"))
        assert issued == [commands.BackOff(failures=failures)]
        state, issued = play(state, events.Woken())
        assert issued == [commands.ClaimEpoch()]
    state, issued = play(state, events.Failed(code="unavailable", message="gone"))
    assert issued == [commands.Shutdown(code="unavailable", message="gone (failures_in_a_row=5)")]
    assert isinstance(state, states.Broken)


def test_failures_are_forgotten_when_the_failed_step_succeeds() -> None:
    state, _ = play(
        running(),
        events.Woken(),
        events.Recorded(record=record(5)),
        events.Failed(code="data", message="x"),
        events.Woken(),
    )
    assert state.facts.failures == 1
    state, _ = play(
        state, claimed(5), events.Fenced(), held((0, 2, identity(3)), (1, 2, identity(3))),
        events.VersionOpened(version=2, checkpoint=identity(3), layout=LAYOUT), events.Discarded(),
        events.StepsRead(records=(record(3), record(4), record(5))), events.StepDone(step=3), events.StepDone(step=4),
    )  # fmt: skip
    assert state.facts.failures == 1
    state, _ = play(state, events.StepDone(step=5))
    assert state.facts.failures == 0
    assert isinstance(state, states.Running)


@pytest.mark.parametrize(
    "state",
    [
        states.Recovering(facts=running().facts, awaits="fenced"),
        states.Recovering(facts=running().facts, awaits="steps"),
        states.Replaying(facts=running().facts, records=(record(3),)),
    ],
)
def test_a_stop_does_not_wait_for_a_recovery_that_keeps_failing(state: states.State) -> None:
    state, issued = play(state, events.StopAsked(), events.Failed(code="unavailable", message="gone"))
    assert issued == [commands.Shutdown(code=None, message="stopped while recovering")]
    assert isinstance(state, states.Stopped)


def test_a_stop_whose_last_checkpoint_fails_is_tried_again() -> None:
    state, issued = play(running(), events.StopAsked(), events.Failed(code="unavailable", message="gone"))
    assert names(issued) == ["PinVersion", "BackOff"]
    _, issued = play(state, events.Woken())
    assert names(issued) == ["ClaimEpoch"]


def copy_fails(state: states.State, number: int) -> tuple[states.State, list[commands.Command]]:
    """Beside step `number` the copy of what was pinned before it fails; then all that was logged is run again."""
    again = [record(n) for n in range(3, number + 1)]
    state, issued = play(
        state, events.VersionPinned(version=3), events.Recorded(record=record(number)),
        events.CopyEnded(version=3, code="unavailable", message="gone"),
        events.StepDone(step=number),
    )  # fmt: skip
    if isinstance(state, states.Broken):
        return state, issued
    state, replayed = play(
        state, events.Woken(), claimed(5), events.Fenced(), held((0, 2, identity(3)), (1, 2, identity(3))),
        events.VersionOpened(version=2, checkpoint=identity(3), layout=LAYOUT), events.Discarded(),
        events.StepsRead(records=tuple(again)),
        *(events.StepDone(step=n) for n in range(3, number + 1)),
    )  # fmt: skip
    assert isinstance(replayed[-1], commands.PinVersion), "the request for it stands again"
    return state, issued


def test_a_copy_that_keeps_failing_ends_the_service_though_steps_succeed() -> None:
    state, _ = play(running(failures_max=3), events.CheckpointAsked())
    for failures in (1, 2):
        state, issued = copy_fails(state, 4 + failures)
        assert issued[-1] == commands.BackOff(failures=failures)
    state, issued = copy_fails(state, 7)
    assert issued[-1] == commands.Shutdown(code="unavailable", message="gone (failures_in_a_row=3)")
    assert isinstance(state, states.Broken)


def test_copies_that_failed_are_forgotten_when_one_is_published() -> None:
    state, _ = play(running(), events.CheckpointAsked())
    for number in (5, 6):
        state, _ = copy_fails(state, number)
    state, _ = play(state, events.VersionPinned(version=3), events.Recorded(record=record(7)), events.StepDone(step=7))
    assert state.facts.copy_failures == 2
    state, _ = play(
        state,
        events.CopyEnded(version=3),
        events.Recorded(record=record(8)),
        events.StepDone(step=8),
        events.Published(version=3),
    )
    assert (state.facts.copy_failures, state.facts.failures) == (0, 0)


@pytest.mark.parametrize("code", ["fenced", "config", "circuit"])
def test_some_errors_end_at_once(code: str) -> None:
    _, issued = play(running(), events.Failed(code=code, message="m"))
    assert issued == [commands.Shutdown(code=code, message="m")]


def test_a_published_version_that_is_gone_is_fatal() -> None:
    old = identity(3)
    state = states.Recovering(facts=facts(published=3, epoch=5), awaits="held")
    state, issued = play(state, held((0, 2, old), (0, 3, identity(5)), (1, 2, old)))
    assert isinstance(state, states.Broken)
    assert "published=3 found=2" in state.message
    assert names(issued) == ["Shutdown"]


def test_pause_and_resume() -> None:
    state, issued = play(running(), events.PauseAsked())
    assert issued == [commands.Wait(for_input=False)]
    assert isinstance(state, states.Paused)
    state, issued = play(
        state,
        events.CheckpointAsked(),
        events.VersionPinned(version=3),
        events.CopyEnded(version=3),
        events.Published(version=3),
    )
    assert isinstance(state, states.Paused)
    _, issued = play(state, events.ResumeAsked())
    assert names(issued) == ["CutStep"]


def halted() -> tuple[states.State, states.Halt]:
    """A machine whose step 5 failed at node 3, behind the replay that ends before it; step 6 is logged too."""
    halt = states.Halt(step=5, node=3, name="n", command="skip node=3", count=1, rows=(), message="m")
    state, issued = play(
        running(), events.Woken(), events.Recorded(record=record(5)), events.Failed(code="rows", message="m", halt=halt),
        events.Woken(),
        claimed(5), events.Fenced(), held((0, 2, identity(3)), (1, 2, identity(3))),
        events.VersionOpened(version=2, checkpoint=identity(3), layout=LAYOUT), events.Discarded(),
        events.StepsRead(records=(record(3), record(4), record(5), record(6))), events.StepDone(step=3), events.StepDone(step=4),
    )  # fmt: skip
    assert issued[-1] == commands.Wait(for_input=False)
    assert [c.record.step for c in issued if isinstance(c, commands.RunStep)] == [5, 3, 4], (
        "the failing step is not run again"
    )
    return state, halt


def test_rows_that_fail_halt_before_their_step_and_are_no_failure_in_a_row() -> None:
    state, halt = halted()
    assert isinstance(state, states.Halted)
    assert (state.facts.halt, state.facts.failures, state.facts.next_step) == (halt, 0, 5)


def test_a_skip_is_logged_before_the_step_runs_again() -> None:
    state, _ = halted()
    decided = replace(record(5), commands=("skip node=3",))
    state, issued = play(
        state,
        events.SkipAsked(step=5),
        events.SkipAsked(step=5),
        events.Decided(record=decided),
        events.StepDone(step=5),
    )
    assert issued == [
        commands.LogDecision(epoch=5, step=5, command="skip node=3"),
        commands.RunStep(record=decided, layout=LAYOUT, epoch=5, replay=True, may_cut_ahead=False, following=record(6)),
        commands.RunStep(record=record(6), layout=LAYOUT, epoch=5, replay=True, may_cut_ahead=False),
    ]
    assert state.facts.halt is None


def test_a_decision_whose_answer_was_lost_is_found_in_the_log() -> None:
    state, _ = halted()
    decided = replace(record(5), commands=("skip node=3",))
    state, issued = play(
        state, events.SkipAsked(step=5), events.Failed(code="unavailable", message="x"), events.Woken(), claimed(6),
        events.Fenced(),
        held((0, 2, identity(3)), (1, 2, identity(3))), events.VersionOpened(version=2, checkpoint=identity(3), layout=LAYOUT),
        events.Discarded(), events.StepsRead(records=(record(3), record(4), decided)), events.StepDone(step=3),
        events.StepDone(step=4),
    )  # fmt: skip
    assert issued[-1] == commands.RunStep(record=decided, layout=LAYOUT, epoch=6, replay=True, may_cut_ahead=False)
    assert state.facts.halt is None


def test_a_skip_of_another_step_or_without_a_halt_does_nothing() -> None:
    state, _ = halted()
    assert step(state, events.SkipAsked(step=4)) == (state, (commands.Wait(for_input=False),))
    waiting = running()
    assert step(waiting, events.SkipAsked(step=4)) == (waiting, (commands.Wait(for_input=True),))


def test_a_halted_pipeline_takes_no_request_to_pause_and_stops_at_once() -> None:
    """Whoever asks is refused (`service`): a request that was kept would end the steps after the decision."""
    state, _ = halted()
    state, issued = play(state, events.PauseAsked())
    assert (state.facts.requested.pause, names(issued)) == (False, ["Wait"])
    state, issued = play(state, events.StopAsked())
    assert (type(state), names(issued)) == (states.Stopped, ["Shutdown"])


def test_stop_checkpoints_first() -> None:
    state, issued = play(
        running(),
        events.StopAsked(),
        events.VersionPinned(version=3),
        events.Copied(version=3),
        events.Published(version=3),
    )
    assert names(issued) == ["PinVersion", "AwaitCopy", "Publish", "Shutdown"]
    assert isinstance(state, states.Stopped)


def test_stop_now_does_not() -> None:
    state, issued = play(running(), events.StopAsked(now=True))
    assert names(issued) == ["Shutdown"]
    assert isinstance(state, states.Stopped)


def test_recovery_ignores_workers_outside_the_layout_and_other_runs() -> None:
    good, foreign = identity(3), identity(9, run="other")
    found = held((0, 2, good), (1, 2, good), (0, 3, foreign), (1, 3, foreign), (7, 9, identity(20)))
    choice = choose(found.held, {0: LAYOUT}, run=RUN, fingerprint=FINGERPRINT)
    assert choice is not None
    assert (choice.version, choice.checkpoint) == (2, good)
    assert choose(found.held, {0: LAYOUT}, run=RUN, fingerprint="another") is None


def every_state() -> list[states.State]:
    """One state of every kind and of everything it may wait for."""
    good = identity(5, epoch=4)
    base = running().facts
    return [
        states.Starting(facts=base),
        *(
            states.Recovering(facts=base, awaits=a)
            for a in ("forgotten", "backoff", "claimed", "created", "fenced", "held")
        ),
        *(states.Recovering(facts=base, awaits=a) for a in ("opened", "discarded", "steps")),
        states.Recovering(facts=base, awaits="accepted", records=(record(5),)),
        states.Replaying(facts=base, records=(record(5),)),
        *(
            states.Running(facts=base, record=r, awaits=a)
            for r, a in ((None, "input"), (None, "record"), (record(5), "step"))
        ),
        *(
            kind(facts=base, version=3, checkpoint=good, awaits=a)
            for kind, a in itertools.product((states.Checkpointing, states.Stopping), ("pinned", "copied", "published"))
        ),
        *(
            states.Rescaling(facts=base, version=3, checkpoint=good, new=rescaled(LAYOUT, 3, step=5), awaits=a)
            for a in ("logged", "discarded", "created", "fenced", "redistributed", "published")
        ),
        states.Paused(facts=base),
        *(
            states.Halted(facts=replace(base, halt=halted()[1]), records=(record(5),), awaits=a)
            for a in ("decision", "logged")
        ),
        states.Stopped(facts=base),
        states.Broken(facts=base, code="data", message="m"),
    ]


def every_event() -> list[events.Event]:
    """One event of every kind, more where what it says decides."""
    return [
        events.LoopReady(), events.Claimed(epoch=9, standing=standing(facts())),
        events.Created(), events.Fenced(), held((0, 2, identity(3)), (1, 2, identity(3))),
        events.VersionOpened(version=2, checkpoint=identity(3), layout=LAYOUT), events.Discarded(),
        events.StepsRead(records=(record(5),)),
        events.StepsRead(records=()), events.Recorded(record=None), events.Recorded(record=record(5)), events.StepDone(step=5),
        events.VersionPinned(version=3), events.Copied(version=3), events.CopyEnded(version=3),
        events.CopyEnded(version=3, code="data", message="m"),
        events.Published(version=3), events.LayoutLogged(layout=rescaled(LAYOUT, 3, step=5)),
        events.Redistributed(version=3), events.Forgotten(), events.Decided(record=record(5)), events.SkipAsked(step=5),
        events.SkipAsked(step=4),
        events.Failed(code="rows", message="m", halt=halted()[1]), events.Woken(), events.Failed(code="data", message="m"),
        events.Failed(code="fenced", message="m"), events.CheckpointAsked(), events.PauseAsked(), events.ResumeAsked(),
        events.RescaleAsked(workers=3), events.RescaleAsked(workers=9999), events.StopAsked(), events.StopAsked(now=True),
        events.UpgradeAsked(), events.EnginesAccepted(accepted=()),
    ]  # fmt: skip


def test_every_pair_of_state_and_event_has_an_answer_or_a_story() -> None:
    check_every_pair(every_state(), every_event(), least=150)


def check_every_pair(known_states: Sequence[states.State], arrived: Sequence[events.Event], *, least: int) -> None:
    """More than `least` pairs are answered, purely and with one command at most; the others raise with their story."""
    answered, stories = 0, list[str]()
    for state, event in itertools.product(known_states, arrived):
        try:
            after, issued = step(state, event)
        except InternalError as error:
            stories.append(str(error))
            continue
        answered += 1
        assert len(issued) <= 1, "one command at a time"
        assert (after, issued) == step(state, event), "a pure function"
    assert answered > least
    assert all("state=" in story and "event=" in story for story in stories)


@pytest.mark.parametrize("workers", [1, 2, 3, 4])
def test_every_subset_of_committed_workers_recovers_to_one_version(workers: int) -> None:
    """Fault row 3: all hold v; some hold v+1 too. Only if all do is v+1 taken."""
    layout = initial(workers)
    old, new = identity(3), identity(5)
    for committed in itertools.product((False, True), repeat=workers):
        entries = [(worker, 2, old) for worker in layout.workers]
        found = held(*entries, *((worker, 3, new) for worker in layout.workers if committed[worker]))
        choice = choose(found.held, {0: layout}, run=RUN, fingerprint=FINGERPRINT)
        assert choice is not None
        assert choice.version == (3 if all(committed) else 2)

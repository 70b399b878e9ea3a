"""Steps of other versions of the engine (see `engines`): refused, accepted, noted, and what the machine does."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbsp.coordinator.decisions import commands, events, states
from dbsp.coordinator.decisions.engines import Acceptance, accepted_anew, still_needed
from dbsp.coordinator.running import control
from dbsp.coordinator.running.control import Saved, new_ledger
from dbsp.coordinator.running.ledger_file import decode_ledger, encode_ledger
from dbsp.errors import EngineError
from dbsp.logs import StepRecord
from dbsp.steps.timing import Timing
from dbsp.store import CheckpointId
from tests.coordinator.test_machine import (
    LAYOUT,
    claimed,
    facts,
    held,
    identity,
    names,
    play,
    record,
    running,
)

VERSIONS = ("0.9.1", "0.9.2", "1.0.0")
logs = st.lists(st.sampled_from(VERSIONS), max_size=12).map(
    lambda engines: [by(3 + number, engine) for number, engine in enumerate(engines)]
)
acceptances = st.lists(
    st.builds(
        Acceptance, engine=st.sampled_from(VERSIONS), by=st.sampled_from(VERSIONS), last=st.integers(-1, 16)
    ),
    unique_by=lambda found: (found.engine, found.by),
)  # fmt: skip
some = st.frozensets(st.sampled_from(VERSIONS))


def by(number: int, engine: str) -> StepRecord:
    return replace(record(number), engine=engine)


@given(logs, st.sampled_from(VERSIONS), acceptances, some)
def test_a_step_is_run_again_by_whoever_logged_it_or_was_accepted_for_it(
    records: list[StepRecord], engine: str, accepted: list[Acceptance], accepting: frozenset[str]
) -> None:
    def known(step: StepRecord) -> bool:
        return step.engine == engine or any(
            (each.engine, each.by) == (step.engine, engine) and step.step <= each.last for each in accepted
        )

    try:
        anew = accepted_anew(records, engine, accepted, accepting)
    except EngineError:
        assert any(not known(step) and step.engine not in accepting for step in records)
        return
    assert all(known(step) or step.engine in accepting for step in records)
    assert (not anew) == all(map(known, records)), "what is noted already is not noted again"
    assert accepted_anew(records, engine, [*accepted, *anew], ()) == (), "noted, it does not ask again"


def test_the_refusal_names_the_steps_the_version_and_what_to_do() -> None:
    records = [by(7, "0.9.1"), by(8, "0.9.1"), by(9, "1.0.0"), by(10, "0.9.2")]
    with pytest.raises(EngineError) as refused:
        accepted_anew(records, "1.0.0", (), ())
    assert refused.value.message == (
        "steps above the checkpoint were logged by another version of dbsp, and this one may compute something else:"
        " steps 7 to 8 by 0.9.1, step 10 by 0.9.2; this is 1.0.0"
    )
    assert refused.value.hint == (
        "start version 0.9.2 and end it with `coordinator stop`, then start this one;"
        " or let this one run them again: `dbsp-coordinator … --accept-engine 0.9.1 --accept-engine 0.9.2`"
    )
    assert refused.value.exit_code == 7


def test_a_step_that_is_logged_later_asks_again() -> None:
    (noted,) = accepted_anew([by(7, "0.9.1")], "1.0.0", (), ["0.9.1"])
    with pytest.raises(EngineError, match=r"step 8 by 0\.9\.1"):
        accepted_anew([by(7, "0.9.1"), by(8, "0.9.1")], "1.0.0", [noted], ())
    with pytest.raises(EngineError, match=r"step 7 by 0\.9\.1; this is 1\.0\.1"):
        accepted_anew([by(7, "0.9.1")], "1.0.1", [noted], ())


# --- the machine ----------------------------------------------------------------------------------------------------


def recovered(*records: StepRecord, **known: object) -> tuple[states.State, list[commands.Command]]:
    """A start at checkpoint 2, step 3, that finds these steps."""
    opened = events.VersionOpened(version=2, checkpoint=identity(3), layout=LAYOUT)
    start = states.Starting(facts=facts(forming=frozenset(), published=2, engine="1.0.0", **known))
    return play(
        start, events.LoopReady(), claimed(5), events.Fenced(), held((0, 2, identity(3)), (1, 2, identity(3))), opened,
        events.Discarded(),
        events.StepsRead(records=records),
    )  # fmt: skip


def test_steps_of_another_version_end_the_start() -> None:
    state, issued = recovered(by(3, "0.9.1"))
    assert isinstance(state, states.Broken)
    assert issued[-1] == commands.Shutdown(code="engine", message=state.message, hint=issued[-1].hint)  # type: ignore[union-attr]
    assert "step 3 by 0.9.1" in state.message


def test_accepted_steps_are_run_again_when_that_is_noted_and_a_checkpoint_follows() -> None:
    state, issued = recovered(by(3, "0.9.1"), by(4, "1.0.0"), accepting=frozenset({"0.9.1"}))
    anew = Acceptance(engine="0.9.1", by="1.0.0", last=3)
    assert issued[-1] == commands.AcceptEngines(acceptances=(anew,))
    state, issued = play(state, events.EnginesAccepted(accepted=(anew,)))
    assert names(issued) == ["RunStep"]
    state, issued = play(state, events.StepDone(step=3), events.StepDone(step=4))
    assert names(issued) == ["RunStep", "PinVersion"], "what was run again is this version's from here on"
    assert state.facts.accepted == (anew,)


def test_an_upgrade_ends_at_a_checkpoint_with_no_later_logged_step() -> None:
    state, issued = play(running(), events.Woken(), events.Recorded(record=record(5)), events.UpgradeAsked())
    state, issued = play(
        state, events.StepDone(step=5, ahead=record(6)), events.StepDone(step=6), events.VersionPinned(version=3),
        events.Copied(version=3),
        events.Published(version=3),
    )  # fmt: skip
    assert names(issued) == ["RunStep", "PinVersion", "AwaitCopy", "Publish", "Shutdown"]
    assert issued[-1] == commands.Shutdown(code=None, message="stopped", again=True)
    assert state.facts.checkpoint_step == state.facts.next_step == 7


def test_a_stop_ends_so_too_and_goes_before_an_upgrade() -> None:
    for asked in ((events.StopAsked(),), (events.UpgradeAsked(), events.StopAsked())):
        state, _ = play(running(), events.Woken(), events.Recorded(record=record(5)), *asked)
        _, issued = play(
            state, events.StepDone(step=5, ahead=record(6)), events.StepDone(step=6), events.VersionPinned(version=3),
            events.Copied(version=3),
            events.Published(version=3),
        )  # fmt: skip
        assert issued[-1] == commands.Shutdown(code=None, message="stopped")


@pytest.mark.parametrize("asked", [events.StopAsked(), events.UpgradeAsked()], ids=["stop", "upgrade"])
def test_a_logged_step_is_run_though_a_rescale_was_about_to_begin_before_it(asked: events.Event) -> None:
    state, issued = play(
        running(), events.Woken(), events.RescaleAsked(workers=3), events.Recorded(record=record(5)),
        events.StepDone(step=5, ahead=record(6)),
        events.VersionPinned(version=3), asked, events.Copied(version=3), events.Published(version=3), events.StepDone(step=6),
    )  # fmt: skip
    assert names(issued)[-5:] == ["PinVersion", "AwaitCopy", "Publish", "RunStep", "PinVersion"]
    state, issued = play(state, events.VersionPinned(version=4), events.Copied(version=4), events.Published(version=4))
    assert names(issued)[-1] == "Shutdown"
    assert state.facts.checkpoint_step == state.facts.next_step == 7


def test_a_failure_gives_an_upgrade_up() -> None:
    state, _ = play(running(), events.UpgradeAsked())
    assert isinstance(state, states.Stopping)
    state, issued = play(state, events.Failed(code="unavailable", message="no disk"))
    assert names(issued) == ["BackOff"]
    assert (state.facts.requested.upgrade, state.facts.upgrade_error) == (False, "no disk")


def test_an_upgrade_begins_only_where_steps_are_taken() -> None:
    state, _ = play(states.Recovering(facts=running().facts, awaits="fenced"), events.UpgradeAsked())
    assert (state.facts.requested.upgrade, state.facts.upgrade_error) == (False, "it takes no steps at the moment")
    _, issued = play(states.Paused(facts=running().facts), events.UpgradeAsked())
    assert names(issued) == ["PinVersion"]


@pytest.mark.parametrize("stopped", [False, True], ids=["upgrade", "stop"])
def test_an_upgrade_that_is_asked_for_twice_is_one(stopped: bool) -> None:
    """In each of the states on its way; behind a stop it is refused once and again."""
    state, _ = play(running(), events.StopAsked() if stopped else events.UpgradeAsked())
    refusal = "it takes no steps at the moment" if stopped else None
    for news in (events.VersionPinned(version=3), events.Copied(version=3), events.Published(version=3)):
        assert isinstance(state, states.Stopping)
        state, issued = play(state, events.UpgradeAsked())
        assert (issued, state.facts.requested.upgrade, state.facts.upgrade_error) == ([], not stopped, refusal)
        state, issued = play(state, news)
    assert issued[-1] == commands.Shutdown(code=None, message="stopped", again=not stopped)


# --- the ledger -----------------------------------------------------------------------------------------------------


def test_the_ledger_keeps_acceptances_until_no_openable_version_needs_them() -> None:
    old, new = Acceptance(engine="0.9.1", by="1.0.0", last=3), Acceptance(engine="0.9.1", by="1.0.0", last=6)
    ledger = control.accept_engines(new_ledger(fingerprint="f", nodes=(), layout=LAYOUT, run="r"), [old])
    ledger = control.accept_engines(ledger, [new])
    assert ledger.accepted == (new,), "a later one reaches further"
    assert decode_ledger(encode_ledger(ledger)) == ledger
    for version, step in ((1, 6), (2, 8), (3, 9)):
        checkpoint = CheckpointId(run="r", epoch=1, step=step, layout_version=0, fingerprint="f")
        saved = Saved(version=version, checkpoint=checkpoint, positions={}, timing=Timing(), wall_us=0, published=False)
        ledger = control.publish(control.intend(ledger, saved), version, ends_rescale=False)
        assert ledger.accepted == ((new,) if version < 3 else ()), "version 1 is openable beside version 2"


def test_a_ledger_of_before_is_read() -> None:
    ledger = new_ledger(fingerprint="f", nodes=(), layout=LAYOUT, run="r")
    found = {name: value for name, value in encode_ledger(ledger).items() if name != "accepted"}
    assert decode_ledger(found) == ledger


def test_an_acceptance_of_the_last_step_is_needed_by_a_checkpoint_before_it() -> None:
    found = Acceptance(engine="0.9.1", by="1.0.0", last=6)
    assert (still_needed([found], 6), still_needed([found], 7)) == ((found,), ())

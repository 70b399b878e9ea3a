"""The machine waits for systems of others without a bound, and does not try again and again what waiting does not cure."""

from __future__ import annotations

import pytest

from dbsp.coordinator.decisions import commands, events, states
from tests.coordinator.test_machine import play, running


def test_a_system_of_others_that_is_away_is_waited_for_without_a_bound() -> None:
    state: states.State = running(failures_max=2)
    for number in range(1, 50):
        state, issued = play(state, events.Failed(code="away", message="the broker does not answer"))
        assert issued == [commands.BackOff(failures=number, away=True)]
        state, _ = play(state, events.Woken())
    assert state.facts.failures == 0, "what is away is no failure of the pipeline"
    state, _ = play(state, events.Failed(code="unavailable", message="gone"))
    assert state.facts.failures == 1
    state, issued = play(state, events.StopAsked(), events.Failed(code="away", message="the broker does not answer"))
    assert isinstance(issued[-1], commands.Shutdown), "a stop does not wait for it"


@pytest.mark.parametrize("code", ["data", "internal", "dbsp"])
def test_an_error_that_waiting_does_not_cure_ends_the_service_when_it_comes_back(code: str) -> None:
    state, _ = play(running(), events.Failed(code=code, message="bytes are wrong: epoch=4"), events.Woken())
    assert isinstance(state, states.Recovering), "a rollback makes the workers anew: that may cure it"
    again, issued = play(state, events.Failed(code=code, message="bytes are wrong: epoch=5"))
    assert isinstance(again, states.Broken)
    assert issued == [
        commands.Shutdown(code=code, message="bytes are wrong: epoch=5 (it came back after a rollback: step=5)")
    ]
    other, _ = play(state, events.Failed(code=code, message="other bytes are wrong"))
    assert isinstance(other, states.Recovering), "another error is tried again, too"

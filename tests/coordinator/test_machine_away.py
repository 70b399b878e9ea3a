"""The machine waits for systems of others without a bound, and does not try again and again what waiting does not cure."""

from __future__ import annotations

import pytest

from dbsp.coordinator.decisions import orders as do
from dbsp.coordinator.decisions import protocol as p
from tests.coordinator.test_machine import play, running


def test_a_system_of_others_that_is_away_is_waited_for_without_a_bound() -> None:
    state: p.State = running(failures_max=2)
    for number in range(1, 50):
        state, commands = play(state, p.Failed(code="away", message="the broker does not answer"))
        assert commands == [do.BackOff(failures=number, away=True)]
        state, _ = play(state, p.Woken())
    assert state.facts.failures == 0, "what is away is no failure of the pipeline"
    state, _ = play(state, p.Failed(code="unavailable", message="gone"))
    assert state.facts.failures == 1
    state, commands = play(state, p.StopAsked(), p.Failed(code="away", message="the broker does not answer"))
    assert isinstance(commands[-1], do.Finish), "a stop does not wait for it"


@pytest.mark.parametrize("code", ["data", "internal", "dbsp"])
def test_an_error_that_waiting_does_not_cure_ends_the_service_when_it_comes_back(code: str) -> None:
    state, _ = play(running(), p.Failed(code=code, message="bytes are wrong: epoch=4"), p.Woken())
    assert isinstance(state, p.Recovering), "a rollback makes the workers anew: that may cure it"
    again, commands = play(state, p.Failed(code=code, message="bytes are wrong: epoch=5"))
    assert isinstance(again, p.Broken)
    assert commands == [
        do.Finish(code=code, message="bytes are wrong: epoch=5 (it came back after a rollback: step=5)")
    ]
    other, _ = play(state, p.Failed(code=code, message="other bytes are wrong"))
    assert isinstance(other, p.Recovering), "another error is tried again, too"

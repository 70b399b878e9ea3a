"""The machine fills a changed circuit before it takes any other step."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dbsp.coordinator.decisions import commands, events, states
from dbsp.coordinator.decisions.fills import Fill
from tests.coordinator.test_machine import facts, play, record


def fill_due(requested: states.Requested) -> states.Recovering:
    """A machine that has opened its checkpoint, above which a changed circuit is to be filled."""
    fill = Fill(step=5, command="fill {}")
    return states.Recovering(
        facts=facts(forming=frozenset(), checkpoint_step=5, next_step=5, fill=fill, requested=requested), awaits="steps"
    )


@pytest.mark.parametrize(
    "requested",
    [states.Requested(), states.Requested(pause=True), states.Requested(rescale=3), states.Requested(checkpoint=True)],
)
def test_a_changed_circuit_is_filled_before_anything_else(requested: states.Requested) -> None:
    state, issued = play(fill_due(requested), events.StepsRead(records=()))
    cut = commands.CutStep(epoch=state.facts.epoch, step=5, layout_version=0, commands=("fill {}",))
    assert issued == [cut]
    filling = replace(record(5), ranges=(), commands=("fill {}",))
    state, issued = play(state, events.Recorded(record=filling), events.StepDone(step=5, ahead=None))
    assert not any(isinstance(command, commands.CutStep) and command.commands for command in issued), "once"


def test_a_changed_circuit_that_is_stopped_is_filled_at_the_next_start() -> None:
    state, issued = play(fill_due(states.Requested(stop=True)), events.StepsRead(records=()))
    assert isinstance(state, states.Stopped)
    assert [type(command) for command in issued] == [commands.Shutdown]

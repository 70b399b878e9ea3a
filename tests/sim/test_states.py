"""docs/states.md is what the machine does today."""

from __future__ import annotations

import pytest

from dbsp.coordinator.decisions import events, machine, states
from tests.pace import few
from tools import state_diagrams


@pytest.mark.skipif(few(), reason="it explores every strategy: `make test` does")
def test_the_page_is_what_the_tool_draws() -> None:
    """After a change of the machine: `python tools/state_diagrams.py`."""
    assert state_diagrams.PAGE.read_text(encoding="utf-8") == state_diagrams.page()


def test_another_machine_is_drawn_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that stops where it should recover has an arrow less, and another one more."""
    drawn, _ = state_diagrams.explore(state_diagrams.COLD)

    def broken(state: states.State, event: events.Event) -> machine.Answer:
        if isinstance(event, events.Published) and isinstance(state, states.Rescaling):
            return states.Stopped(facts=state.facts), ()
        return machine.step(state, event)

    monkeypatch.setattr(state_diagrams, "step", broken)
    planted, _ = state_diagrams.explore(state_diagrams.COLD)
    assert "Published" in drawn["Rescaling", "Recovering"]
    assert "Published" not in planted["Rescaling", "Recovering"]
    assert ("Rescaling", "Stopped") in planted

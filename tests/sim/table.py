"""The (state, event) pairs that the machine answers."""

from __future__ import annotations

import itertools

from dbsp.coordinator.decisions.machine import step
from dbsp.errors import InternalError
from tests.coordinator.test_machine import every_event, every_state
from tests.sim.coverage import Pair, kind, place


def answered() -> set[Pair]:
    """All pairs that do not raise."""
    found: set[Pair] = set()
    for state, event in itertools.product(every_state(), every_event()):
        try:
            step(state, event)
        except InternalError:
            continue
        found.add((place(state), kind(event)))
    return found

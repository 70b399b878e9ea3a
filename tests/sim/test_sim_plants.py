"""Planted bugs in the simulated coordinator: each is found within its seeds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.pace import rotating
from tests.sim.circuit_plants import STRAGGLERS
from tests.sim.plants import BEHIND, PLANTS, Plant
from tests.sim.simulation import first_failure

pytestmark = pytest.mark.timeout(900)


@pytest.mark.parametrize("plant", rotating(PLANTS, 2), ids=lambda plant: plant.name)
def test_a_planted_bug_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant.breaks(monkeypatch)
    found = first_failure(plant.order, plant.turns, plant.simulation)
    assert found is not None, f"nothing noticed within {plant.seeds} seeds that this is broken: {plant.rule}"


def test_it_is_the_stragglers_that_show_what_they_may_not_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the same seed, under the same faults but for them, nobody notices that the rule is broken."""
    BEHIND.breaks(monkeypatch)
    assert first_failure(BEHIND.order[:1], BEHIND.turns, BEHIND.simulation) is not None
    without = replace(BEHIND, faults=replace(STRAGGLERS, straggler=0.0))
    assert first_failure(BEHIND.order[:1], BEHIND.turns, without.simulation) is None

"""Planted bugs in the simulated coordinator: each is found within its seeds."""

from __future__ import annotations

import pytest

from tests.sim.plants import PLANTS, Plant
from tests.sim.seeds import TURNS
from tests.sim.simulation import first_failure

pytestmark = pytest.mark.timeout(900)


@pytest.mark.parametrize("plant", PLANTS, ids=[plant.name for plant in PLANTS])
def test_a_planted_bug_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant.breaks(monkeypatch)
    found = first_failure(plant.order, TURNS, plant.simulation)
    assert found is not None, f"nothing noticed within {plant.seeds} seeds that this is broken: {plant.rule}"

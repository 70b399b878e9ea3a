"""The coordinator in one process from many seeds (`tests.sim.simulation`).

A failing seed prints one command that replays it to the same step: `python -m tests.sim --seed n --turns t`. `make soak` runs as
many seeds as `DBSP_SIM_SECONDS` (600) allow.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from dataclasses import replace

import pytest

from tests.sim.__main__ import command_for, run_one
from tests.sim.coverage import Coverage, reachable
from tests.sim.faults import KINDS
from tests.sim.plants import PLANTS, Plant
from tests.sim.simulation import Simulation, first_failure, without_faults
from tests.sim.table import answered

pytestmark = pytest.mark.timeout(900)

TURNS = 300
CHUNK = 20
SEEDS = 300
COVERAGE_SEEDS = range(100_000, 100_200)
SHARE_MET = 0.95
"""The part of all pairs that the fast tier meets; those that answer a command it meets all, the long runs meet every pair."""


def run_seed(seed: int, turns: int = TURNS) -> Simulation:
    """One seed; a failure names the command that replays it."""
    simulation, error = run_one(seed, turns)
    if error is not None:
        story = (
            f"{type(error).__name__}: {error}\nreplay it: {command_for(seed, turns)}\nlast: {simulation.trace[-30:]}"
        )
        raise AssertionError(story) from error
    return simulation


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_every_row_once_whatever_happens(first: int) -> None:
    for seed in range(first, first + CHUNK):
        run_seed(seed)


@pytest.fixture(scope="module")
def met() -> tuple[Coverage, Counter[str]]:
    """What some hundred seeds meet."""
    coverage, fired = Coverage(), Counter[str]()
    for seed in COVERAGE_SEEDS:
        simulation = run_seed(seed, 250)
        coverage.add(simulation.coverage)
        fired += simulation.fired.counts
    return coverage, fired


def test_what_can_happen_is_met(met: tuple[Coverage, Counter[str]]) -> None:
    coverage, _ = met
    wanted = reachable(answered())
    missing = wanted - set(coverage.pairs)
    report = coverage.report(wanted)
    print(report)
    requests = ("Asked", "Failed", "CopyEnded", "WarmEnded")
    assert not {(s, e) for s, e in missing if not any(word in e for word in requests)}, report
    assert len(missing) <= (1 - SHARE_MET) * len(wanted), report
    states, events = ({pair[at] for pair in answered()} for at in (0, 1))
    found = {(state, event) for state, event in coverage.pairs if state in states and event in events}
    assert not found - answered(), "the table has what happens; warm-ups have a table of their own"
    assert {state.partition(".")[0] for state, _ in coverage.pairs} >= {"WarmingUp", "Cancelling"}


def test_every_kind_of_fault_strikes(met: tuple[Coverage, Counter[str]]) -> None:
    _, fired = met
    assert not {kind for kind in KINDS if fired[kind] < 10}, fired


@pytest.mark.soak
def test_every_pair_that_can_happen_is_met() -> None:
    coverage = Coverage()
    wanted = reachable(answered())
    for seed in range(200_000, 203_000):
        coverage.add(run_seed(seed, 250).coverage)
        if wanted <= set(coverage.pairs):
            return
    raise AssertionError(coverage.report(wanted))


@pytest.mark.soak
def test_as_many_seeds_as_time_allows() -> None:
    until = time.monotonic() + float(os.environ.get("DBSP_SIM_SECONDS", "600"))
    seed = time.time_ns() % 10**9
    while time.monotonic() < until:
        run_seed(seed)
        seed += 1


def test_without_faults_nothing_is_recovered() -> None:
    simulation = without_faults(1)
    simulation.live(turns=300)
    assert "CRASH" not in simulation.trace
    assert not simulation.fired.counts


def test_a_seed_repeats() -> None:
    for seed in (7, 8, 9):
        first, second = Simulation(seed=seed), Simulation(seed=seed)
        first.live(turns=300)
        second.live(turns=300)
        assert first.trace == second.trace
        assert first.world.steps == second.world.steps
        assert first.coverage == second.coverage


def test_up_to_64_workers_under_traffic() -> None:
    for seed in range(3):
        simulation = Simulation(seed=seed)
        simulation.rates = replace(simulation.rates, workers_max=64, rescale=0.05)
        simulation.live(turns=200)
        assert len(simulation.world.databases) >= 1


@pytest.mark.parametrize("plant", PLANTS, ids=[plant.name for plant in PLANTS])
def test_a_planted_bug_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant.breaks(monkeypatch)
    found = first_failure(range(plant.seeds), TURNS, plant.simulation)
    assert found is not None, f"nothing noticed within {plant.seeds} seeds that this is broken: {plant.rule}"

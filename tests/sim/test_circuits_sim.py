"""The coordinator over a circuit that runs, from many seeds (`tests.sim.circuits`).

A failing seed prints the command that replays it. `make soak` runs as many as `DBSP_SIM_SECONDS` (600) allow.
"""

from __future__ import annotations

import os
import time

import pytest

from tests.pace import examples
from tests.sim.__main__ import with_circuit
from tests.sim.seeds import run_seed
from tests.sim.simulation import Simulation

pytestmark = pytest.mark.timeout(900)

TURNS = 200


def run(seed: int) -> Simulation:
    """A seed whose workers run a circuit."""
    return run_seed(seed, TURNS, with_circuit, " --circuits")


@pytest.mark.parametrize("seed", range(10, 10 + examples(6)))
def test_every_step_as_one_worker_would_run_it(seed: int) -> None:
    run(seed)


def test_the_seeds_move_state_in_every_way() -> None:
    """Keys that move, a migration that turns round, layouts that change, faults that strike."""
    found = [run(seed) for seed in (10, 13)]
    ledgers = [ledger for simulation in found if (ledger := simulation.world.control.load()) is not None]
    courses = [course for ledger in ledgers for course in ledger.courses.values()]
    assert {course.strategy for course in courses} == {"icadd", "redistribute"}
    assert any(course.turned for course in courses)
    assert all(simulation.fired.counts["crash"] for simulation in found)


@pytest.mark.soak
def test_as_many_seeds_as_time_allows() -> None:
    until = time.monotonic() + float(os.environ.get("DBSP_SIM_SECONDS", "600"))
    seed = time.time_ns() % 10**9
    while time.monotonic() < until:
        run(seed)
        seed += 1

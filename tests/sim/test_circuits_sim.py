"""The coordinator over a circuit that runs, from many seeds (`tests.sim.circuits`).

A failing seed prints the command that replays it. `make soak` runs as many as `DBSP_SIM_SECONDS` (600) allow.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from functools import cache

import pytest

from dbsp.errors import FencedError, UnavailableError
from dbsp.store import CheckpointId
from dbsp.trace.memory import MemoryDatabase
from tests.pace import examples, few
from tests.sim.__main__ import with_circuit
from tests.sim.circuit_faults import KINDS, rebooted
from tests.sim.circuits import CircuitSimulation
from tests.sim.late_tasks import KINDS as LATE_KINDS
from tests.sim.seeds import run_seed
from tests.sim.simulation import Simulation

pytestmark = pytest.mark.timeout(900)

TURNS = 200
SEEDS = (19, 28, 16, 18, *range(10, 16), 17)
"""The first two meet everything; the others run while they do not, as the coordinator changes."""


@cache
def run(seed: int) -> Simulation:
    """A seed whose workers run a circuit."""
    return run_seed(seed, TURNS, with_circuit, " --circuits")


@pytest.mark.parametrize("seed", SEEDS[: examples(6)])
def test_every_step_as_one_worker_would_run_it(seed: int) -> None:
    run(seed)


@pytest.mark.skipif(few(), reason="it counts what several seeds meet: `make test` runs them")
def test_the_seeds_move_state_in_every_way_and_meet_every_fault() -> None:
    """Keys that move, a migration that turns round, layouts that change, faults that strike: within the first seeds."""
    missing = {"icadd", "redistribute", "turned", *KINDS, "crash", "error", "zombie"}
    for seed in SEEDS:
        simulation = run(seed)
        migration_plans = simulation.world.migration_plans.values()
        missing -= {migration_plan.strategy for migration_plan in migration_plans}
        missing -= {"turned" for migration_plan in migration_plans if migration_plan.turned}
        missing -= {kind for kind, times in simulation.fired.counts.items() if times}
        if not missing:
            return
    raise AssertionError(f"not met in {len(SEEDS)} seeds: {sorted(missing)}")


@pytest.mark.skipif(few(), reason="it counts what several seeds meet: `make test` runs them")
def test_tasks_of_every_kind_run_late() -> None:
    """Some are refused, others have no effect; the judgement of each seed says that none had one."""
    ran, refused = Counter[str](), Counter[str]()
    for seed in SEEDS:
        found = run(seed)
        assert isinstance(found, CircuitSimulation)
        ran.update(found.late.counts)
        refused.update(found.late.refused)
        if all(ran[kind] for kind in LATE_KINDS) and 0 < refused["open_version"] < ran["open_version"]:
            return
    raise AssertionError(f"not met in {len(SEEDS)} seeds: ran={ran} refused={refused}")


def test_a_seed_repeats() -> None:
    first, second = CircuitSimulation(seed=16), CircuitSimulation(seed=16)
    first.live(TURNS)
    second.live(TURNS)
    assert first.trace == second.trace
    assert first.fired.counts == second.fired.counts
    assert first.world.steps == second.world.steps


def test_who_loses_its_power_keeps_what_was_synced() -> None:
    first = CheckpointId(run="r", epoch=1, step=0, layout_version=0, fingerprint="f")
    database = MemoryDatabase(first)
    database.open(0, epoch=1)
    database.put(1, "t", b"k", b"v")
    again = rebooted(database)
    assert again.versions() == database.versions()
    with pytest.raises(UnavailableError, match="not opened"):
        again.check(1)
    with pytest.raises(FencedError):
        again.raise_epoch(0)


@pytest.mark.soak
def test_as_many_seeds_as_time_allows() -> None:
    until = time.monotonic() + float(os.environ.get("DBSP_SIM_SECONDS", "600"))
    seed = time.time_ns() % 10**9
    while time.monotonic() < until:
        run.__wrapped__(seed)
        seed += 1

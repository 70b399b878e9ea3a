"""The coordinator over a circuit on real files, which a crash leaves half written and a power loss torn (`tests.sim.disks`).

A failing seed prints the command that replays it. `make soak` runs as many as `DBSP_SIM_SECONDS` (600) allow.
"""

from __future__ import annotations

import itertools
import os
import time
from dataclasses import replace
from functools import cache

import pytest

from tests.pace import examples, few
from tests.sim import disk_plants
from tests.sim.__main__ import with_disks
from tests.sim.circuits import CircuitSimulation
from tests.sim.disks import FAULTS, DiskSimulation
from tests.sim.plants import PLANTS
from tests.sim.seeds import run_seed
from tests.sim.simulation import first_failure

pytestmark = pytest.mark.timeout(900)

TURNS = 80
SEEDS = range(20, 23)
SEEDS_MAX = 12
"""In so many seeds everything is met that can be."""
MIDST = ("durable", "scratch", "outputs", "steps", "control")
"""What is written: the parts of a database, and the logs."""


@cache
def run(seed: int) -> DiskSimulation:
    """A seed on files."""
    found = run_seed(seed, TURNS, with_disks, " --disks")
    assert isinstance(found, DiskSimulation)
    return found


@pytest.mark.parametrize("seed", range(SEEDS.start, SEEDS.start + examples(len(SEEDS))))
def test_every_step_as_one_worker_would_run_it(seed: int) -> None:
    run(seed)


@pytest.mark.skipif(few(), reason="it counts what several seeds meet: `make test` runs them")
def test_writes_are_torn_and_processes_end_in_their_midst() -> None:
    """Chunks and steps that were not synced come back in part; crashes strike before and after writes to every kind of file."""
    wanted = {"torn chunks", "torn steps", "CRASH write", "CRASH written", *MIDST}
    for seed in range(SEEDS.start, SEEDS.start + SEEDS_MAX):
        wanted -= met(run(seed))
        if not wanted:
            return
    raise AssertionError(f"not met in {SEEDS_MAX} seeds: {sorted(wanted)}")


def met(simulation: DiskSimulation) -> set[str]:
    """What was torn, between which halves of a write processes ended, what was written to."""
    torn = {f"torn {what}" for what, times in simulation.disks.torn.items() if times}
    crashed = {name for name, following in itertools.pairwise(simulation.trace) if following == "CRASH"}
    parts = {part for name in simulation.trace for part in name.split(" ")[-1].split("/")}
    return torn | {f"CRASH {name.split()[0]}" for name in crashed} | parts


def test_a_seed_repeats() -> None:
    first, second = (DiskSimulation(seed=21) for _ in range(2))
    first.live(TURNS // 2)
    second.live(TURNS // 2)
    assert first.trace == second.trace
    assert first.fired.counts == second.fired.counts
    assert first.disks.torn == second.disks.torn
    assert first.world.steps == second.world.steps


@pytest.mark.skipif(few(), reason="`make test` runs the planted bugs")
def test_it_is_the_torn_writes_that_show_what_may_not_be_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the same seed, where all that was not synced is lost, nobody notices that the rule is broken."""
    (plant,) = (plant for plant in PLANTS if plant.breaks is disk_plants.trust_the_scratch_of_another_boot)
    plant.breaks(monkeypatch)
    assert first_failure(plant.order[:1], plant.turns, plant.simulation) is not None, "python -m tests.sim --firsts"
    whole = replace(plant, faults=replace(disk_plants.POWER, torn=0.0))
    assert first_failure(plant.order[:1], plant.turns, whole.simulation) is None


def test_in_memory_nobody_notices(monkeypatch: pytest.MonkeyPatch) -> None:
    """What only files show: all these rules broken at once, databases and logs in memory."""
    for _, breaks, *_ in disk_plants.RULES:
        breaks(monkeypatch)
    CircuitSimulation(seed=1, faults=disk_plants.CRASHES).live(TURNS)


@pytest.mark.soak
def test_a_crash_at_every_transaction() -> None:
    """Of one life, without other faults."""
    quiet = replace(
        FAULTS, crash=0.0, crash_again=0.0, error=0.0, pause=0.0, disk_full=0.0, zombie=0.0, parcel=0.0, power=0.0, twice=0.0
    )  # fmt: skip

    def life(*strikes: int) -> DiskSimulation:
        simulation = DiskSimulation(seed=2, faults=quiet, strikes=frozenset(strikes))
        try:
            simulation.live(60)
        except BaseException as error:
            raise AssertionError(f"strikes={strikes}: {error!r}; last: {simulation.trace[-30:]}") from error
        return simulation

    names = [name for name in life().trace if not name[0].isupper()]
    for number, name in enumerate(names):
        if name.startswith(("write", "written", "sync")):
            assert life(number).fired.counts["crash"] == 1


@pytest.mark.soak
def test_as_many_seeds_as_time_allows() -> None:
    until = time.monotonic() + float(os.environ.get("DBSP_SIM_SECONDS", "600"))
    seed = time.time_ns() % 10**9
    while time.monotonic() < until:
        run_seed(seed, 150, with_disks, " --disks")
        seed += 1

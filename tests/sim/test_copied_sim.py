"""Seeds of the simulation with copies off the host (`tests.sim.copied`); the planted bugs are in `tests.sim.copy_plants`."""

from __future__ import annotations

import os
import time
from collections import Counter

import pytest

from tests.pace import in_turn, rotating
from tests.sim.__main__ import with_copies
from tests.sim.copied import CopiedSimulation
from tests.sim.seeds import run_seed

pytestmark = pytest.mark.timeout(900)

TURNS = 80
FAULTS = ("lost-disk", "returned", "place-away", "place-answer", "place-flight", "place-lost", "place-torn")


@pytest.mark.parametrize("seed", rotating(range(400, 412), 4))
def test_a_lost_disk_takes_no_row_with_it(seed: int) -> None:
    run_seed(seed, TURNS, with_copies, " --copied")


@pytest.mark.skipif(not in_turn(1, 4), reason="at every fourth commit; `make soak` runs it")
@pytest.mark.parametrize("seed", [558757222, 190957432], ids=["empty", "late"])
def test_seeds_that_failed(seed: int) -> None:
    """A late task creates an empty database where a disk was lost; a late copy puts the manifest before the next epoch does."""
    run_seed(seed, 300, with_copies, " --copied")


def test_a_seed_repeats() -> None:
    first, second = (CopiedSimulation(seed=405) for _ in range(2))
    first.live(TURNS // 2)
    second.live(TURNS // 2)
    assert first.trace == second.trace
    assert first.fired.counts == second.fired.counts
    assert first.world.steps == second.world.steps


@pytest.mark.soak
def test_every_fault_of_a_place_strikes() -> None:
    fired = Counter[str]()
    for seed in range(420, 520):
        fired += run_seed(seed, TURNS, with_copies, " --copied").fired.counts
        if all(fired[kind] for kind in FAULTS):
            return
    raise AssertionError(f"not met: {[kind for kind in FAULTS if not fired[kind]]}")


@pytest.mark.soak
def test_as_many_seeds_as_time_allows() -> None:
    until = time.monotonic() + float(os.environ.get("DBSP_SIM_SECONDS", "600"))
    seed = time.time_ns() % 10**9
    while time.monotonic() < until:
        run_seed(seed, 150, with_copies, " --copied")
        seed += 1

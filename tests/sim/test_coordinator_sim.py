"""The coordinator in one process from many seeds (`tests.sim.simulation`).

A failing seed prints one command that replays it to the same step: `python -m tests.sim --seed n --turns t`. `make soak` runs as
many seeds as `DBSP_SIM_SECONDS` (600) allow.
"""

from __future__ import annotations

import os
import time
from dataclasses import replace

import pytest

from dbsp.coordinator.decisions import commands, events
from dbsp.coordinator.decisions.strategies import COLD
from tests.coordinator import fakes
from tests.coordinator.fake_standbys import Followings
from tests.pace import examples, rotating
from tests.sim.seeds import run_seed
from tests.sim.simulation import Simulation, without_faults

pytestmark = pytest.mark.timeout(900)

CHUNK = 20
SEEDS = examples(1200)
PARTS = 8
"""`make test` runs one of so many parts of them; all commits run the seeds of `test_sim_coverage`, which check the same."""
FOUND = [645586590, 29501109, 348075594, 476759823, 786509146, 638525180, 156, 200635, 200412]
"""Seeds that have found something: who woke up before its claim when others had rescaled knew the ledger of before; who could not
log a layout made its workers all the same, after a rollback; who read the versions of databases that a newer owner had changed
ended as if they were broken; who upgraded in the checkpoint before a cold rescale left the logged step behind; whose worker
had moved off a lost host took a failure while its database was made from the copies for a lost disk; who opened a version
that was not published lost a disk before the ledger said so, and no start looked for it in the copies; two are of the simulator:
it had no copies of version 0, and ended a run before a start had deleted what was left on a host."""


@pytest.mark.parametrize("first", rotating(range(0, SEEDS, CHUNK), PARTS))
def test_every_row_once_whatever_happens(first: int) -> None:
    for seed in range(first, first + CHUNK):
        run_seed(seed)


@pytest.mark.parametrize("seed", FOUND)
def test_what_a_seed_has_found(seed: int) -> None:
    run_seed(seed)


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


def test_the_first_step_in_a_new_layout_takes_no_more_rows_than_the_last_before_it() -> None:
    """However many come up while the state is sliced; the step behind it takes what is left."""
    simulation = without_faults(1, ask=0.0)
    world, coordinator = simulation.world, simulation.start()
    workers = len(coordinator.state.facts.layout.workers)

    def until(kind: type[commands.Command]) -> None:
        for _ in range(40):
            simulation.turn(coordinator)
            if isinstance(coordinator.command, kind):
                return
        raise AssertionError(coordinator.command)

    until(commands.Wait)
    for rows in (7, 2):
        world.grow(("a", 0), rows)
        until(commands.RunStep)
        until(commands.Wait)
    coordinator.decide(events.RescaleAsked(workers=workers + 1, strategy=COLD))
    until(commands.RedistributeShards)
    world.grow(("a", 0), 9)
    for _ in range(2):
        until(commands.RunStep)
        until(commands.Wait)
    taken = [sum(r.last - r.first for r in record.ranges) for record in world.steps]
    assert taken == [7, 2, 2, 7]
    assert len(coordinator.state.facts.layout.workers) == workers + 1


def test_up_to_64_workers_under_traffic() -> None:
    for seed in range(3):
        simulation = Simulation(seed=seed)
        simulation.rates = replace(simulation.rates, workers_max=64, rescale=0.05)
        simulation.live(turns=200)
        assert len(simulation.world.databases) >= 1


def test_a_following_waits_for_one_that_is_stopped_in_its_midst() -> None:
    """Both hold the coordinator's lock while they run; another coordinator's following goes on meanwhile."""
    world, order = fakes.World(), list[str]()
    mine, others = Followings(world), Followings(world)

    def stopped() -> None:
        order.append("first begins")
        for copy in world.copies:
            copy.advance()
        order.append("first ends")

    mine(stopped)
    mine(lambda: order.append("second"))
    others(lambda: order.append("of another"))
    for copy in world.copies:
        copy.advance()
    assert order == ["first begins", "of another", "first ends", "second"]

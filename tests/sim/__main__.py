"""`python -m tests.sim`: run seeds, replay one, or see how a planted bug ends.

python -m tests.sim --seed 17              one seed; the last events, the fault that struck, what went wrong
python -m tests.sim --seeds 1000           many; figures, coverage of (state, event) pairs
python -m tests.sim --seconds 600          as many as time allows, from a random first seed
python -m tests.sim --plant pin-late       a planted bug: until a seed finds it
python -m tests.sim --covering 700         some of so many seeds that meet what all of them meet
python -m tests.sim --firsts               note which seed finds each planted bug soonest (tests/sim/firsts.json)
python -m tests.sim --circuits --seconds 600   workers that run a circuit, not sets of rows: slower, and sees what steps compute
python -m tests.sim --disks --seconds 600   the same on the real files, which processes and hosts lose in the midst of writing
python -m tests.sim --apart --seconds 600   the same, where hosts have disks of their own and workers have standbys
python -m tests.sim --copied --seconds 600  the same as --disks, with copies off the host: required ones, or ones that lag
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn

import pytest

from tests.coordinator import fakes
from tests.sim.apart import ApartSimulation
from tests.sim.circuits import CircuitSimulation
from tests.sim.copied import CopiedSimulation
from tests.sim.coverage import Coverage, Pair, reachable
from tests.sim.disks import DiskSimulation
from tests.sim.plants import PLANTS
from tests.sim.simulation import Simulation
from tests.sim.table import answered

TAIL = 60
SEED_S = 900.0
"""The longest seeds take two minutes on a busy machine."""


Make = Callable[[int], Simulation]


def rows_only(seed: int) -> Simulation:
    """Workers that hold sets of rows."""
    return Simulation(seed=seed)


def with_circuit(seed: int) -> Simulation:
    """Workers that run a circuit."""
    return CircuitSimulation(seed=seed)


def with_disks(seed: int) -> Simulation:
    """Workers that run a circuit, on files."""
    return DiskSimulation(seed=seed)


def with_hosts_apart(seed: int) -> Simulation:
    """Make workers that run a circuit, on files of several hosts, with standbys."""
    return ApartSimulation(seed=seed)


def with_copies(seed: int) -> Simulation:
    """Make workers that run a circuit, on files, with copies in a place of objects."""
    return CopiedSimulation(seed=seed)


def command_for(seed: int, turns: int, options: str = "") -> str:
    """What replays a seed to the same step."""
    return f"python -m tests.sim --seed {seed} --turns {turns}{options}"


def run_one(seed: int, turns: int, make: Make = rows_only) -> tuple[Simulation, BaseException | None]:
    """One seed; what went wrong."""
    simulation = make(seed)
    try:
        simulation.live(turns)
    except (Exception, fakes.ViolationError) as error:  # noqa: BLE001 - told by the caller
        return simulation, error
    return simulation, None


@contextmanager
def ended_after(seconds: float) -> Iterator[None]:
    """Fail in the body after so many seconds, also while it waits for a lock: a seed that hangs is named."""

    def strike(_signal: int, _frame: FrameType | None) -> NoReturn:
        raise fakes.ViolationError(f"the seed has not ended after {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, strike)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.sim", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seed", type=int)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--covering", type=int)
    parser.add_argument("--firsts", action="store_true")
    parser.add_argument("--turns", type=int, default=300)
    parser.add_argument("--circuits", action="store_true")
    parser.add_argument("--disks", action="store_true")
    parser.add_argument("--apart", action="store_true")
    parser.add_argument("--copied", action="store_true")
    parser.add_argument("--plant", choices=[plant.name for plant in PLANTS])
    given = parser.parse_args()
    if given.firsts:
        note_firsts()
        return 0
    if given.covering:
        print(*covering(range(100_000, 100_000 + given.covering), 250), sep=", ")
        return 0
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        make, options = (with_circuit, " --circuits") if given.circuits else (rows_only, "")
        if given.disks:
            make, options = with_disks, " --disks"
        if given.apart:
            make, options = with_hosts_apart, " --apart"
        if given.copied:
            make, options = with_copies, " --copied"
        for plant in PLANTS:
            if plant.name == given.plant:
                plant.breaks(patch)
                make, options = plant.simulation, f" --plant {plant.name}"
        if given.seed is not None:
            return show(given.seed, given.turns, make)
        return many(given.first, given.seeds, given.seconds, given.turns, make, options)


def note_firsts() -> None:
    """Write which seed finds each planted bug soonest."""
    found: dict[str, int] = {}
    for plant in PLANTS:
        with pytest.MonkeyPatch.context() as patch:
            plant.breaks(patch)
            seed = plant.quickest()
            if seed is not None:
                found[plant.name] = seed
                print(plant.name, seed, flush=True)
    Path(__file__).with_name("firsts.json").write_text(json.dumps(found, indent=1) + "\n")


def covering(seeds: Iterable[int], turns: int) -> list[int]:
    """Return seeds that together meet every pair that any of them meets: each time the one that meets most for its time."""
    wanted, found = reachable(answered()), dict[int, tuple[set[Pair], float]]()
    for seed in seeds:
        began = time.process_time()
        simulation, error = run_one(seed, turns)
        assert error is None, error
        found[seed] = wanted & set(simulation.coverage.pairs), time.process_time() - began
    chosen, left = list[int](), set[Pair]().union(*(pairs for pairs, _ in found.values()))
    while left:
        best = max(found, key=lambda seed: len(found[seed][0] & left) / math.sqrt(found[seed][1]))
        chosen.append(best)
        left -= found[best][0]
    return chosen


def show(seed: int, turns: int, make: Make) -> int:
    """Replay one seed."""
    simulation, error = run_one(seed, turns, make)
    print("\n".join(simulation.trace[-TAIL:]))
    print(f"faults: {simulation.rates}\nfired: {dict(simulation.fired.counts)}")
    print(f"steps logged: {len(simulation.world.steps)}, turns: {simulation.turns}, points: {simulation.points}")
    print("nothing went wrong" if error is None else f"{type(error).__name__}: {error}")
    return 0 if error is None else 1


def many(first: int, seeds: int, seconds: float | None, turns: int, make: Make, options: str) -> int:
    """Run seeds until one goes wrong, all are done, or time is over."""
    if seconds is not None:
        first, seeds = time.time_ns() % 10**9, sys.maxsize
    coverage, fired, steps, started, done = Coverage(), Counter[str](), 0, time.process_time(), 0
    wall = time.monotonic()
    for seed in range(first, first + seeds):
        if seconds is not None and time.monotonic() - wall > seconds:
            break
        with ended_after(SEED_S):
            simulation, error = run_one(seed, turns, make)
        if error is not None:
            print(f"seed {seed}: {type(error).__name__}: {error}\nreplay it: {command_for(seed, turns, options)}")
            return 1
        done += 1
        if done % 20 == 0:
            gc.collect()  # files of seeds that are done stay open until then
        coverage.add(simulation.coverage)
        fired += simulation.fired.counts
        steps += simulation.trace.count("step done")
    spent = time.process_time() - started
    print(f"{done} seeds from {first}, {steps:,} cluster steps, {steps / spent:,.0f} a second on one core")
    print(f"faults that fired: {dict(sorted(fired.items()))}")
    print(coverage.report(reachable(answered())))
    return 0


if __name__ == "__main__":
    sys.exit(main())

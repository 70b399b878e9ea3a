"""One seed of the simulation, and the command that replays it."""

from __future__ import annotations

from tests.sim.__main__ import Make, command_for, rows_only, run_one
from tests.sim.simulation import Simulation

TURNS = 300


def run_seed(seed: int, turns: int = TURNS, make: Make = rows_only, options: str = "") -> Simulation:
    """One seed; a failure names the command that replays it."""
    simulation, error = run_one(seed, turns, make)
    if error is not None:
        story = f"{type(error).__name__}: {error}\nreplay it: {command_for(seed, turns, options)}\nlast: {simulation.trace[-30:]}"
        raise AssertionError(story) from error
    return simulation

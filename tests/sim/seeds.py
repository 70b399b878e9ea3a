"""One seed of the simulation, and the command that replays it."""

from __future__ import annotations

from tests.sim.__main__ import command_for, run_one
from tests.sim.simulation import Simulation

TURNS = 300


def run_seed(seed: int, turns: int = TURNS) -> Simulation:
    """One seed; a failure names the command that replays it."""
    simulation, error = run_one(seed, turns)
    if error is not None:
        story = (
            f"{type(error).__name__}: {error}\nreplay it: {command_for(seed, turns)}\nlast: {simulation.trace[-30:]}"
        )
        raise AssertionError(story) from error
    return simulation

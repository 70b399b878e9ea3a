"""Whole migrations in the rounds of steps: outputs per step as without a rescale, one owner per key, bytes between steps."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dbsp.distribute.messages import Cancel, Enter, Move
from dbsp.distribute.names import STRATEGIES
from dbsp.errors import InternalError
from dbsp.layout import initial
from tests.distribute.world import Lockstep, walk
from tests.pace import some


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("seed", some(range(10), 2))
def test_up_and_down(strategy: str, seed: int) -> None:
    world = Lockstep(strategy, seed, initial(1))
    world.step()
    for new in walk(world.layout, [2, 3, 1, 4, 2])[1:]:
        world.rescale(new, budget=1 + seed)
        world.step()
    assert max(world.rounds) <= 10


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_from_1_to_64_workers_and_back(strategy: str) -> None:
    world = Lockstep(strategy, 5, initial(1), keys=600, rows_per_step=200)
    for _ in range(6):
        world.step()
    layouts = walk(world.layout, [64, 1])
    assert world.rescale(layouts[1], budget=100) > 300
    assert world.rescale(layouts[2], budget=100) > 300


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("moves", range(5))
@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 2), (2, 5)])
def test_cancel_migrates_back(strategy: str, moves: int, before: int, after: int) -> None:
    world = Lockstep(strategy, moves, initial(before))
    for _ in range(4):
        world.step()
    old, new = walk(world.layout, [after])
    world.begin(new)
    if moves:
        world.step(Enter())
    for _ in range(moves - 1):
        world.step(Move(budget=3))
    assert world.migrating
    world.cancel(replace(old, version=new.version + 1), budget=4)
    world.rescale(replace(new, version=new.version + 2), budget=5)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_cancel_can_be_cancelled(strategy: str) -> None:
    world = Lockstep(strategy, 3, initial(2))
    for _ in range(4):
        world.step()
    old, new = walk(world.layout, [4])
    world.begin(new)
    world.step(Enter())
    world.step(Move(budget=4))
    world.layout = replace(old, version=new.version + 1)
    world.step(Cancel(version=new.version + 1))
    world.step(Move(budget=1))
    assert world.migrating
    world.cancel(replace(new, version=new.version + 2), budget=4)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_nothing_to_cancel_is_refused(strategy: str) -> None:
    world = Lockstep(strategy, 3, initial(2))
    with pytest.raises(InternalError, match="nothing to cancel"):
        world.cancel(replace(world.layout, version=5), budget=1)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_seed_repeats_exactly(strategy: str) -> None:
    def run() -> Lockstep:
        world = Lockstep(strategy, 7, initial(2))
        for new in walk(world.layout, [3, 1])[1:]:
            world.rescale(new, budget=2)
        return world

    first, second = run(), run()
    assert first.outputs == second.outputs
    assert first.rounds == second.rounds


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_nobody_has_keys(strategy: str) -> None:
    world = Lockstep(strategy, 1, initial(3), rows_per_step=0)
    for new in walk(world.layout, [4, 1])[1:]:
        assert world.rescale(new, budget=2) == 0

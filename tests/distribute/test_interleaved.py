"""Any interleaving of messages, rows, answers and commands; repeated messages."""

from __future__ import annotations

import pytest

from dbsp.distribute.names import STRATEGIES
from dbsp.layout import initial
from tests.distribute.world import interleaved
from tests.pace import some


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("seed", some(range(60), 2))
def test_up_and_down(strategy: str, seed: int) -> None:
    interleaved(strategy, seed, initial(1, shards=16), [2, 3, 1, 4, 2], pace=1 + seed % 5)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_from_1_to_64_workers(strategy: str) -> None:
    interleaved(strategy, 1, initial(1), [64], rows=400, pace=10, keys=300)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_seed_repeats_exactly(strategy: str) -> None:
    first, second = (interleaved(strategy, 11, initial(2, shards=16), [3, 2]) for _ in range(2))
    assert first.trail == second.trail
    assert first.truth.outputs == second.truth.outputs

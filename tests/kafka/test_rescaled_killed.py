"""The service with Kafka in and out, rescaled by every strategy while its parts and the broker are killed.

Oracles: whatever worker wrote it, a plain `read_committed` consumer reads of every step what a replay of the step log by one
worker gives, without faults and without the commands to move; and the sum of all is what DuckDB says of the input.
"""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from dbsp.coordinator.decisions.strategies import STRATEGIES
from tests.kafka.broker import Broker
from tests.kafka.shop import Shop, by_step, summed

pytestmark = [pytest.mark.kafka, pytest.mark.crash, pytest.mark.spark, pytest.mark.soak]

ROUNDS = 12
VICTIMS = {
    "local": ("coordinator", "group", "broker", ""),
    "spark": ("coordinator", "group", "broker", "worker", "jvm", ""),
}


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("runtime", ["local", "spark"])
def test_rescaled_and_killed(own_broker: Broker, tmp_path: Path, runtime: str) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    broker = own_broker
    shop = Shop(tmp_path, broker.brokers, seed, runtime)
    try:
        shop.start()
        shop.until(lambda: shop.processed() > 0, "its first step")
        for _ in range(ROUNDS):
            asked = [
                shop.ask_rescale(chance.randint(1, 5), chance.choice(STRATEGIES)) for _ in range(chance.randint(1, 2))
            ]
            moment = time.monotonic() + 4 * chance.random()
            shop.until(lambda moment=moment: time.monotonic() > moment, "the moment of the kill")
            strike(shop, broker, chance.choice(VICTIMS[runtime]))
        shop.until(lambda asked=asked: not any(thread.is_alive() for thread in asked), "the last answers", restart=True)
        shop.stop()
        consumed = shop.consumed()
        steps, replayed = shop.replayed(workers=1)
        assert {worker for _, _, worker in consumed} > {0}
        assert {step for _, step, _ in consumed} <= set(range(steps))
        assert by_step(consumed) == by_step(replayed)
        assert summed(consumed, "per_customer") == shop.expected()
    finally:
        shop.end()


def strike(shop: Shop, broker: Broker, victim: str) -> None:
    """Kill a part, which is started again, or the broker, which comes back, or let what goes on go on."""
    if victim == "broker":
        reached = shop.sent
        broker.kill()
        broker.start()
        shop.until(lambda: shop.processed() >= reached, "it goes on after the broker came back", restart=True)
    elif victim:
        shop.kill(victim)

"""The service with Kafka in and out on Spark, killed part by part: a stranger reads every result once.

Oracles: a plain `read_committed` consumer reads every (view, step, worker) part exactly as a fault-free replay of the run's own
step log makes it, so none twice, none missing, none changed; and the sum of all of them is what DuckDB says of the input.
"""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from tests.kafka.broker import Broker
from tests.kafka.shop import Shop, summed
from tests.pace import in_turn

pytestmark = [pytest.mark.kafka, pytest.mark.crash, pytest.mark.spark]

VICTIMS = ("coordinator", "group", "worker", "jvm")


def kill_and_compare(folder: Path, broker: Broker, victims: list[str], seed: int) -> None:
    shop = Shop(folder, broker.brokers, seed)
    try:
        shop.start()
        shop.until(lambda: shop.processed() > 0, "its first step")
        for victim in victims:
            moment = time.monotonic() + 1.5 * shop.random.random()
            shop.until(lambda moment=moment: time.monotonic() > moment, "the moment of the kill")
            shop.kill(victim)
        shop.stop()
        consumed = shop.consumed()
        steps, replayed = shop.replayed()
        assert steps > len(victims)
        assert {step for _, step, _ in consumed} <= set(range(steps))
        assert sorted(consumed) == sorted(replayed)
        for part, values in replayed.items():
            assert consumed[part] == values, part
        assert summed(consumed, "per_customer") == shop.expected()
    finally:
        shop.end()


@pytest.mark.skipif(
    not in_turn((1, 2, 4, 5), 6), reason="a turn of `test_hosts_apart` at this commit; `make soak` runs all"
)
@pytest.mark.timeout(400)
def test_killed_part_by_part(broker: Broker, tmp_path: Path) -> None:
    kill_and_compare(tmp_path, broker, ["worker", "jvm", "coordinator"], seed=17)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_killed_twenty_times(broker: Broker, tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    rest = [chance.choice(VICTIMS) for _ in range(20 - len(VICTIMS))]
    victims = [*VICTIMS, *rest]
    chance.shuffle(victims)
    kill_and_compare(tmp_path, broker, victims, seed)

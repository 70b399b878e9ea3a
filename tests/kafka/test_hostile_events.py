"""Five pipelines with Kafka in and out, each through twenty-five hostile events; a stranger reads every result once.

An event kills, freezes, replaces or moves something while rows are sent: the service, its group of processes, the broker, the
layout, or the topic's partitions. Oracles: a plain `read_committed` consumer reads of every step what a replay of the step log
by one worker gives, without faults; and the sum of all steps is what DuckDB answers to the text of the same query.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import confluent_kafka
import confluent_kafka.admin
import pytest

from dbsp.coordinator.decisions.strategies import STRATEGIES
from tests.kafka.broker import Broker
from tests.kafka.shop import PARTITIONS, Shop, by_step, summed

pytestmark = [pytest.mark.kafka, pytest.mark.crash, pytest.mark.spark, pytest.mark.soak]

EVENTS = 25
QUERIES = {
    "shares": {
        "totals": "select customer, count(*) as n, sum(amount)::bigint as total from orders group by customer",
        "best": "select o.id, o.amount, t.top from orders o join"
        " (select customer, max(amount) as top from orders group by customer) t"
        " on o.customer = t.customer where o.amount = t.top",
    },
    "ranks": {
        "ranked": "select customer, id, amount from orders"
        " qualify row_number() over (partition by customer order by amount desc, id) <= 3",
        "more": "select id, customer, amount - lag(amount) over (partition by customer order by id) as more from orders",
    },
    "sets": {
        "only_large": "select customer from orders where amount > 700 except select customer from orders where amount < 5",
        "values_seen": "select distinct amount % 50 as kind, customer from orders",
        "pairs": "select a.id as one, b.id as other from orders a left join orders b"
        " on a.amount = b.amount and a.customer = b.customer and a.id < b.id where a.amount < 200",
    },
    "paths": {
        "reached": "with recursive reached(a, b) as ("
        " select customer, 'c' || (amount % 40)::varchar from orders where amount < 60"
        " union select r.a, 'c' || (o.amount % 40)::varchar from reached r join orders o on r.b = o.customer"
        " where o.amount < 60) select a, b from reached",
    },
    "medians": {
        "spread": "select customer, median(amount) as middle, min(amount) as least, count(distinct amount) as n"
        " from orders group by customer having count(*) > 3",
        "running": "select id, customer, sum(amount) over"
        " (partition by customer order by id rows between 3 preceding and current row)::bigint as last_four from orders",
    },
}
TABLE = "create table orders (id bigint primary key, customer varchar, amount bigint);\n"


class Stage:
    """The pipeline and the broker, and what is done to them."""

    def __init__(self, shop: Shop, broker: Broker, seed: int) -> None:
        self._shop, self._broker, self._chance = shop, broker, random.Random(seed)
        self._partitions = PARTITIONS
        self.events: dict[str, Callable[[], None]] = {
            "kill the service": lambda: shop.kill("coordinator"),
            "kill its group": lambda: shop.kill("group"),
            "kill the broker": self._kill_broker,
            "freeze the broker": lambda: self._frozen(broker.pause, broker.resume),
            "freeze the service": self._freeze_service,
            "fence a frozen service": self._fence,
            "stop and start": self._restart,
            "rescale": self._rescale,
            "rescale and kill": self._rescale_and_kill,
            "add a partition": self._add_partition,
            "kill beside a standby": self._stand_by,
        }

    def _moment(self, seconds: float) -> None:
        """Send rows for a while."""
        moment = time.monotonic() + seconds * self._chance.random()
        self._shop.until(lambda: time.monotonic() > moment, "the moment of an event", restart=True)

    def _goes_on(self, what: str) -> None:
        reached = self._shop.sent
        self._shop.until(lambda: self._shop.processed() >= reached, f"it goes on after: {what}", restart=True)

    def strike(self, event: str) -> None:
        self._moment(2)
        self.events[event]()
        self._goes_on(event)

    def _kill_broker(self) -> None:
        self._broker.kill()
        self._broker.start()

    def _frozen(self, pause: Callable[[], None], resume: Callable[[], None]) -> None:
        pause()
        try:
            self._moment(6)
        finally:
            resume()

    def _freeze_service(self) -> None:
        pid = self._shop.running().pid
        self._frozen(lambda: os.kill(pid, signal.SIGSTOP), lambda: os.kill(pid, signal.SIGCONT))

    def _fence(self) -> None:
        """Another service takes over from a frozen one, which then wakes: it is fenced and ends by itself."""
        frozen = self._shop.running()
        os.kill(frozen.pid, signal.SIGSTOP)
        try:
            self._shop.start("--take-over")
            self._goes_on("another service took over")
        finally:
            os.kill(frozen.pid, signal.SIGCONT)
        self._shop.until(lambda: frozen.poll() is not None, "the fenced service ends")
        assert frozen.returncode == 6, f"{frozen.returncode}: {self._shop.said()}"

    def _restart(self) -> None:
        self._shop.running().send_signal(signal.SIGTERM)
        self._shop.until(lambda: self._shop.running().poll() is not None, "it stops")
        assert self._shop.running().returncode == 0, self._shop.said()
        self._shop.start()

    def _rescale(self) -> None:
        asked = self._shop.ask_rescale(self._chance.randint(1, 5), self._chance.choice(STRATEGIES))
        self._shop.until(lambda: not asked.is_alive(), "the rescale is answered", restart=True)

    def _rescale_and_kill(self) -> None:
        asked = self._shop.ask_rescale(self._chance.randint(1, 5), self._chance.choice(STRATEGIES))
        self._moment(3)
        self._shop.kill("coordinator")
        self._shop.until(lambda: not asked.is_alive(), "the killed client's thread ends", restart=True)

    def _add_partition(self) -> None:
        self._partitions += 1
        topic = f"{self._shop.name}.in"
        added = confluent_kafka.admin.NewPartitions(topic, self._partitions)
        admin = self._broker.admin()
        admin.create_partitions([added])[topic].result(30)

    def _stand_by(self) -> None:
        """Kill the service beside a standby that is ready, which goes on; it is the service from now on."""
        said = self._shop.folder / "out"
        before = said.stat().st_size
        waiting = self._shop.another("--standby")
        self._shop.until(lambda: b"ready" in said.read_bytes()[before:], "the standby is ready")
        os.kill(self._shop.running().pid, signal.SIGKILL)
        self._shop.running().wait(30)
        self._shop.process = waiting


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("runtime", ["local", "spark"])
@pytest.mark.parametrize("pipeline", QUERIES)
def test_twenty_five_hostile_events(own_broker: Broker, tmp_path: Path, pipeline: str, runtime: str) -> None:
    seed = int(os.environ.get("DBSP_TEST_SEED", "0")) or random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    views = QUERIES[pipeline]
    sql = TABLE + "".join(f"create view {name} as {query};\n" for name, query in views.items())
    broker = own_broker
    shop = Shop(tmp_path, broker.brokers, seed, runtime, sql=sql)
    stage = Stage(shop, broker, seed)
    chance = random.Random(seed)
    events = [*stage.events, *chance.choices([*stage.events], k=EVENTS - len(stage.events))]
    chance.shuffle(events)
    try:
        shop.start()
        shop.until(lambda: shop.processed() > 0, "its first step")
        for event in events:
            began = time.monotonic()
            stage.strike(event)
            print(f"{event}: {time.monotonic() - began:.1f} s, {shop.sent} rows sent")
        shop.stop()
        consumed = shop.consumed(*views)
        steps, replayed = shop.replayed(workers=1)
        assert {step for _, step, _ in consumed} <= set(range(steps))
        assert by_step(consumed) == by_step(replayed)
        for view, query in views.items():
            found, right = summed(consumed, view), shop.expected(query)
            assert right
            assert found == right, Counter(found) - Counter(right)
        print(f"{pipeline}: {steps} steps, {shop.sent} rows, {sum(map(len, consumed.values()))} changes")
    finally:
        with suppress(ProcessLookupError):
            broker.resume()
        shop.end()

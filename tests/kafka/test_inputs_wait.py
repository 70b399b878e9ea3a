"""Fault row 44: what is outside changes while the service runs, on a real broker; it waits by name, and nothing else stops.

One broker of this file's own, as it is stopped here; each test is a pipeline of two topics, one of which nothing happens to.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dbsp.coordinator.service import Service
from dbsp.coordinator.settings.config import load_config
from dbsp.io.kafka import KafkaSettings
from dbsp.io.kafka.client import ensure_topic
from dbsp.io.kafka.input import KafkaInputLog
from dbsp.io.pushed import Position
from tests.kafka.broker import Broker
from tests.kafka.topics import send
from tests.spark.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

CIRCUIT = """
import dbsp

orders = dbsp.table("orders", {"id": dbsp.INT64, "item": dbsp.STRING})
pays = dbsp.table("pays", {"id": dbsp.INT64})
pipeline = dbsp.circuit("shop", {
    "ordered": orders.group_by("item").aggregate(n=dbsp.count()),
    "paid": pays.group_by().aggregate(n=dbsp.count()),
})
"""


@pytest.fixture(scope="module")
def own_broker() -> Iterator[Broker]:
    made = Broker().start()
    yield made
    made.close()


@pytest.fixture
def mine(own_broker: Broker) -> KafkaSettings:
    return KafkaSettings(brokers=own_broker.brokers, pipeline=f"p{uuid.uuid4().hex[:8]}")


def settle(settings: KafkaSettings, folder: Path, output: str = "embedded") -> Path:
    (folder / "circuit.py").write_text(CIRCUIT)
    name = settings.pipeline
    kafka = f'bootstrap = "{settings.brokers}"' if output == "kafka" else ""
    (folder / "pipeline.toml").write_text(f"""
[pipeline]
name = "{name}"
circuit = "circuit.py:pipeline"
runtime = "local"
workers = 2
[input]
kind = "kafka"
bootstrap = "{settings.brokers}"
topics = {{ orders = "{name}.orders", pays = "{name}.pays" }}
[output]
kind = "{output}"
{kafka}
[checkpoint]
interval_s = 0.5
[step]
failures_max = 2
[http]
enabled = false
""")
    for table in ("orders", "pays"):
        ensure_topic(settings, f"{name}.{table}", 1)
    return folder / "pipeline.toml"


@contextmanager
def running(path: Path) -> Iterator[Service]:
    with Service(load_config(path, environment={})) as service:
        yield service


def order(settings: KafkaSettings, number: int, partition: int = 0) -> None:
    row = json.dumps({"id": number, "item": "tea"}).encode()
    send(settings, f"{settings.pipeline}.orders", [row], partition=partition)


def pay(settings: KafkaSettings, number: int) -> None:
    send(settings, f"{settings.pipeline}.pays", [json.dumps({"id": number}).encode()])


def processed(service: Service, table: str, partition: int, offset: int) -> None:
    service.wait_until_processed(Position(table=table, partition=partition, first=offset - 1, last=offset), 120)


def count(service: Service, view: str) -> int:
    rows = service.read_view(view, 60).table.to_pylist()
    return sum(row["n"] for row in rows)


def shown(service: Service, table: str) -> dict[str, Any]:
    return next(each for each in service.status()["inputs"] if each["table"] == table)


def kinds(service: Service) -> set[tuple[str, str]]:
    return {(alarm["kind"], alarm["about"]) for alarm in service.status()["alarms"]}


@pytest.fixture
def grows_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Partitions are counted every half second."""
    monkeypatch.setitem(KafkaInputLog.__init__.__kwdefaults__, "growth_check_s", 0.5)


def test_partitions_are_added_while_it_runs(mine: KafkaSettings, tmp_path: Path, grows_quickly: None) -> None:
    """Readers that have known the topic for long meet them without a rollback, and every worker gets some of them."""
    path = settle(mine, tmp_path)
    with running(path) as service:
        order(mine, 0)
        processed(service, "orders", 0, 1)
        for width in (2, 4):
            ensure_topic(mine, f"{mine.pipeline}.orders", width)
            order(mine, width, partition=width - 1)
            processed(service, "orders", width - 1, 1)
            service.rescale(width, 60)
        assert count(service, "ordered") == 3
        assert [len(row["partitions"]["orders"]) for row in service.layout_status()["rows"]] == [1] * 4
        for partition in range(4):
            order(mine, 10 + partition, partition=partition)
            processed(service, "orders", partition, 1 if partition in (0, 2) else 2)
        assert count(service, "ordered") == 7
        assert (service.snapshot.rollbacks, service.snapshot.last_error) == (0, None)


def test_a_topic_is_deleted_and_made_again(own_broker: Broker, mine: KafkaSettings, tmp_path: Path) -> None:
    """Its table waits by name, also when the new topic is longer than what was read; the other one goes on."""
    path, topic = settle(mine, tmp_path), f"{mine.pipeline}.orders"
    with running(path) as service:
        order(mine, 0)
        processed(service, "orders", 0, 1)
        admin = own_broker.admin()  # held: its futures fail when it is collected
        admin.delete_topics([topic])[topic].result(30)
        until(lambda: "no such topic" in (shown(service, "orders")["away"] or ""), "the table waits for its topic")
        assert shown(service, "orders")["place"] == f"topic={topic}"
        pay(mine, 1)
        processed(service, "pays", 0, 1)
        ensure_topic(mine, topic, 1)
        for number in range(5):
            order(mine, number)
        until(lambda: "made again" in (shown(service, "orders")["away"] or ""), "the other topic is known for one")
        pay(mine, 2)
        processed(service, "pays", 0, 2)
        assert (count(service, "ordered"), count(service, "paid")) == (1, 2)
        until(lambda: ("input-waits", "orders") in kinds(service), "an alarm")
        assert service.readiness()[0], "the other input goes on"
        assert service.snapshot.rollbacks == 0
    with running(path) as service:
        assert count(service, "paid") == 2


def test_brokers_are_away_longer_than_failures_are_counted(
    own_broker: Broker, mine: KafkaSettings, tmp_path: Path
) -> None:
    """Input, step log and outputs are away at once; the service lives, says what is away, and goes on by itself."""
    path = settle(mine, tmp_path, "kafka")
    with running(path) as service:
        order(mine, 0)
        processed(service, "orders", 0, 1)
        own_broker.kill()
        try:
            until(lambda: shown(service, "orders")["away"] is not None, "the table waits for its broker")
            assert f"brokers={mine.brokers}" in shown(service, "orders")["away"]
            since = shown(service, "orders")["since"]
            long = time.monotonic() + 8
            until(lambda: time.monotonic() > long, "it was away for long")
            assert not service.live_status.now.ended
            assert shown(service, "orders")["since"] <= since
        finally:
            own_broker.start()
        order(mine, 1)
        pay(mine, 1)
        processed(service, "orders", 0, 2)
        processed(service, "pays", 0, 1)
        until(lambda: shown(service, "orders")["away"] is None, "the table waits no more")
        assert (count(service, "ordered"), count(service, "paid")) == (2, 1)
        assert service.snapshot.last_error is None


def test_what_waits_is_told_while_a_step_hangs(mine: KafkaSettings, tmp_path: Path) -> None:
    """The gauge comes from the topic; workers that have not answered are named; readiness says no, then yes."""
    path = settle(mine, tmp_path)
    with running(path) as service:
        order(mine, 0)
        processed(service, "orders", 0, 1)
        release = hold()
        try:
            order(mine, 1)
            until(lambda: service.status()["doing"] is not None, "a step hangs")
            for number in range(20):
                order(mine, number)
            until(lambda: service.lag_rows() == 21, "what waits is told")
            began = time.monotonic()
            until(lambda: "step-slow" in {kind for kind, _ in kinds(service)}, "an alarm")
            assert time.monotonic() - began < 15
            ready, told = service.readiness()
            assert not ready
            assert "workers that have not answered: 0, 1" in told["alarms"][0]["text"]
            text = service.metrics.text(service.snapshot, health=service.watch.health).decode()
            assert 'dbsp_alarm{kind="step-slow"} 1.0' in text
            assert 'dbsp_input_waiting_rows{table="orders"} 21.0' in text
        finally:
            release()
        processed(service, "orders", 0, 22)
        until(lambda: service.readiness()[0], "it is ready again")


def hold() -> Callable[[], None]:
    """Let the next reading of input hang until it is released."""
    go_on, original = threading.Event(), KafkaInputLog.read

    def read(self: KafkaInputLog, *arguments: Any) -> Any:
        assert go_on.wait(120)
        return original(self, *arguments)

    KafkaInputLog.read = read  # type: ignore[method-assign]

    def release() -> None:
        KafkaInputLog.read = original  # type: ignore[method-assign]
        go_on.set()

    return release

"""The service with Kafka in and out, killed three times: a plain read_committed consumer sees every result once."""

from __future__ import annotations

import json
import random
import signal
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from dbsp.coordinator.address import read_address
from dbsp.coordinator.service import Service
from dbsp.coordinator.settings.config import load_config
from dbsp.errors import ConfigError
from dbsp.io.kafka import KafkaSettings
from dbsp.io.kafka.client import Trimmer, ensure_topic
from dbsp.io.pushed import Position
from tests import plain_http
from tests.crash.coordinator_child import Child
from tests.kafka.topics import messages, send, weighted

pytestmark = [pytest.mark.kafka, pytest.mark.crash]

CIRCUIT = """
import dbsp
from dbsp import count
from dbsp import sum as total

orders = dbsp.table("orders", {"id": dbsp.INT64, "customer": dbsp.STRING, "amount": dbsp.INT64}, primary_key=["id"])
per_customer = orders.group_by("customer").aggregate(orders=count(), amount=total("amount"))
pipeline = dbsp.circuit("shop", {"per_customer": per_customer})
"""
POINTS = ["runtime.run_step:after:2", "runtime.copy:after:1", "steps.append:after:1", ""]


def config(settings: KafkaSettings, folder: Path) -> None:
    (folder / "circuit.py").write_text(CIRCUIT)
    (folder / "pipeline.toml").write_text(f"""
[pipeline]
name = "{settings.pipeline}"
circuit = "circuit.py:pipeline"
runtime = "local"
workers = 2
[input]
kind = "kafka"
bootstrap = "{settings.brokers}"
topics = {{ orders = "{settings.pipeline}.in" }}
[output]
kind = "kafka"
bootstrap = "{settings.brokers}"
[checkpoint]
interval_s = 0.5
[http]
port = 0
""")


def ask(folder: Path, process: Child, method: str, path: str) -> Any:
    """An answer of the living process, or None."""
    found = read_address(folder / "data")
    if found.get("pid") != process.pid:
        return None
    try:
        answer = plain_http.ask(method, found["url"] + path)
    except httpx.HTTPError:
        return None
    return answer.json() if answer.is_success else None


def in_process(settings: KafkaSettings, folder: Path) -> Service:
    """The service in this process, checkpoints on request only, so that a test orders its failures."""
    overrides = ["checkpoint.interval_s=1000", "step.failures_max=0", "http.enabled=false"]
    return Service(load_config(folder / "pipeline.toml", overrides=overrides, environment={}))


def orders(settings: KafkaSettings, first: int, last: int) -> None:
    rows = [json.dumps({"id": n, "customer": "c", "amount": n}).encode() for n in range(first, last)]
    send(settings, f"{settings.pipeline}.in", rows)


def wait_for(service: Service, offset: int) -> None:
    position = Position(table="orders", partition=0, first=offset - 1, last=offset)
    service.wait_until_processed(position, 60)


def test_a_topic_whose_head_is_gone_is_read_from_what_is_left(settings: KafkaSettings, tmp_path: Path) -> None:
    config(settings, tmp_path)
    topic = f"{settings.pipeline}.in"
    ensure_topic(settings, topic, 1)
    orders(settings, 0, 10)
    Trimmer(settings).delete_below(topic, 0, 4)
    for end in (10, 13):
        orders(settings, 10, end)
        with in_process(settings, tmp_path) as service:
            wait_for(service, end)
            assert service.read_view("per_customer", 60).table.to_pylist() == [
                {"customer": "c", "orders": end - 4, "amount": sum(range(4, end)), "weight": 1}
            ]
    orders(settings, 13, 20)
    Trimmer(settings).delete_below(topic, 0, 15)
    with closing(in_process(settings, tmp_path)) as service:
        service.start(timeout_s=60)
        finish = service.wait_for_end(60)
        assert finish is not None
        assert f"input offsets are missing from Kafka: topic={topic} partition=0 first=13" in finish.message


def test_a_compacted_topic_is_refused_at_the_start(settings: KafkaSettings, tmp_path: Path) -> None:
    config(settings, tmp_path)
    ensure_topic(settings, f"{settings.pipeline}.in", 1, {"cleanup.policy": "compact"})
    with pytest.raises(ConfigError, match=rf"topic={settings.pipeline}.in cleanup.policy=compact"):
        in_process(settings, tmp_path)


def test_large_messages_make_small_steps(settings: KafkaSettings, tmp_path: Path) -> None:
    """A step is logged before it is read, and read whole at every try: the first one behind a backlog has to fit, too."""
    limit, sizes = 1_000_000, [50] * 2_000 + [4_000] * 2_000
    config(settings, tmp_path)
    topic = f"{settings.pipeline}.in"
    ensure_topic(settings, topic, 1)
    rows = [{"id": number, "customer": "c" * size, "amount": 1} for number, size in enumerate(sizes)]
    send(settings, topic, [json.dumps(row).encode() for row in rows])
    overrides = [f"step.max_step_bytes={limit}", "checkpoint.interval_s=1000", "http.enabled=false"]
    with Service(load_config(tmp_path / "pipeline.toml", overrides=overrides, environment={})) as service:
        wait_for(service, len(sizes))
        steps = [range_ for record in service.built.parts.steps.read(0) for range_ in record.ranges]
    assert max(sum(sizes[range_.first : range_.last]) for range_ in steps) < 2.5 * limit, "by the mean of two stretches"
    assert len(steps) < 40, "and no smaller than need be"


def test_every_result_once(settings: KafkaSettings, tmp_path: Path) -> None:
    config(settings, tmp_path)
    topic = f"{settings.pipeline}.in"
    ensure_topic(settings, topic, 1)
    chance = random.Random(3)
    orders: dict[int, tuple[str, int]] = {}
    sent = 0
    for point in POINTS:
        process = Child(tmp_path / "pipeline.toml", point, tmp_path / "out")
        try:
            limit = time.monotonic() + 90
            while process.poll() is None:
                assert time.monotonic() < limit, (tmp_path / "out").read_text()[-2000:]
                if point or sent < 3000:
                    rows = []
                    for _ in range(100):
                        key, value = chance.randint(0, 400), (f"c{chance.randint(0, 9)}", chance.randint(0, 99))
                        orders[key] = value
                        rows.append(json.dumps({"id": key, "customer": value[0], "amount": value[1]}).encode())
                    send(settings, topic, rows)
                    sent += len(rows)
                    continue
                status = ask(tmp_path, process, "GET", "/v1/status")
                if status is not None and sum(place["offset"] for place in status["processed"]) == sent:
                    ask(tmp_path, process, "POST", "/v1/stop")
                    assert process.wait(60) == 0
            assert process.poll() == (-signal.SIGKILL if point else 0), (tmp_path / "out").read_text()[-2000:]
        finally:
            process.kill()
            process.wait()
    total: Counter[Any] = Counter()
    for message in messages(settings, f"{settings.pipeline}.per_customer"):
        _, (row, weight) = weighted(message)
        total[row] += weight
    groups: dict[str, list[int]] = {}
    for customer, amount in orders.values():
        groups.setdefault(customer, []).append(amount)
    expected = {(customer, len(found), sum(found)): 1 for customer, found in groups.items()}
    assert {row: weight for row, weight in total.items() if weight} == expected
